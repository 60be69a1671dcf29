"""Constants, conditions, iterators that work when they are consumed, and objects of libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import libcst as cst

from fsdplint.interpreter.values.base import Value
from fsdplint.interpreter.values.objects import Unknown
from fsdplint.trace.predicates import Predicate


@dataclass(eq=False, repr=False)
class Const(Value):
    """A constant of Python: str, int, float, bool, None, bytes, Ellipsis.

    decided_by: the keys of conditions that decided, at an assignment or in a function that returned
        it, that it is this one, in the order of their decisions.
    copy_of: the first value of which it is a copy that only has other keys.
    """

    value: Any
    decided_by: tuple[str, ...] = ()
    copy_of: Const | None = field(default=None, repr=False, kw_only=True)


@dataclass(eq=False, repr=False)
class Lazy(Value):
    """An iterator that does its work when it is consumed: see `fsdplint.interpreter.lazy`.

    produce: computes the elements. node: the expression that made it. source: the iterated value,
    if any. elements: the elements, once it was consumed. drive: executes a generator and calls a
    function with each value that it yields. generator: its function.
    """

    settles: ClassVar[bool] = True
    produce: Callable[[], Value]
    node: cst.CSTNode
    source: Value | None = None
    elements: Value | None = field(default=None, repr=False)
    drive: Callable[[Callable[[Value], None]], None] | None = field(default=None, repr=False)
    generator: cst.CSTNode | None = field(default=None, repr=False)


@dataclass(eq=False, repr=False)
class LibraryObject(Value):
    """An object without behaviour that a library class or function returned.

    Examples: MixedPrecision(...), ModuleWrapPolicy(...), torch.device(...).

    args: by parameter name if the signature is known; positional ones as "0", "1", ...
    decided_by: see `Const`; what decided at the first assignment that it is made.
    """

    name: str
    args: dict[str, Value] = field(default_factory=dict)
    open: bool = False  # called with a ** or * that could not be followed
    decided_by: tuple[str, ...] = ()

    @property
    def is_loss(self) -> bool:
        """Whether it is a loss of torch.nn, such as `nn.CrossEntropyLoss()`."""
        return self.name.startswith("torch.nn.") and self.name.endswith("Loss")

    def get(self, *names: str) -> Value | None:
        """The first of these arguments that was passed."""
        return next((self.args[n] for n in names if n in self.args), None)


@dataclass(eq=False, repr=False)
class Condition(Value):
    """A boolean whose value is decided per configuration. `key` names what it depends on.

    negated: whether it is true if the key is decided false.
    subject, relation, operand: its parts ("args.strategy", "==", "fsdp"), so that decisions about
        one subject agree; relation is "truth", "==", ">", "in", "is None", "contains",
        "startswith", "endswith" or "".
    chooses: whether it selects one of several values on which a migration depends.
    of_default: whether it selects the one that the default of a setting names.
    among: the only values that the subject can have; () if that is not known.
    asks_for: the attribute that it asks an object for; "" for any other condition.
    predicate: what it says if it is not negated; None if that is not known.
    with_fsdp2: how its key is decided with each torch that has FSDP2; None if that depends.
    """

    key: str
    text: str
    negated: bool = False
    subject: str = ""
    relation: str = ""
    operand: Any = None
    chooses: bool = False
    of_default: bool = False
    among: tuple[object, ...] = ()
    asks_for: str = ""
    predicate: Predicate | None = field(default=None, repr=False)
    with_fsdp2: bool | None = None


def is_none(value: Value | None) -> bool:
    return isinstance(value, Const) and value.value is None


def constant(value: Value | None) -> Any:
    """The Python constant of a value; None if it has none.

    A setting whose default the program takes has it as an argument. Tests of it are not decided.
    """
    if isinstance(value, Unknown) and value.is_default:
        value = value.default
    return value.value if isinstance(value, Const) else None
