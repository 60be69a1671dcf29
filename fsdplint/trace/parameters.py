"""Events of parameters: set, tied, frozen, marked, edited."""

from __future__ import annotations

from typing import ClassVar

from fsdplint.trace.base import Event, event
from fsdplint.trace.fields import (
    distinct,
    reference,
    unrecorded,
)
from fsdplint.trace.training import KnownParameter


@event
class WeightsSet(Event):
    """Parameters got values other than by random initialization: broadcast, copied or filled.

    `modules` is empty if they are unknown (static traces only).
    same_values: whether they are the old values, on another device or in another dtype.
    in_place: whether the code certainly changes the parameters themselves, and no copies of them.
    extent: which parameters it certainly sets: "own" for one of `modules` themselves, "all" for all
        of theirs, also those of submodules; "" if that is not known.
    with_sharded: whether the operation certainly gets a sharded parameter as well.
    rebound: whether the parameters get another tensor instead of other values: `p.data = tensor`
        (static traces only).
    of_shard: whether it certainly changes the part of a parameter of `fully_shard` that this rank
        holds.
    summoned: whether it runs under FSDP1's `summon_full_params`.

    The recorder writes changes in place of parameters that `fully_shard` has sharded, and of those
    that FSDP1 keeps gathered after a forward. For all others, it compares the values at the
    sharding.
    """

    kind: ClassVar[str] = "weights-set"
    modules: tuple[str, ...] = reference(default=())
    same_values: bool = unrecorded("only changes are recorded", default=False)
    in_place: bool = False
    extent: str = ""
    with_sharded: bool = False
    rebound: bool = unrecorded("only changes of values are recorded", default=False)
    of_shard: bool = False
    summoned: bool = unrecorded("the recorder does not write these changes", default=False)


@event
class WeightsDrawn(Event):
    """Parameters got new random values in place: `nn.init.normal_(p)`, `p.data.uniform_()`.

    A static trace has these events from the first on that some ranks alone make, and the recorder
    those of parameters that `fully_shard` has sharded.

    modules, extent: as for `WeightsSet`.
    """

    kind: ClassVar[str] = "weights-drawn"
    modules: tuple[str, ...] = reference(default=())
    extent: str = ""


@event
class ShardCopySet(Event):
    """Copies of parameters got other values, of which this rank certainly has its parts alone.

    The program changes them in place (`average.lerp_(p, 0.1)`), or computes them anew from
    themselves. The tensors of a sharded state dict count as copies. The recorder writes changes in
    place with a parameter of `fully_shard`, from the second one of a tensor on.

    modules: the modules of the parameters.
    """

    kind: ClassVar[str] = "shard-copy-set"
    modules: tuple[str, ...] = reference(default=())


@event
class WeightsUnrestored(Event):
    """A context manager has set all weights of modules at its begin, and did nothing at its end.

    begun: the number of events at its begin. entered: that at the begin of the block in it.
    """

    kind: ClassVar[str] = "weights-unrestored"
    static_only: ClassVar[str] = "a recorder does not see which code belongs to a context"
    modules: tuple[str, ...] = ()
    begun: int = 0
    entered: int = 0


@event
class ParametersTied(Event):
    """`module.<name> = other.<some parameter>`: two modules share a parameter from here on.

    other: None if the module had shared a parameter and gets another one instead.
    """

    kind: ClassVar[str] = "parameters-tied"
    module: str = reference(distinct=True)
    other: str | None = reference(default=None)
    name: str = "weight"


@event
class ParameterMarked(Event):
    """An attribute was set on parameters of modules, or a hook was registered on them.

    The recorder writes attributes at the sharding that replaces the parameters.

    name: the attribute; for a hook (`hook` is true) the method that registers it.
    removed: whether it was removed before a sharding replaced the parameters; the recorder writes a
        separate event at the removal.
    sharded: whether the parameter certainly is a DTensor then.
    """

    kind: ClassVar[str] = "parameter-marked"
    modules: tuple[str, ...] = reference()
    name: str
    hook: bool = False
    removed: bool = False
    sharded: bool = False


@event
class RequiresGradSet(Event):
    """`requires_grad` was set on parameters of these modules (static traces only).

    unfrozen_parameters: those that were certainly frozen before and get gradients from now on.
    """

    kind: ClassVar[str] = "requires-grad-set"
    static_only: ClassVar[str] = "a recorder sees the parameters at the sharding"
    modules: tuple[str, ...] = reference()
    unfrozen_parameters: frozenset[KnownParameter] = frozenset()


@event
class ParameterMarkRead(Event):
    """An attribute was read that had been set on parameters of these modules."""

    kind: ClassVar[str] = "parameter-mark-read"
    modules: tuple[str, ...] = reference()
    name: str


@event
class RowEdited(Event):
    """`parameter[0].zero_()`: an in-place method on a row (an index of the first dimension).

    api: the method.
    """

    kind: ClassVar[str] = "row-edited"
    module: str = reference(distinct=True)
    api: str = distinct()


@event
class DataReplaced(Event):
    """`parameter.data = values` for a parameter that `fully_shard` sharded (static traces only).

    gradient: whether it is the gradient of a parameter: `parameter.grad.data = values`.
    at_rest: whether it certainly is a DTensor then.
    every: whether a loop certainly does it with all parameters of the modules.
    """

    kind: ClassVar[str] = "data-replaced"
    static_only: ClassVar[str] = "a recorder does not see assignments of attributes"
    modules: tuple[str, ...] = reference()
    gradient: bool = False
    at_rest: bool = False
    every: bool = False


@event
class MixedParameters(Event):
    """One operation got sharded parameters and plain tensors together.

    api: "clip_grad_norm_", or the option of an optimizer (for one group of it): "foreach", "fused",
        or "default" if the call has neither. By default, torch takes foreach on accelerators alone.
    """

    kind: ClassVar[str] = "mixed-parameters"
    api: str = distinct()
