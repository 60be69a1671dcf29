"""Events and traces: the one vocabulary of rules, interpreter and recorder.

A *trace* is what happened to the models, optimizers and state dicts of one run of a training
program, in order. It has two producers: the abstract interpreter (`fsdplint.program`), which yields
one trace per configuration of the program, and the recorder (`fsdplint.shim`), which writes down
what really happened. A rule reads a trace and does not know which of the two made it.

Nothing here imports torch or libcst.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

if TYPE_CHECKING:
    from fsdplint.target import Target


@dataclass(frozen=True, order=True)
class Location:
    """A span of source text: lines and columns count from 1, the end column is exclusive."""

    path: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0


class Site(Protocol):
    """Where in the user's code something stands; its location is worked out when asked for."""

    @property
    def path(self) -> str: ...

    def location(self) -> Location: ...


@dataclass(frozen=True)
class FixedSite:
    """A site whose location is known from the start (the recorder's, and findings about a file)."""

    at: Location

    @property
    def path(self) -> str:
        return self.at.path

    def location(self) -> Location:
        return self.at


class Ranks(Enum):
    """Which ranks an event happens on."""

    ALL = "all ranks"
    ONE = "one rank"
    OTHERS = "all ranks but one"
    SOME = "some ranks"

    @property
    def partial(self) -> bool:
        """Whether some rank does not take part."""
        return self is not Ranks.ALL


class GuardKind(Enum):
    RANK = "rank"  # a test of the rank
    CONFIG = "config"  # decided once for a whole run, e.g. `args.fsdp`
    VARYING = "varying"  # differs within a run, e.g. `step % 10 == 0`


@dataclass(frozen=True)
class Guard:
    """A condition that an event stands under. `holds` says whether its text was true or false."""

    kind: GuardKind
    text: str
    holds: bool
    site: Site | None = field(default=None, compare=False)
    ranks: Ranks = Ranks.ALL

    def __str__(self) -> str:
        return f"`{self.text}` is {'true' if self.holds else 'false'}"


class Sharding(Enum):
    """Who shards a module's parameters."""

    FSDP1 = "fsdp1"
    FSDP2 = "fsdp2"


class GradMode(Enum):
    """What autograd records of a call."""

    ON = "grad"
    OFF = "no_grad"
    INFERENCE = "inference_mode"


class Layout(Enum):
    """What a state dict holds of each tensor."""

    FULL = "full"  # whole tensors (possibly on rank 0 only)
    SHARDED = "sharded"  # DTensor or ShardedTensor: 1/N of the data on each rank
    LOCAL = "local"  # FSDP1's flat local shards
    PLAIN = "plain"  # of a module or optimizer that is not sharded
    UNKNOWN = "unknown"


@dataclass
class Module:
    """One nn.Module object of the program (statically: one that may stand for several alike).

    Attributes:
        id: unique in its trace.
        class_name: the class as the user reads it, e.g. "Net".
        qualified_class: dotted name of a library class ("torch.nn.modules.linear.Linear" is given
            as its public name "torch.nn.Linear"), or None for a class of the user's.
        children: submodules by attribute name ("*" for the alike elements of a container).
        children_known: False where the class's code could not be followed: then there may be more.
        repeated: whether this object stands for several alike (an element of a ModuleList).
        own_parameters: whether it registers parameters itself (None: unknown).
        frozen: its own parameters have requires_grad switched off, or may have.
        container: ModuleList, ModuleDict: no forward of its own.
        wrapper: "fsdp1", "ddp", "compile" or "" for a module that wraps another (`inner`).
        inner: the wrapped module's id.
        escaped: it was passed to code that could not be followed, so that anything may have
            happened to it; a rule about something *missing* stays silent about such a module.
    """

    id: str
    class_name: str
    qualified_class: str | None = None
    children: dict[str, str] = field(default_factory=dict)
    children_known: bool = True
    repeated: bool = False
    own_parameters: bool | None = None
    frozen: bool = False
    container: bool = False
    wrapper: str = ""
    inner: str | None = None
    escaped: bool = False


