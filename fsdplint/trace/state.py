"""Events of state: state dicts, files, reads of sharded tensors."""

from __future__ import annotations

from typing import ClassVar

from fsdplint.trace.base import Event, Layout, Site, event
from fsdplint.trace.fields import (
    combined,
    definition,
    differs,
    distinct,
    on_any,
    reference,
    unrecorded,
)


@event
class StateTaken(Event):
    """A state dict was made. `of` is the module or optimizer, `api` the dotted call.

    rank0_only: whether the other ranks got an empty dict (full_state_dict with cpu_offload;
        `rank0_only` of FSDP1).
    on_cpu: whether its options certainly put its tensors on the CPU.
    """

    kind: ClassVar[str] = "state-taken"
    state: str = definition()
    of: str = reference(distinct=True)
    layout: Layout = Layout.UNKNOWN
    api: str = distinct(default="state_dict")
    rank0_only: bool = False
    on_cpu: bool = unrecorded("the device of the tensors is not recorded", default=False)


@event
class StateIndexed(Event):
    """The program reads an entry of a state dict that only one rank has (static traces only).

    key: the key, which the program says.
    """

    kind: ClassVar[str] = "state-indexed"
    static_only: ClassVar[str] = "a recorder does not see the entries that are read from a dict"
    state: str = reference(distinct=True)
    key: str = ""


@event
class StateLoaded(Event):
    """A state dict of a layout was loaded into a module or optimizer (`into`).

    full, broadcast: the options `full_state_dict` and `broadcast_from_rank0` of the functions that
        set a state; None for other functions, or if unknown.
    file: the file that the state is a part of (recorded traces only, others have it as `state`).
    assign: whether `load_state_dict` puts the tensors of the state into the module instead of
        copying their values; None for other functions, or if unknown.
    strict: whether `load_state_dict` of a module fails if a key is missing; None for other
        functions, or if unknown.
    of_itself: whether the state certainly has the parameters of `into` themselves, and no copies.
    shares: another module with whose parameters `into` then shares memory, because the state
        certainly has these themselves and `assign` is true.
    one_rank: whether the state of the functions that set a state has entries on one rank, and is
        empty on the others.
    """

    kind: ClassVar[str] = "state-loaded"
    into: str = reference(distinct=True)
    state: str | None = reference(default=None)
    file: str | None = reference(default=None)
    layout: Layout = Layout.UNKNOWN
    api: str = distinct(default="load_state_dict")
    full: bool | None = None
    broadcast: bool | None = None
    assign: bool | None = None
    strict: bool | None = None
    of_itself: bool = False
    shares: str | None = reference(default=None)
    one_rank: bool = combined(differs, default=False)


@event
class StateCallRefused(Event):
    """A function that sets a state certainly raises an error, because of its arguments.

    api: the function. of: the model.
    empty: whether the state of the optimizer is empty; else, `broadcast_from_rank0` is set without
        `full_state_dict`.
    """

    kind: ClassVar[str] = "state-call-refused"
    of: str = reference(distinct=True)
    api: str = distinct()
    empty: bool = False


@event
class HelperStateTaken(Event):
    """The state of a helper of an optimizer was made: a scheduler or a gradient scaler (`of`)."""

    kind: ClassVar[str] = "helper-state-taken"
    state: str = definition()
    of: str = reference(distinct=True)


@event
class HelperStateLoaded(Event):
    """A state was loaded into a helper of an optimizer (`into`), or the program sets it by hand.

    state: the state, or the file that it comes from; None if unknown.
    unchanged: whether no code of the program or of an unknown library can have changed the state
        since the program took it.
    """

    kind: ClassVar[str] = "helper-state-loaded"
    into: str = reference(distinct=True)
    state: str | None = reference(default=None)
    unchanged: bool = unrecorded("a dict does not show what changed it", default=False)


@event
class TensorsMixed(Event):
    """One operation got plain and sharded tensors, which raises an error.

    plain_modules, sharded_modules: the modules of the parameters, or of their copies (static traces
        only).
    """

    kind: ClassVar[str] = "tensors-mixed"
    api: str = distinct()
    plain_modules: tuple[str, ...] = unrecorded("the error does not name them", default=())
    sharded_modules: tuple[str, ...] = unrecorded("the error does not name them", default=())


