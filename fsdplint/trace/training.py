"""Events of the training step: optimizers, calls, backward, clipping, scalers."""

from __future__ import annotations

from typing import ClassVar

from fsdplint.trace.base import Event, GradMode, event
from fsdplint.trace.fields import (
    combined,
    definition,
    distinct,
    numbered,
    on_any,
    reference,
    unrecorded,
)


@event
class OptimizerBuilt(Event):
    """An optimizer over the parameters of `modules` (those whose parameters were passed).

    complete: whether all of its parameters are known to come from `modules`.
    filtered_by: what the program asked of parameters to put them into groups (static traces only):
        "dimensions" (`p.ndim`), "leaf name" (`"bias" in name`).
    empty_groups: how many of its groups have no parameter (recorded traces only).
    stale: modules of which it got parameters that sharding had replaced by then.
    """

    kind: ClassVar[str] = "optimizer-built"
    optimizer: str = definition()
    class_name: str = ""
    modules: tuple[str, ...] = reference(default=())
    complete: bool = True
    filtered_by: tuple[str, ...] = unrecorded("groups are made before the call", default=())
    empty_groups: int = 0
    stale: tuple[str, ...] = reference(default=())


@event
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
    module: str = reference(distinct=True)
    via: str = distinct(default="call")
    inside: int | None = numbered(default=None)
    grad: GradMode | None = None
    communicated: bool = False
    summoned: bool = False
    view_changed: bool = False
    on_meta: bool = combined(on_any, default=False)


@event
class BackwardRun(Event):
    """averaged: of a loss that an all_reduce summed up in place and that was then divided by the
    number of ranks, which the gradients take part in.
    """

    kind: ClassVar[str] = "backward"
    averaged: bool = False


@event
class SyncSwitched(Event):
    """Gradient synchronisation, or when parameters are sharded again, switched.

    api: "no_sync" (the context manager) or "set_requires_gradient_sync", ...
    enabled: None where the value is not known.
    optional: whether the program has another context manager for a model without `no_sync`:
        `getattr(model, "no_sync", nullcontext)` (static traces only).
    """

    kind: ClassVar[str] = "gradient-sync-switched"
    module: str = reference(distinct=True)
    api: str = distinct()
    enabled: bool | None = None
    optional: bool = unrecorded("the other context manager is no call of torch", default=False)


@event
class Clipped(Event):
    """Gradients clipped. api: "method" (`module.clip_grad_norm_`) or "utils" (torch.nn.utils).

    by_norm: False for `clip_grad_value_`, which looks at each element by itself.
    max_norm: the bound as far as it is a constant, the dotted name of one, or "?".
    stale: modules of which it got parameters that sharding had replaced by then.
    """

    kind: ClassVar[str] = "gradients-clipped"
    api: str = distinct()
    modules: tuple[str, ...] = reference(default=())
    stale: tuple[str, ...] = reference(default=())
    by_norm: bool = True
    max_norm: object = "?"


@event
class OptimizerStepped(Event):
    kind: ClassVar[str] = "optimizer-stepped"
    optimizer: str = reference(distinct=True)


@event
class ScalerBuilt(Event):
    """A gradient scaler. class_name: "GradScaler", "ShardedGradScaler" or that of a subclass.

    enabled: None where the value is not known.
    """

    kind: ClassVar[str] = "scaler-built"
    scaler: str = definition()
    class_name: str = "GradScaler"
    enabled: bool | None = True


@event
class ScalerStepped(Event):
    """`scaler.step(optimizer)`, whether the optimizer then steps or not."""

    kind: ClassVar[str] = "scaler-stepped"
    scaler: str = reference(distinct=True)
    optimizer: str = reference(distinct=True)