@dataclass(kw_only=True)
class Event:
    """One thing that happened.

    Attributes:
        site: the user's code that caused it (a call, usually).
        ranks: the ranks on which it happens.
        guards: the conditions that it stands under, outermost first (static traces only).
        in_loop: whether it stands in a loop of the program (for `for step in ...`, not for a loop
            over modules).
        collective: whether every rank has to take part in it.
        stack: the calls of the user's own functions that led to it, outermost first.
        took_part: the ranks that did it (recorded traces only).
        index: its position in the trace; set by `Trace.add`.
    """

    kind: ClassVar[str] = "event"

    site: Site
    ranks: Ranks = Ranks.ALL
    guards: tuple[Guard, ...] = ()
    in_loop: bool = False
    collective: bool = False
    stack: tuple[Site, ...] = ()
    took_part: tuple[int, ...] = ()
    index: int = -1


@dataclass(kw_only=True)
class ProcessGroupInit(Event):
    kind: ClassVar[str] = "process-group-init"
    backend: str | None = None


@dataclass(kw_only=True)
class ProcessGroupDestroyed(Event):
    kind: ClassVar[str] = "process-group-destroyed"


@dataclass(kw_only=True)
class RunElsewhere(Event):
    """Code begins or ends that runs in processes of its own, or when somebody unseen calls it
    (static traces only)."""

    kind: ClassVar[str] = "run-elsewhere"


@dataclass(kw_only=True)
class LauncherArgumentUsed(Event):
    """A command-line argument is read as this process's local rank and has its default.

    argument: "--local_rank". use: where it is read. overwritten: the program put another value in
        its place later on.
    """

    kind: ClassVar[str] = "launcher-argument-used"
    argument: str
    use: Site | None = None
    overwritten: bool = False


@dataclass(kw_only=True)
class DeviceSet(Event):
    """torch.cuda.set_device and its kin."""

    kind: ClassVar[str] = "device-set"
    device: str | None = None


@dataclass(kw_only=True)
class MeshBuilt(Event):
    """shape and dim_names hold None and "?" for what is not known."""

    kind: ClassVar[str] = "mesh-built"
    mesh: str = ""
    device_type: str | None = None
    shape: tuple[int | None, ...] = ()
    dim_names: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Seeded(Event):
    """torch's random generator, which initial weights come from, was seeded.

    per_rank: whether the seed differs between ranks; None where that can't be told.
    """

    kind: ClassVar[str] = "seeded"
    per_rank: bool | None = None


@dataclass(kw_only=True)
class WeightsSet(Event):
    """Values were put into the parameters of modules other than by random initialisation: sent by
    another rank, copied or filled in (static traces only). No modules: not known of which."""

    kind: ClassVar[str] = "weights-set"
    modules: tuple[str, ...] = ()


@dataclass(kw_only=True)
class ModuleBuilt(Event):
    kind: ClassVar[str] = "module-built"
    module: str
    on_meta: bool = False


@dataclass(kw_only=True)
class ModuleMoved(Event):
    """`.to`, `.cuda`, `.to_empty`, `.half`, ...; `method` names which.

    untouched: the buffers made by `to_empty` that nothing had written to when the first forward
        had ended (recorded traces only).
    """

    kind: ClassVar[str] = "module-moved"
    module: str
    method: str
    device: str | None = None
    dtype: str | None = None
    untouched: tuple[str, ...] = ()


@dataclass(kw_only=True)
class ModuleAttached(Event):
    """A submodule was put into a module that is sharded by now, itself or with its parent.

    module: what it was put into.
    new: the modules with parameters of their own that come with it and were in no sharded module.
    """

    kind: ClassVar[str] = "module-attached"
    module: str
    new: tuple[str, ...] = ()


@dataclass(kw_only=True)
class ModuleCopied(Event):
    """copy.deepcopy of a module, or a copy that a library makes (AveragedModel)."""

    kind: ClassVar[str] = "module-copied"
    module: str
    copy: str = ""
    api: str = "copy.deepcopy"


