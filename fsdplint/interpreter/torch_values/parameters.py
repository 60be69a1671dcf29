"""Parameters, their names and ids, and paths of modules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeGuard

from fsdplint.interpreter.values import (
    LibraryObject,
    ModuleValue,
    OptimizerValue,
    Sequence,
    Unknown,
    Value,
)
from fsdplint.trace import (
    KnownParameter,
)


@dataclass(eq=False, repr=False)
class ModulesOf(Value):
    """`m.modules()`, `m.children()`, `m.named_modules()`, ...: an iterable over submodules.

    some: whether it is a slice, so that it is unknown which of them it has.
    is_iterator: whether it is the iterator, and not a list of its elements.
    """

    module: ModuleValue
    method: str
    reversed: bool = False
    some: bool = False
    is_iterator: bool = True


@dataclass(eq=False, repr=False)
class ParametersOf(Value):
    """The parameters of modules: `m.parameters()`, a list or groups of them, filtered or not.

    complete: whether all are known to come from `modules`.
    named: whether it yields (name, parameter) pairs.
    element: whether it is one parameter, not the iterable.
    unsharded_copy: whether they are copies or views from before the modules were sharded, or copies
        of parameters that `summon_full_params` has gathered.
    taken_at: the number of events when the parameters were read from the modules; None for an
        iterator that reads them when it is used, such as `m.parameters()`.
    filtered_by: the properties that the program tested; see `parameter_filters`.
    by_name: whether a test of the names of the parameters selected them.
    left_out: the parameters of the modules that the tests certainly left out.
    name: the name of a parameter that is read as an attribute (`linear.weight`).
    derived: whether they are the results of operations on parameters, such as copies.
    sharded_copy: whether they are copies or views of parameters that were certainly DTensors, which
        they stay when the parameters are gathered.
    moved: whether they may be on another device than the parameters.
    every: whether they certainly are all parameters of the modules; an iterator loses this when
        something reads from it. For an element: whether they are what it was read from.
    each: whether a loop over all parameters of the modules visits it.
    optimizer: the optimizer whose `param_groups[...]["params"]` these are.
    dtype: that of copies, if it is certain.
    trainable: whether a test of `requires_grad` has selected them.
    of_some_ranks: whether only some ranks have made these results, so that the others have none.
    """

    modules: tuple[ModuleValue, ...]
    complete: bool = True
    named: bool = False
    element: bool = False
    unsharded_copy: bool = False
    taken_at: int | None = None
    filtered_by: frozenset[str] = frozenset()
    by_name: bool = False
    left_out: frozenset[KnownParameter] = frozenset()
    name: str = ""
    derived: bool = False
    sharded_copy: bool = False
    moved: bool = False
    every: bool = False
    each: bool = False
    optimizer: OptimizerValue | None = None
    dtype: str = ""
    trainable: bool = False
    of_some_ranks: bool = False

    @property
    def stands_for_all(self) -> bool:
        """Whether this element of a list stands for all parameters of its modules."""
        chosen = self.name or self.filtered_by or self.by_name or self.derived or self.each
        return self.element and self.every and self.complete and not chosen


def derived(value: ParametersOf, *, partial: bool) -> ParametersOf:
    """The result of an operation on parameters.

    partial: whether only some ranks come to the operation.
    """
    plain = value.derived and not value.name and not value.dtype
    if plain and value.of_some_ranks is partial:
        return value
    return replace(value, name="", derived=True, dtype="", of_some_ranks=partial)


def each_parameter(value: Value) -> Value:
    """The element of one turn of a loop that visits every element of its value."""
    if isinstance(value, ParametersOf):
        return replace(value, each=True) if value.every else value
    if isinstance(value, ParameterName) and value.of:
        return replace(value, each=True, parts={})
    if isinstance(value, Sequence):
        return replace(value, items=[each_parameter(item) for item in value.items])
    return value


def is_new_parameter(value: Value | None) -> TypeGuard[LibraryObject]:
    """Whether a value is an `nn.Parameter` that the program makes."""
    return isinstance(value, LibraryObject) and value.name == "torch.nn.Parameter"


@dataclass(eq=False, repr=False)
class ParameterName(Unknown):
    """The name of a parameter from `named_parameters()` or of the entry of a state, or a value
    derived from the name.

    of: the modules that give it, if it is the whole name of a parameter of theirs.
    each: see `ParametersOf`.
    """

    of: tuple[ModuleValue, ...] = ()
    each: bool = False


@dataclass(eq=False, repr=False)
class ParameterId(Unknown):
    """`id(parameter)`"""

    parameters: ParametersOf | None = None


@dataclass(eq=False, repr=False)
class ModulePath(Unknown):
    """The path of `module` in the model `root`, if an element that stands for several is in it.

    names: whether it is the list of the names in the path, as `path.split(".")` makes it.
    """

    module: ModuleValue | None = None
    root: ModuleValue | None = None
    names: bool = False


@dataclass(eq=False, repr=False)
class NameTest(Unknown):
    """Whether one of several texts is in the name of a parameter, or the name ends with one.

    True for each name that contains one of `texts`; with `at_end`, for each that ends with one.
    """

    texts: tuple[str, ...] = ()
    at_end: bool = False

    def holds_for(self, name: str) -> bool:
        """Whether it is true for each parameter whose name ends with a dot and this name."""
        if self.at_end:
            return f".{name}".endswith(self.texts)
        return any(text in f".{name}" for text in self.texts)

    def holds_below(self, name: str) -> bool:
        """Whether it is true for each parameter of a module of this name."""
        return not self.at_end and any(text in f".{name}." for text in self.texts)