@event
class AliasAveraged(Event):
    """`average.lerp_(parameter, weight)` where both are certainly the same memory.

    modules: the modules of the parameters.
    """

    kind: ClassVar[str] = "alias-averaged"
    api: str = distinct()
    modules: tuple[str, ...] = reference(default=())


@event
class AverageUpdated(Event):
    """`average.lerp_(parameter, weight)`, or `average.add_(parameter, alpha=weight)`.

    modules: the modules of the parameters. dtype: that of the average.
    fixed: whether the program writes the weight as a number. Else it is what the weight becomes
        after many steps, with the defaults of settings.
    """

    kind: ClassVar[str] = "average-updated"
    static_only: ClassVar[str] = "the weight of an update is an argument of tensors without a name"
    modules: tuple[str, ...] = reference(default=())
    dtype: str = ""
    weight: float = 0.0
    fixed: bool = True


@event
class AverageUnsaved(Event):
    """An object that keeps an average of parameters, and whose state no code saves or sets.

    Its class has `state_dict` and `load_state_dict`. The event is at the end of the trace, at
    the place where the object is made.

    modules: the modules of the parameters.
    """

    kind: ClassVar[str] = "average-unsaved"
    static_only: ClassVar[str] = "a recorder does not see what an object keeps"
    modules: tuple[str, ...] = reference(default=())
    class_name: str = ""


@event
class CopiedToItself(Event):
    """`parameter.copy_(kept)` where both are certainly the same memory.

    modules: the modules of the parameters.
    taken_at: the number of events when the program kept the parameters (static traces only).
    """

    kind: ClassVar[str] = "copied-to-itself"
    modules: tuple[str, ...] = reference(default=())
    taken_at: int = unrecorded("a record does not follow references", default=0)


@event
class ShardComputed(Event):
    """A matrix product or another function of torch got a sharded parameter and a plain tensor.

    Such a function raises an error.

    modules: the modules of the parameters.
    """

    kind: ClassVar[str] = "shard-computed"
    api: str = distinct()
    modules: tuple[str, ...] = unrecorded("the error does not name them", default=())


@event
class ShardReduced(Event):
    """The program called `all_reduce` over all ranks on a sharded gradient.

    local: whether the call got the local tensor of the rank, so that it adds different parts of the
        gradient; otherwise it got the DTensor, which raises an error.
    """

    kind: ClassVar[str] = "shard-reduced"
    local: bool = distinct()


@event
class GradientScaled(Event):
    """The program multiplied or divided a sharded gradient in place.

    differs: whether the number differs between ranks.
    by_total: whether an all_reduce summed the number, by which the gradient was divided.
    by_ranks: whether it was divided by the number of ranks, perhaps times other numbers.
    by_norms: whether the number has the sum of the norms that the ranks have of their parts.
    modules: the modules of the gradient, or a sharded module that contains them.
    read_later: whether the program may read gradients afterwards, before it sets them to zero.
    """

    kind: ClassVar[str] = "gradient-scaled"
    differs: bool = combined(differs, default=False)
    by_total: bool = False
    by_ranks: bool = unrecorded("the number of ranks may be another number", default=False)
    by_norms: bool = unrecorded("what a number was computed of is not recorded", default=False)
    modules: tuple[str, ...] = reference(default=())
    read_later: bool = unrecorded("reads of gradients are not recorded", default=False)


@event
class RawRead(Event):
    """An API without support for DTensors, such as `numpy()`, read the memory of a tensor.

    layout: the layout of the tensor; UNKNOWN if it may be a full tensor.
    of: the module of the tensor, if known.
    """

    kind: ClassVar[str] = "raw-read"
    api: str = distinct()
    layout: Layout = Layout.UNKNOWN
    of: str | None = unrecorded("the tensor may be no parameter", default=None)