@dataclass(kw_only=True)
class Wrapped(Event):
    """FSDP1: `FullyShardedDataParallel(inner, ...)` made `module`.

    options: the constructor's arguments by name, as far as they are constants or dotted names.
    alike: whether all ranks had the same values in the parameters that were still whole; None where
        that is not known.
    units: the modules in `inner` that its policy wraps on their own (a recorded trace has events of
        their own for them too); None where the policy is not known.
    mixes: whether parameters with and without gradients certainly share a unit.
    mesh: the mesh that it was given, see `MeshBuilt`; None where there is none or it is not known.
    """

    kind: ClassVar[str] = "module-wrapped"
    module: str
    inner: str
    options: Mapping[str, object] = field(default_factory=dict)
    alike: bool | None = None
    units: tuple[str, ...] | None = ()
    mixes: bool = False
    mesh: str | None = None


@dataclass(kw_only=True)
class Replicated(Event):
    """`DistributedDataParallel(inner, ...)`; options as for `Wrapped`."""

    kind: ClassVar[str] = "module-replicated"
    inner: str
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(kw_only=True)
class Sharded(Event):
    """FSDP2: `fully_shard(module, ...)`; `group` holds every module of the list form.

    positional: what was given by position after the module, which `fully_shard` does not take.
    alike: as for `Wrapped`.
    mesh: the mesh that was given, where a `MeshBuilt` made it as it is; else "".
    """

    kind: ClassVar[str] = "module-sharded"
    module: str
    group: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    positional: tuple[object, ...] = ()
    alike: bool | None = None
    mesh: str = ""


@dataclass(kw_only=True)
class ParametersTied(Event):
    """`module.<name> = other.<some parameter>`: two modules share a parameter from here on.

    other: None where the module, which had shared one, gets another parameter in its place.
    """

    kind: ClassVar[str] = "parameters-tied"
    module: str
    other: str | None = None
    name: str = "weight"


@dataclass(kw_only=True)
class Checkpointed(Event):
    """Activation checkpointing was applied to a module (or to its children)."""

    kind: ClassVar[str] = "activation-checkpointed"
    module: str


@dataclass(kw_only=True)
class Compiled(Event):
    kind: ClassVar[str] = "module-compiled"
    module: str
    result: str = ""


@dataclass(kw_only=True)
class MethodRegistered(Event):
    """`register_fsdp_forward_method(module, method)`."""

    kind: ClassVar[str] = "method-registered"
    module: str
    method: str


@dataclass(kw_only=True)
class Gathered(Event):
    """`module.unshard()` (gathered=True) or `module.reshard()` (gathered=False)."""

    kind: ClassVar[str] = "parameters-gathered"
    module: str
    gathered: bool


@dataclass(kw_only=True)
class ParameterMarked(Event):
    """An attribute was set on parameters of modules, or a hook registered on them.

    A recording has attributes at the sharding that replaces the parameters.

    name: the attribute; for a hook the method that registers it, and then `hook` is true.
    """

    kind: ClassVar[str] = "parameter-marked"
    modules: tuple[str, ...]
    name: str
    hook: bool = False


@dataclass(kw_only=True)
class ParameterMarkRead(Event):
    """An attribute that parameters of these modules were once given was asked for."""

    kind: ClassVar[str] = "parameter-mark-read"
    modules: tuple[str, ...]
    name: str


@dataclass(kw_only=True)
class RowEdited(Event):
    """`parameter[0].zero_()`: an in-place method on what an index of the first dimension gives.

    api: the method.
    """

    kind: ClassVar[str] = "row-edited"
    module: str
    api: str


