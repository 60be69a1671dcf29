"""What the interpreter knows of parameters, state dicts, loaders, tensors and ranks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeGuard

import libcst as cst

from fsdplint.interpreter.values import (
    Const,
    LibraryObject,
    ModuleValue,
    OptimizerValue,
    RankLocal,
    Sequence,
    Unknown,
    Value,
)
from fsdplint.source.source import NodeSite
from fsdplint.trace import (
    Collective,
    KnownParameter,
    Layout,
    Loaded,
    ParameterMarked,
    Ranks,
    TensorParallel,
)


@dataclass(eq=False, repr=False)
class ScalerValue(LibraryObject):
    """A gradient scaler. `id` is its name in the trace."""

    id: str = ""


@dataclass(eq=False, repr=False)
class SchedulerValue(LibraryObject):
    """A scheduler of torch. `id` is its name in the trace."""

    id: str = ""


@dataclass(eq=False, repr=False)
class HelperState(Unknown):
    """The state of a scheduler or gradient scaler. `id` is its name in the trace."""

    id: str = ""


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

    @property
    def stands_for_all(self) -> bool:
        """Whether this element of a list stands for all parameters of its modules."""
        chosen = self.name or self.filtered_by or self.by_name or self.derived or self.each
        return self.element and self.every and self.complete and not chosen


def derived(value: ParametersOf) -> ParametersOf:
    """The result of an operation on parameters."""
    plain = value.derived and not value.name and not value.dtype
    return value if plain else replace(value, name="", derived=True, dtype="")


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


@dataclass(eq=False, repr=False)
class HookHandle(Unknown):
    """The handle of a hook on parameters; `mark` is the event of its registration."""

    mark: ParameterMarked | None = None


# Entries of a sharded state that are sharded tensors, or hold them.
_SHARDED_ENTRIES = {
    "weight", "bias", "state", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer",
}  # fmt: skip


@dataclass(eq=False, repr=False)
class StateValue(Value):
    """A state dict of a module or optimizer, or an object loaded from disk."""

    id: str
    layout: Layout
    of: Value | None = None
    api: str = "state_dict"
    on_one_rank: bool = False  # only rank 0 has its content
    tensor: bool = False  # one tensor of it, not the dict
    view: str = ""  # "items", "values" or "keys" of it
    itself: bool = False  # its tensors certainly have the memory of the parameters

    def element(self) -> StateValue:
        """One tensor of it."""
        return replace(self, tensor=True, view="", created_at=None)

    def entry(self, key: Value) -> Value:
        """What it has under a key."""
        text = key.value if isinstance(key, Const) else None
        if text == "param_groups":
            return Unknown()  # settings of an optimizer, not tensors
        if self.layout is Layout.SHARDED and isinstance(text, str):
            if text.rpartition(".")[2] not in _SHARDED_ENTRIES:
                return self.as_layout(Layout.UNKNOWN, text)  # it may be a buffer
        return self.element()

    def as_layout(self, layout: Layout, suffix: str) -> StateValue:
        """One tensor of a state that was derived from this one and has another layout."""
        return StateValue(f"{self.id}:{suffix}", layout, self.of, self.api, tensor=True)


@dataclass(eq=False, repr=False)
class NoResult(Const):
    """The result, None, of a function that loads in place; `event` is its event."""

    event: Loaded | None = None


@dataclass(eq=False, repr=False)
class Length(Const):
    """The known length of a list or of a module with elements."""


def note_result_use(value: Value | None) -> None:
    """Record that the program uses a value as if a function had returned it."""
    if isinstance(value, NoResult) and value.event is not None:
        value.event.result_used = True


@dataclass(eq=False, repr=False)
class SamplerValue(Value):
    """A torch DistributedSampler.

    splits: whether it certainly gives each rank other samples.
    same_part: whether the program writes a constant for the rank, so that all ranks get one part.
    over_all: whether it certainly splits over all ranks.
    """

    id: str
    splits: bool = False
    same_part: bool = False
    over_all: bool = False


@dataclass(eq=False, repr=False)
class GeneratorValue(Value):
    """A `torch.Generator`; `seed` is the seed that `manual_seed` gave it.

    per_rank: whether this seed is certainly another one on each rank.
    loop_depth: the number of loops around the call of `manual_seed`.
    """

    seed: Value | None = None
    per_rank: bool = False
    loop_depth: int = 0


@dataclass(eq=False, repr=False)
class LoaderValue(Value):
    """A torch DataLoader.

    sampler: its DistributedSampler; None if it has none or it is unknown.
    shuffle: whether it shuffles; None if its order is unknown.
    own_parts: whether an object of the program gives each rank other data.
    over_all: whether it certainly gives no two of all ranks the same.
    position: the position in a mesh by which it does, if ranks at one position get the same.
    only_on: the ranks that have it, if the others have None or an empty list instead.
    collate: what makes a batch of samples, if it is given.
    generator: the generator that it shuffles with; None for that of the process.
    order: a sampler of the program, which gives the indices of each pass.
    padded: the padded elements of a batch, with the dimension of their length.
    """

    id: str
    sampler: SamplerValue | None = None
    dataset: Value | None = None
    shuffle: bool | None = None
    collate: Value | None = None
    generator: GeneratorValue | None = None
    own_parts: bool = False
    over_all: bool = False
    position: MeshPosition | None = None
    only_on: RankSide | None = None
    order: Value | None = None
    padded: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Batches(Value):
    """The iterable of a loop over a DataLoader: `enumerate(loader)` and similar calls.

    begun: whether a pass over the loader began with it (`iter(loader)`). element: what one turn of
    the loop gets; None if unknown.
    """

    loader: LoaderValue
    begun: bool = False
    element: Value | None = None


LOCAL_PART = "local parameter"  # the source of `parameter.to_local()`


@dataclass(eq=False, repr=False)
class TensorValue(Value):
    """A tensor that a model computed: an output, a loss, a gradient norm.

    summed: whether an `all_reduce` summed it over all ranks, in place.
    averaged: whether it was then divided by the number of ranks.
    divided_by: what it was divided by last, see `BackwardRun`.
    scaled: whether it may have been multiplied by the number of ranks.
    times_ranks: whether it certainly was, and nothing may have undone that.
    by_own_number: whether it was divided by a number that certainly differs between ranks.
    rank_local: set if it certainly derives from data that only this rank has.
    blended: whether unknown values may have been added to it.
    on_cpu: whether it is certainly on the CPU.
    dimensionless: whether it certainly has no dimensions.
    number: whether it is certainly the number of a tensor with one element, and no tensor.
    few_elements: whether it is a tensor of a few elements that the program made, such as a count.
    items: what a forward has returned, if this is its output and stands for a tuple of tensors.
    """

    source: str = ""  # "output", "norm", ...
    modules: tuple[ModuleValue, ...] = ()
    blended: bool = field(default=False, kw_only=True)
    on_cpu: bool = field(default=False, kw_only=True)
    dimensionless: bool = field(default=False, kw_only=True)
    number: bool = field(default=False, kw_only=True)
    items: tuple[Value, ...] = field(default=(), kw_only=True, repr=False)
    few_elements: bool = field(default=False, kw_only=True)
    summed: bool = False
    averaged: bool = False
    divided_by: str = ""
    scaled: bool = False
    times_ranks: bool = field(default=False, kw_only=True)
    by_own_number: bool = field(default=False, kw_only=True)
    rank_local: RankLocal | None = field(default=None, repr=False)


@dataclass(eq=False, repr=False)
class ShardTensor(TensorValue):
    """A parameter or gradient of `modules`, or the result of an element-wise operation on one.

    must_be_dtensor: whether it is certainly a sharded DTensor.
    appears_sharded: whether it is one if no code out of sight gathers it, see `appears_sharded()`.
    reduction: the reduction over all of its elements ("norm", "sum", ...); each rank then holds the
        result for its own shard.
    moved: whether it may be on another device than the parameter.
    own: whether it belongs to a parameter that the modules have themselves, and no part of theirs.
    """

    must_be_dtensor: bool = False
    reduction: str = ""
    moved: bool = False
    own: bool = False
    appears_sharded: bool = field(default=False, kw_only=True)


@dataclass(eq=False, repr=False)
class LocalGradient(TensorValue):
    """The local tensor of a gradient that is certainly sharded, or a view of it."""


@dataclass(eq=False, repr=False)
class RankValue(Value):
    """The number of this rank. scope: "global", "local" (in its node) or "group".

    argument: the call of `add_argument` if it is the command-line argument of the old launcher.
    """

    scope: str = "global"
    argument: NodeSite | None = None


@dataclass(eq=False, repr=False)
class MeshPosition(Unknown):
    """The position of this rank in one dimension of a mesh.

    mesh: the name of the whole mesh in the trace. dimension: the name of the dimension.
    """

    mesh: str = ""
    dimension: str = ""


@dataclass(eq=False, repr=False)
class MeshSize(Unknown):
    """The number of ranks in a whole mesh."""


@dataclass(eq=False, repr=False)
class RankTest(Value):
    """A boolean that depends on the rank, with the ranks on which it is true and false.

    each_node: whether it is a test of the local rank: true, or false, on one rank of each machine.
    one_is: its outcome on the one rank of each machine, if it is such a test.
    number: the rank that it tells from the others; None if unknown.
    """

    true_on: Ranks
    false_on: Ranks
    each_node: bool = False
    number: int | None = None
    one_is: bool = True

    def negate(self) -> RankTest:
        sides = self.false_on, self.true_on
        return replace(self, true_on=sides[0], false_on=sides[1], one_is=not self.one_is)


@dataclass(frozen=True)
class RankSide:
    """The ranks on which a test of the rank has a certain outcome."""

    test: RankTest
    holds: bool

    def as_test(self) -> RankTest:
        """The test whether a rank is one of these."""
        return self.test if self.holds else self.test.negate()


@dataclass(eq=False, repr=False)
class RankChoice(Unknown):
    """One of two values, by a test of the rank: `one` where it holds, else `two`.

    agreed: whether all ranks may have the same value since then.
    """

    test: RankTest | None = None
    one: Value | None = None
    two: Value | None = None
    agreed: bool = False

    def on_ranks(self, ranks: Ranks) -> Value:
        """The value on certain ranks."""
        if self.test is not None and self.test.true_on is not self.test.false_on:
            if ranks is self.test.true_on:
                return self.one or self
            if ranks is self.test.false_on:
                return self.two or self
        return self


@dataclass(eq=False, repr=False)
class PossibleLists(Unknown):
    """One of several lists or dicts: see `possible_lists`.

    tests: the expressions that choose. outcomes: for each candidate, the result of each test where
    it is chosen, None if any will do; empty if that is not known.
    """

    candidates: tuple[Value, ...] = ()
    tests: tuple[cst.CSTNode, ...] = ()
    outcomes: tuple[tuple[bool | None, ...], ...] = ()


@dataclass(eq=False)
class Gather:
    """One collection of the rows of all ranks, see `gathered_rows`.

    holder: the list or tensor that holds the rows in the order of the ranks.
    cuts: whether the rows lose gradients that they carried.
    restored: whether the program may have put rows with gradients among them.
    """

    event: Collective
    holder: Value
    cuts: bool
    restored: bool = False


@dataclass(frozen=True, eq=False)
class Rows:
    """What a value has of gathered rows.

    gathers: where they come from; one, if it is `ordered` or has `scores`.
    ordered: whether it holds all of them in the order of the ranks.
    scores: whether it has a row for each row of this rank, and a column for each of the gathered
        ones.
    """

    gathers: tuple[Gather, ...]
    ordered: bool = False
    scores: bool = False


@dataclass(frozen=True)
class Columns:
    """Which columns a rank has of an output.

    parallel: the event of the tensor parallelism. as_dtensor: whether the output is a DTensor, of
    which `to_local()` has the columns. reshaped: whether the last dimension may be another one.
    heads, viewed_at: the code of a setting into which a view has certainly divided the columns, and
    the view.
    """

    parallel: TensorParallel
    as_dtensor: bool = False
    reshaped: bool = False
    heads: str = ""
    viewed_at: NodeSite | None = None