@event
class Saved(Event):
    """A file was written; `states` are the state dicts and `modules` the modules in it.

    helper_states: the states of schedulers and gradient scalers in it.
    unread: those of its states that have a constant key that the program reads nowhere; None if
        that is not known (static traces only).
    per_rank: whether the path differs, or may differ, between ranks.
    path: the file, or the code that computes its path; "" if unknown.
    dropped: whether the program drops the result of `async_save`, by which it could wait.
    unawaited: whether the program keeps this result, and nothing has waited for it at the next
        checkpoint or the end of the process group (static traces only).
    own_group: whether a process group is passed that may be another one than the default group.
    one_rank: whether a dict of tensors in it has entries on one rank, and is empty on the others.
    of_position: as for `Collective`.
    own_entries: the keys of values, other than DTensors, that certainly differ between ranks
        (distributed checkpoints only).
    own_values: whether a plain file gets values that certainly differ between ranks.
    """

    kind: ClassVar[str] = "saved"
    api: str = distinct()
    states: tuple[str, ...] = reference(default=())
    modules: tuple[str, ...] = reference(default=())
    helper_states: tuple[str, ...] = reference(default=())
    layouts: tuple[Layout, ...] = ()
    unread: tuple[str, ...] | None = unrecorded("a record has no code", default=None)
    per_rank: bool = combined(differs, source="path", default=False)
    path: str = ""
    dropped: bool = False
    unawaited: bool = unrecorded("a record does not have the waiting", default=False)
    own_group: bool = False
    one_rank: bool = combined(differs, default=False)
    of_position: str = unrecorded("a record has the ranks", default="")
    own_entries: tuple[str, ...] = unrecorded("a record has no values", default=())
    own_values: bool = unrecorded("a record has no values", default=False)


@event
class Loaded(Event):
    """A file was read (torch.load, dcp.load); `per_rank` and `path` as for `Saved`.

    states, optimizers, helper_states: the states, the optimizers, and the states of schedulers and
        gradient scalers in the dict that a distributed checkpoint is loaded into.
    read_later: those of the states that the program may read after the load.
    empty: whether this dict is certainly empty, so that nothing is read.
    perhaps_waited: whether code out of sight may have waited for other ranks since a file was
        written (static traces only).
    result_used: whether the program uses the result of a function that returns None.
    of_position: as for `Collective`.
    """

    kind: ClassVar[str] = "loaded"
    api: str = distinct()
    state: str | None = definition(default=None)
    per_rank: bool = combined(differs, source="path", default=False)
    path: str = ""
    states: tuple[str, ...] = reference(default=())
    optimizers: tuple[str, ...] = reference(default=())
    helper_states: tuple[str, ...] = reference(default=())
    read_later: tuple[str, ...] = reference(default=())
    empty: bool = False
    perhaps_waited: bool = unrecorded("a record has the collectives", default=False)
    result_used: bool = combined(on_any, default=False)
    of_position: str = unrecorded("a record has the ranks", default="")


@event
class EntryNeverSaved(Event):
    """A distributed checkpoint gave an object a state, from which the object would restore an entry
    that it never saves.

    name: the class of the object. key: that of the entry.
    restored_at: the call that would restore it. saved_by: the method that gives the state.
    """

    kind: ClassVar[str] = "entry-never-saved"
    static_only: ClassVar[str] = "a recorder does not see which entries a class asks for"
    name: str = ""
    key: str = ""
    restored_at: Site | None = None
    saved_by: Site | None = None


@event
class CounterDropped(Event):
    """A distributed checkpoint gave an object a state with a counter that the object does not read.

    name: the attribute that the object saves. path: as for `Loaded`.
    in_dict: whether the load has put it into a dict that nothing reads, and `name` is the key. The
        event is then at the load, and follows when a loop begins at the number from before.
    """

    kind: ClassVar[str] = "counter-dropped"
    static_only: ClassVar[str] = "a recorder does not see which attributes a class saves"
    name: str = ""
    path: str = ""
    in_dict: bool = False


@event
class CounterReadEarly(Event):
    """A checkpoint sets an attribute from which the program has computed a number before.

    A loop after this begins at the number. The event follows the load, at the place of the read.

    name: the attribute. number: the variable that a loop begins at.
    """

    kind: ClassVar[str] = "counter-read-early"
    static_only: ClassVar[str] = "a recorder does not follow numbers"
    name: str = ""
    number: str = ""


@event
class PartialRead(Event):
    """A reduction over a sharded parameter or gradient was converted to a Python number.

    api: "item", "float", "int" or "bool".
    reduction: "norm", "sum", ...; CLIPPED for the norm that clipping returns, which torch 2.10
        reduces over all ranks (static traces only).
    partial: False if the tensor may not be sharded (static traces only).
    """

    kind: ClassVar[str] = "partial-read"
    CLIPPED: ClassVar[str] = "clip_grad_norm_"
    api: str = distinct()
    reduction: str = ""
    partial: bool = unrecorded("only partial tensors are recorded", default=True)