@dataclass(kw_only=True)
class OptimizerBuilt(Event):
    """An optimizer over the parameters of `modules` (those whose parameters were passed).

    complete: whether all of its parameters are known to come from `modules`.
    chosen_by: what the program asked of parameters to put them into groups (static traces only):
        "dimensions" (`p.ndim`), "leaf name" (`"bias" in name`).
    empty_groups: how many of its groups have no parameter (recorded traces only).
    stale: modules of which it got parameters that sharding had replaced by then.
    """

    kind: ClassVar[str] = "optimizer-built"
    optimizer: str
    class_name: str = ""
    modules: tuple[str, ...] = ()
    complete: bool = True
    chosen_by: tuple[str, ...] = ()
    empty_groups: int = 0
    stale: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Called(Event):
    """A module was entered.

    via: "call" for `module(x)`, "forward" for `module.forward(x)`, else the method's name.
    inside: index of the innermost `Called` event of a module that this one runs within, or None.
    grad: autograd's mode, None where it is not known.
    communicated: whether this call itself, and none inside it, ran a collective of all ranks
        (recorded traces only).
    summoned: whether it runs under FSDP1's `summon_full_params`.
    view_changed: whether it returned a view, the program changed that in place, and the backward
        then found the module not gathered (recorded traces only).
    on_meta: whether parameters that `fully_shard` has taken certainly are on the meta device, in a
        call that is in no other one.
    """

    kind: ClassVar[str] = "module-called"
    module: str
    via: str = "call"
    inside: int | None = None
    grad: GradMode | None = None
    communicated: bool = False
    summoned: bool = False
    view_changed: bool = False
    on_meta: bool = False


@dataclass(kw_only=True)
class BackwardRun(Event):
    """averaged: of a loss that an all_reduce summed up in place and that was then divided by the
    number of ranks, which the gradients take part in.
    """

    kind: ClassVar[str] = "backward"
    averaged: bool = False


@dataclass(kw_only=True)
class SyncSwitched(Event):
    """Gradient synchronisation, or when parameters are sharded again, switched.

    api: "no_sync" (the context manager) or "set_requires_gradient_sync", ...
    enabled: None where the value is not known.
    """

    kind: ClassVar[str] = "gradient-sync-switched"
    module: str
    api: str
    enabled: bool | None = None


@dataclass(kw_only=True)
class Clipped(Event):
    """Gradients clipped. api: "method" (`module.clip_grad_norm_`) or "utils" (torch.nn.utils).

    by_norm: False for `clip_grad_value_`, which looks at each element by itself.
    max_norm: the bound as far as it is a constant, the dotted name of one, or "?".
    stale: modules of which it got parameters that sharding had replaced by then.
    """

    kind: ClassVar[str] = "gradients-clipped"
    api: str
    modules: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    by_norm: bool = True
    max_norm: object = "?"


@dataclass(kw_only=True)
class OptimizerStepped(Event):
    kind: ClassVar[str] = "optimizer-stepped"
    optimizer: str


@dataclass(kw_only=True)
class ScalerBuilt(Event):
    """A gradient scaler. class_name: "GradScaler", "ShardedGradScaler" or that of a subclass.

    enabled: None where the value is not known.
    """

    kind: ClassVar[str] = "scaler-built"
    scaler: str
    class_name: str = "GradScaler"
    enabled: bool | None = True


@dataclass(kw_only=True)
class ScalerStepped(Event):
    """`scaler.step(optimizer)`, whether the optimizer then steps or not."""

    kind: ClassVar[str] = "scaler-stepped"
    scaler: str
    optimizer: str


@dataclass(kw_only=True)
class StateTaken(Event):
    """A state dict was made. `of` is the module or optimizer, `api` the dotted call.

    rank0_only: rank 0 got the content and the other ranks an empty dict (full_state_dict with
        cpu_offload; FSDP1's rank0_only).
    """

    kind: ClassVar[str] = "state-taken"
    state: str
    of: str
    layout: Layout = Layout.UNKNOWN
    api: str = "state_dict"
    rank0_only: bool = False


@dataclass(kw_only=True)
class StateLoaded(Event):
    """A state dict went into a module or optimizer (`into`); layout is that of the state."""

    kind: ClassVar[str] = "state-loaded"
    into: str
    state: str | None = None
    layout: Layout = Layout.UNKNOWN
    api: str = "load_state_dict"


@dataclass(kw_only=True)
class TensorsMixed(Event):
    """One operation got plain tensors and sharded ones, which it refuses with an error.

    plain, sharded: the modules whose parameters they are, or are copies of (static traces only).
    """

    kind: ClassVar[str] = "tensors-mixed"
    api: str
    plain: tuple[str, ...] = ()
    sharded: tuple[str, ...] = ()


