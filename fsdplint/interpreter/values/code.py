"""Code: the functions and modules of the project, bound and partly called functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import libcst as cst

from fsdplint.interpreter.values.base import Scope, Value
from fsdplint.interpreter.values.objects import Class, Instance
from fsdplint.source.source import NodeSite
from fsdplint.trace.predicates import Predicate


@dataclass(eq=False, repr=False)
class ProjectModule(Value):
    """A module (file) of the user's project."""

    name: str
    scope: Scope


@dataclass(eq=False, repr=False)
class Namespace(Value):
    """The names of a scope as a dict: `globals()`, `vars(config)`.

    owner: the object whose attributes they are; None for the names of a file.
    """

    scope: Scope
    owner: Class | Instance | None = None


@dataclass(eq=False, repr=False)
class Function(Value):
    """A function or lambda of the project, with the scope in which it was defined."""

    node: cst.FunctionDef | cst.Lambda
    scope: Scope
    site: NodeSite
    defaults: dict[str, Value] = field(default_factory=dict)
    owner: Class | None = None  # the class in whose body it was defined
    decorators: tuple[str, ...] = ()  # "property", "staticmethod", "classmethod", or dotted names
    contexts: tuple[Value, ...] = ()  # that decorators run it in: @torch.no_grad(), or unknown

    @property
    def name(self) -> str:
        return self.node.name.value if isinstance(self.node, cst.FunctionDef) else "<lambda>"


@dataclass(eq=False, repr=False)
class Bound(Value):
    """A function bound to its receiver."""

    function: Value
    receiver: Value


@dataclass(eq=False, repr=False)
class Method(Value):
    """A method `receiver.name` of a modelled or unknown object, not called yet.

    certain: False for one of several functions that a variable may hold.
    opens: see `Context`.
    """

    receiver: Value
    name: str
    certain: bool = True
    opens: Predicate | None = field(default=None, repr=False)


@dataclass(eq=False, repr=False)
class Partial(Value):
    """functools.partial(function, *args, **kwargs).

    certain, opens: as in `Method`.
    """

    function: Value
    args: list[Value] = field(default_factory=list)
    kwargs: dict[str, Value] = field(default_factory=dict)
    open: bool = False  # built with a ** or * that could not be followed
    certain: bool = True
    opens: Predicate | None = field(default=None, repr=False)


@dataclass(eq=False, repr=False)
class PartialMethod(Partial):
    """functools.partialmethod(method, *args, **kwargs), in the body of a class."""


@dataclass(eq=False, repr=False)
class Super(Value):
    """`super()` in a method of `owner`, for `receiver`."""

    owner: Class
    receiver: Value


@dataclass(eq=False, repr=False)
class LazyImport(Value):
    """A name imported from a file of the project that is not loaded yet.

    load: gets the run. It holds no run itself: the value outlives the run.
    """

    settles: ClassVar[bool] = True
    load: Callable[[Any], Value]
    files: tuple[str, ...] = ()
    value: Value | None = None


@dataclass(eq=False, repr=False)
class LazyClass(LazyImport):
    """A class of the file whose statement is executed when its name is used."""