@dataclass(kw_only=True)
class RawRead(Event):
    """A tensor's memory was asked for by what knows nothing of DTensors, such as `numpy()`.

    layout: that of the tensor; UNKNOWN where it may be whole.
    of: the module whose tensor it is, where that is known.
    """

    kind: ClassVar[str] = "raw-read"
    api: str
    layout: Layout = Layout.UNKNOWN
    of: str | None = None


@dataclass(kw_only=True)
class Saved(Event):
    """Something was written to disk; `states` are the state dicts and `modules` the modules in it.

    per_rank: the path differs from rank to rank, or it cannot be told that it does not.
    """

    kind: ClassVar[str] = "saved"
    api: str
    states: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    layouts: tuple[Layout, ...] = ()
    per_rank: bool = False


@dataclass(kw_only=True)
class Loaded(Event):
    """Something was read from disk (torch.load, dcp.load); `per_rank` as for `Saved`."""

    kind: ClassVar[str] = "loaded"
    api: str
    state: str | None = None
    per_rank: bool = False


@dataclass(kw_only=True)
class Collective(Event):
    """A collective that is none of the above: dist.barrier, dist.all_reduce, full_tensor, ..."""

    kind: ClassVar[str] = "collective"
    api: str


@dataclass(kw_only=True)
class PartialRead(Event):
    """A Python number was made of a reduction over a sharded parameter or gradient.

    api: "item", "float", "int" or "bool".
    reduction: what was taken: "norm", "sum", ...
    partial: False where it is not known that the tensor is a sharded one (static traces only).
    """

    kind: ClassVar[str] = "partial-read"
    api: str
    reduction: str = ""
    partial: bool = True


@dataclass(kw_only=True)
class PrecisionChosen(Event):
    """`MixedPrecisionPolicy(...)` of FSDP2.

    param_dtype, reduce_dtype: as "torch.bfloat16"; None where not given, "?" where not known.
    """

    kind: ClassVar[str] = "precision-chosen"
    param_dtype: str | None = None
    reduce_dtype: str | None = None


@dataclass(kw_only=True)
class MixedParameters(Event):
    """One operation was asked to work on sharded parameters and plain tensors together.

    api: "clip_grad_norm_", or "foreach" or "fused" for an optimizer (one group of it).
    """

    kind: ClassVar[str] = "mixed-parameters"
    api: str


@dataclass(kw_only=True)
class JoinUsed(Event):
    """`torch.distributed.algorithms.Join([module, ...])`."""

    kind: ClassVar[str] = "join-used"
    modules: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Fsdp1Used(Event):
    """A use of FSDP1's API other than its constructor, e.g. "FSDP.state_dict_type"."""

    kind: ClassVar[str] = "fsdp1-used"
    api: str
    module: str | None = None


@dataclass(kw_only=True)
class Escaped(Event):
    """A module was passed to code that could not be followed (static traces only)."""

    kind: ClassVar[str] = "module-escaped"
    module: str


@dataclass(kw_only=True)
class SamplerBuilt(Event):
    """A `DistributedSampler`, which gives each rank its part of a dataset.

    shuffle: whether it shuffles; None where that is not known.
    """

    kind: ClassVar[str] = "sampler-built"
    sampler: str
    shuffle: bool | None = None


@dataclass(kw_only=True)
class EpochSet(Event):
    """`sampler.set_epoch(epoch)`; `sampler` is None where it is not known which one it was."""

    kind: ClassVar[str] = "sampler-epoch-set"
    sampler: str | None = None


@dataclass(kw_only=True)
class LoaderBuilt(Event):
    """A torch DataLoader; `sampler` is the DistributedSampler that it takes its order from."""

    kind: ClassVar[str] = "loader-built"
    loader: str
    sampler: str | None = None


@dataclass(kw_only=True)
class LoaderIterated(Event):
    """A pass over a DataLoader begins.

    alike: whether every rank gets the same batches in it; None where that is not known.
    """

    kind: ClassVar[str] = "loader-iterated"
    loader: str
    sampler: str | None = None
    alike: bool | None = None


@dataclass(kw_only=True)
class LoaderLeft(Event):
    """A pass over a DataLoader ends, at its end or before."""

    kind: ClassVar[str] = "loader-left"
    loader: str


@dataclass(kw_only=True)
class PickedByRank(Event):
    """Something is indexed by the rank, or handed with it to code that can't be followed: perhaps
    each rank takes its part of a batch (static traces only)."""

    kind: ClassVar[str] = "picked-by-rank"


@dataclass(kw_only=True)
class DataEscaped(Event):
    """A sampler or loader was passed to code that could not be followed (static traces only)."""

    kind: ClassVar[str] = "data-escaped"
    data: str


@dataclass(kw_only=True)
class Fsdp2Used(Event):
    """Something of FSDP2 was used that not every torch with FSDP2 has.

    api: a method of FSDPModule ("reset_iter_state"), or an argument ("fully_shard.ignored_params").
    optional: as of an import: in a `try`, or under a test of torch's version or of what it has.
    """

    kind: ClassVar[str] = "fsdp2-used"
    api: str
    module: str
    optional: bool = False


@dataclass(kw_only=True)
class Imported(Event):
    """Something of torch's FSDP was imported: `from package import names`, or `import package`.

    optional: the program does without it where it is not there: in a `try` that catches its
        failure, or under a test of torch's version.
    """

    kind: ClassVar[str] = "imported"
    package: str
    names: tuple[str, ...] = ()
    optional: bool = False


# What only a recorded trace has -------------------------------------------------------------------


@dataclass(kw_only=True)
class ParametersMissed(Event):
    """Parameters of a sharded model get gradients, are in no optimizer, and did not change.

    Noticed at the second step of an optimizer that holds other parameters of the model.

    module: the outermost sharded module.
    parameters: their names in it; `trained` is how many of its others are in an optimizer.
    """

    kind: ClassVar[str] = "parameters-missed"
    module: str
    optimizer: str
    parameters: tuple[str, ...]
    trained: int


@dataclass(kw_only=True)
class Refused(Event):
    """torch raised an error about parameters that it cannot shard, or not together.

    reason: "scalar", "strides" (a parameter that is not contiguous), "dtypes" (a group with
        trainable parameters of several types) or "batchnorm" (its running statistics have another
        type than its parameters); the last two are raised by a forward.
    parameters: their names in `module`, each with what is the matter with it (its type).
    """

    kind: ClassVar[str] = "refused"
    module: str
    reason: str
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(kw_only=True)
class CopiesSeen(Event):
    """What the ranks hold of parameters that should be alike, before an optimizer's step.

    module: the outermost sharded module. look: the number of the step, from 1.
    each: by rank and name, what part it is and a number for its values. The part is "ignored" for a
        parameter that FSDP2 leaves alone, and else names the shard of which there are replicas.
    exchanged: whether the program has run an all-to-all.
    """

    kind: ClassVar[str] = "copies-seen"
    module: str
    optimizer: str
    look: int
    exchanged: bool = False
    each: Mapping[int, Mapping[str, tuple[str, int]]] = field(default_factory=dict)


@dataclass(kw_only=True)
class BatchesEnded(Event):
    """A loop over a DataLoader ended after so many batches, on the ranks that took part."""

    kind: ClassVar[str] = "batches-ended"
    batches: int


E = TypeVar("E", bound=Event)


class Trace:
    """The events of one run, in order, with the modules that they speak of."""

    def __init__(self, *, producer: str, complete: bool = True) -> None:
        """producer: "static" or "runtime". complete: False where parts could not be followed.

        Its `target` is the torch that the program is for, where that is known.
        """
        self.producer = producer
        self.complete = complete
        self.events: list[Event] = []
        self.modules: dict[str, Module] = {}
        self.target: Target | None = None

        # How the program ended on each rank: "ok", "raised", "exit", "stopped" (recorded traces).
        self.ends: dict[int, str] = {}

    def add(self, event: E) -> E:
        event.index = len(self.events)
        self.events.append(event)
        return event

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def of(self, *kinds: type[E]) -> Iterator[E]:
        """The events of these classes, in order."""
        for event in self.events:
            if isinstance(event, kinds):
                yield event

    def before(self, event: Event, *kinds: type[E]) -> Iterator[E]:
        """The events of these classes before `event`, in order."""
        for other in self.events[: event.index]:
            if isinstance(other, kinds):
                yield other

    def after(self, event: Event, *kinds: type[E]) -> Iterator[E]:
        """The events of these classes after `event`, in order."""
        for other in self.events[event.index + 1 :]:
            if isinstance(other, kinds):
                yield other

    # The module tree ------------------------------------------------------------------------

    def module(self, module: str) -> Module:
        return self.modules[module]

    def submodules(self, module: str) -> list[str]:
        """The module and everything under it (through wrappers too), parents first."""
        seen: dict[str, None] = {}
        stack = [module]
        while stack:
            current = stack.pop()
            if current in seen or current not in self.modules:
                continue
            seen[current] = None
            info = self.modules[current]
            below = list(info.children.values())
            if info.inner is not None:
                below.append(info.inner)
            stack.extend(reversed(below))
        return list(seen)

    def contains(self, ancestor: str, module: str) -> bool:
        """Whether `module` is `ancestor` or lies under it."""
        return module in self.submodules(ancestor)

    def ancestors(self, module: str) -> list[str]:
        """The modules that contain `module`, itself not among them."""
        return [m for m in self.modules if m != module and self.contains(m, module)]

    def related(self, one: str, other: str) -> bool:
        """Whether one of the two contains the other: they share parameters."""
        return self.contains(one, other) or self.contains(other, one)

    def unwrapped(self, module: str) -> str:
        """The module inside all wrappers."""
        seen = set()
        while module not in seen:
            seen.add(module)
            inner = self.modules[module].inner
            if inner is None:
                return module
            module = inner
        return module

    def unwrapped_to(self, module: str, wanted: Container[str]) -> str | None:
        """The module or the first inside its wrappers that is among `wanted`, or None."""
        current: str | None = module
        seen: set[str] = set()
        while current is not None and current not in seen:
            if current in wanted:
                return current
            seen.add(current)
            info = self.modules.get(current)
            current = info.inner if info is not None else None
        return None

    def family_escaped(self, module: str) -> bool:
        """Whether the module, or one that it is part of or consists of, went out of sight."""
        if not self.complete:
            return True
        family = {*self.submodules(module), *self.ancestors(module)}
        return any(self.modules[m].escaped or not self.modules[m].children_known for m in family)

    # Sharding -------------------------------------------------------------------------------

    def shardings(self, before: Event | None = None) -> dict[str, Sharding]:
        """Every module that was itself wrapped or sharded (before an event, if one is given)."""
        end = len(self.events) if before is None else before.index
        result: dict[str, Sharding] = {}
        for event in self.events[:end]:
            if isinstance(event, Wrapped):
                result[event.module] = Sharding.FSDP1
            elif isinstance(event, Sharded):
                for module in event.group or (event.module,):
                    result[module] = Sharding.FSDP2
        return result

    def sharding(self, module: str, before: Event | None = None) -> Sharding | None:
        """How `module` itself was sharded: None where it was not (its parents may be).

        A wrapper that is not FSDP1's own (DDP, torch.compile) answers for what it wraps.
        """
        known = self.shardings(before)
        if module in known:
            return known[module]
        info = self.modules.get(module)
        if info is not None and info.inner is not None:
            return self.sharding(info.inner, before)
        return None

    def sharded_within(self, module: str, before: Event | None = None) -> Sharding | None:
        """How the module or any of its submodules was sharded: None where none of them was."""
        known = self.shardings(before)
        for part in self.submodules(module):
            if part in known:
                return known[part]
        return None


def first(items: Iterable[E]) -> E | None:
    """The first of the items, or None."""
    return next(iter(items), None)
