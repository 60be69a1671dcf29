"""Events of the training step: optimizers, calls, backward, clipping, scalers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fsdplint.trace.base import Event, GradMode, Site, event
from fsdplint.trace.fields import (
    combined,
    definition,
    differs,
    distinct,
    numbered,
    on_all,
    on_any,
    reference,
    unrecorded,
)
from fsdplint.trace.predicates import Predicate


@dataclass(frozen=True)
class Split:
    """Data that the position of a rank in a mesh chooses.

    Attributes:
        mesh: the name of the whole mesh.
        dimension: the dimension of the position.
        site: where the data are chosen.
        within_samples: whether each position has a part of the same samples, such as a part of a
            sequence.
    """

    mesh: str
    dimension: str
    site: Site
    within_samples: bool = False


@dataclass(frozen=True)
class CutSamples:
    """A part of each sample of a batch that the rank chooses, although each rank has other samples.

    Attributes:
        given: where each of all ranks gets the samples.
        site: where the part is taken.
    """

    given: Site
    site: Site


@dataclass(frozen=True)
class KnownParameter:
    """A parameter that a module certainly has.

    Attributes:
        owner: the module that has it itself.
        name: its name there.
        path: its name in the model; an element of a list that stands for several has the name "*".
        dimensions: their number; None if unknown.
    """

    owner: str
    name: str
    path: str
    dimensions: int | None

    @property
    def key(self) -> tuple[str, str]:
        return self.owner, self.name


@dataclass(frozen=True)
class ParameterPart:
    """Parameters that an optimizer gets: those of modules, without some.

    Attributes:
        modules: the modules.
        left_out: the parameters of theirs that it certainly does not get. It may lack others.
        known: the number of the known parameters of the modules, if some are left out.
    """

    modules: tuple[str, ...]
    left_out: frozenset[KnownParameter] = frozenset()
    known: int = 0


@event
class OptimizerBuilt(Event):
    """An optimizer over the parameters of `modules`.

    library: the package that has its class, such as "torch"; "" for a class of the program, or if
        that is not known.
    complete: whether all of its parameters are known to come from `modules`.
    filtered_by: the properties of parameters that select its groups (static traces only):
        "dimensions" (`p.ndim`), "leaf name" (`"bias" in name`).
    selected_by_name: whether a test of names selects all of its parameters (static traces only).
    parts: the lists of parameters that make up its groups (static traces only).
    lacks: the frozen parameters of `modules` that tests of `requires_grad` certainly leave out
        (static traces only).
    regrouped: whether its groups may have got other parameters later (static traces only).
    escaped: whether code that cannot be followed gets it, or its groups, at any time (static traces
        only).
    equal_rates: the number of its groups if none has a learning rate of its own, 0 if that is not
        known (static traces only).
    empty_groups: the number of its groups without parameters (recorded traces only).
    again: whether it replaces one with moments that the turn of the loop before has built, and
        nothing in between explains that (static traces only).
    stale: the modules whose parameters it got and a sharding had replaced before.
    """

    kind: ClassVar[str] = "optimizer-built"
    optimizer: str = definition()
    class_name: str = ""
    library: str = ""
    modules: tuple[str, ...] = reference(default=())
    complete: bool = True
    filtered_by: tuple[str, ...] = unrecorded("groups are made before the call", default=())
    selected_by_name: bool = unrecorded("groups are made before the call", default=False)
    parts: tuple[ParameterPart, ...] = unrecorded("a record has the parameters", default=())
    lacks: frozenset[KnownParameter] = unrecorded(
        "a record has the parameters", default=frozenset()
    )
    regrouped: bool = unrecorded("a record has the parameters of each step", default=False)
    escaped: bool = unrecorded("a record has the learning rates themselves", default=False)
    equal_rates: int = unrecorded("a record has the learning rates themselves", default=0)
    empty_groups: int = 0
    again: bool = unrecorded("a record does not have the options of a turn", default=False)
    stale: tuple[str, ...] = reference(default=())


@event
class Called(Event):
    """A module was entered.

    via: "call" for `module(x)`, "forward" for `module.forward(x)`, else the method's name.
    inside: the index of the innermost `Called` event around this one, or None.
    grad: the autograd mode; None if unknown.
    communicated: whether this call itself, not a nested one, ran a collective of all ranks
        (recorded traces only).
    summoned: whether it runs under FSDP1's `summon_full_params`.
    summoned_by: the index of the `Fsdp1Used` event of that `summon_full_params`, if it has gathered
        the parameters of the module for certain; else None.
    written_back: whether `summoned_by` writes them back at its end; None if unknown.
    view_changed: whether it returned a view, the program changed the view in place, and the module
        was not gathered in the backward (recorded traces only).
    on_meta: whether it is an outermost call and parameters that `fully_shard` shards are certainly
        on the meta device.
    uninitialized: whether it is an outermost call for training, and parameters that `to_empty` gave
        memory have certainly not been initialised.
    only_loaded_by: the indices of the events that load states, if nothing but these has given
        values to such parameters (static traces only).
    own_input: where each of all ranks certainly gets other inputs, if it is an outermost call
        (static traces only).
    split_by: what chose the inputs of the rank, if ranks at one position in a mesh get the same
        (static traces only).
    cut_samples: how its inputs were cut, if each rank has a part of its own samples by its number
        (static traces only).
    training: whether it is in training mode, if it is an outermost call and a layer of torch.nn in
        it depends on the mode; None if that is not known.
    drops_while_frozen: whether it has a dropout of torch.nn that is certainly not zero, and no
        parameter that is trained, if `training` is true (static traces only).
    statistics: a BatchNorm in it that updates its running statistics with the inputs of the rank,
        if `training` is true; "" if there is none (static traces only).
    drops_without_gradients: whether it has a dropout of torch.nn that is certainly not zero, and no
        BatchNorm, if `training` is true and autograd is off (static traces only).
    drifting: the outermost part of it with frozen parameters whose BatchNorms update their running
        statistics, if `training` is true and the module is trained; "" if there is none (static
        traces only).
    dropping: the same with dropout of torch.nn that is certainly not zero.
    """

    kind: ClassVar[str] = "module-called"
    module: str = reference(distinct=True)
    via: str = distinct(default="call")
    inside: int | None = numbered(default=None)
    grad: GradMode | None = None
    communicated: bool = False
    summoned: bool = False
    summoned_by: int | None = numbered(default=None)
    written_back: bool | None = None
    view_changed: bool = False
    on_meta: bool = combined(on_any, default=False)
    uninitialized: bool = combined(on_any, default=False)
    only_loaded_by: tuple[int, ...] = unrecorded("a record has the values", default=())
    own_input: Site | None = unrecorded("inputs are not compared", default=None)
    split_by: Split | None = unrecorded("inputs are not compared", default=None)
    cut_samples: CutSamples | None = unrecorded("inputs are not compared", default=None)
    training: bool | None = None
    drops_while_frozen: bool = unrecorded("it depends on modules that are parts", default=False)
    statistics: str = unrecorded("it depends on modules that are parts", default="")
    drops_without_gradients: bool = unrecorded("it depends on parts of the module", default=False)
    drifting: str = unrecorded("it depends on modules that are parts", default="")
    dropping: str = unrecorded("it depends on modules that are parts", default="")


@event
class BackwardRun(Event):
    """A backward pass.

    averaged: whether an all_reduce summed the loss in place and the loss was then divided by the
        number of ranks, which also scales the gradients.
    divided_by: "ranks" if the loss of each rank is divided by the number of ranks, "total" if it is
        divided by a number that an all_reduce summed; "" for any other loss.
    multiplied: whether the loss may have been multiplied by the number of ranks.
    of_mean: whether the loss certainly is a mean over the elements of one micro-batch, and the
        program scales neither it nor the gradients (static traces only).
    sums_means: whether the loss of each rank is divided by a number of its own and multiplied by
        the number of ranks, and the program scales no gradients (static traces only).
    repeated: what chose the data of a number that divides the loss, if it was summed over all ranks
        although the ranks at one position have the same data, and the loss is multiplied by the
        number of positions (static traces only).
    unsynchronized: the modules of FSDP1 and DDP under whose `no_sync()` it runs.
    perhaps_unsynchronized: the modules under whose `no_sync()` it may run, with the test that
        decides it; None if the test is not known (static traces only).
    """

    kind: ClassVar[str] = "backward"
    averaged: bool = False
    divided_by: str = ""
    multiplied: bool = False
    of_mean: bool = unrecorded("a number does not say how it was computed", default=False)
    sums_means: bool = unrecorded("a number does not say how it was computed", default=False)
    repeated: Split | None = unrecorded("a number does not say how it was computed", default=None)
    unsynchronized: tuple[str, ...] = reference(default=())
    perhaps_unsynchronized: tuple[tuple[str, Predicate | None], ...] = unrecorded(
        "what was recorded has happened", default=()
    )


@event
class DifferentiableGradient(Event):
    """A gradient through a sharded model that `torch.autograd.grad(create_graph=True)` computes.

    backward: the index of the first backward pass of a loss that was computed from it.
    """

    kind: ClassVar[str] = "differentiable-gradient"
    static_only: ClassVar[str] = "uses of a tensor are not recorded"
    backward: int | None = None


@event
class MeansSummed(Event):
    """A number that is the sum over the ranks of the mean over the data of each.

    total: whether it is a total of all ranks that was divided by the size of one rank's share;
        else an `all_reduce` has added the means.
    shown: whether it became a part of a text, or a function got it that may show it.
    corrected: whether a later operation may divide it by the number of ranks.
    """

    kind: ClassVar[str] = "means-summed"
    static_only: ClassVar[str] = "uses of a number are not recorded"
    total: bool = False
    shown: bool = False
    corrected: bool = False


@event
class SyncSwitched(Event):
    """A switch of gradient synchronization, or of resharding.

    api: "no_sync" (the context manager) or "set_requires_gradient_sync", ...
    enabled: the value; None if unknown.
    optional: whether the program uses another context manager for a model without `no_sync`:
        `getattr(model, "no_sync", nullcontext)` (static traces only).
    test: the test whose result is the value; None if it is not known (static traces only).
    """

    kind: ClassVar[str] = "gradient-sync-switched"
    module: str = reference(distinct=True)
    api: str = distinct()
    enabled: bool | None = None
    optional: bool = unrecorded("the other context manager is no call of torch", default=False)
    test: Predicate | None = unrecorded("the value is recorded", default=None)


@event
class Clipped(Event):
    """Gradients clipped.

    api: "method" (`module.clip_grad_norm_`), "framework" (`fabric.clip_gradients`), "utils"
        (torch.nn.utils) or "with_norm" (`torch.nn.utils.clip_grads_with_norm_` with a norm that
        each rank computes for itself, or that is of DTensors and so of all ranks).
    by_norm: False for `clip_grad_value_`, which clips each element by itself.
    max_norm: the bound if it is a constant, the dotted name of one or of a setting, or "?".
    whole: whether it certainly gets all parameters of the modules (static traces only).
    stale: the modules whose parameters it got and a sharding had replaced before.
    without_gradients: whether the gradients certainly are zero, because the program has set them to
        zero and no backward pass has made new ones (static traces only).
    again: whether a backward pass has added to gradients that the same clipping got before, and at
        most the optimizer has set them to zero since (static traces only).
    """

    kind: ClassVar[str] = "gradients-clipped"
    api: str = distinct()
    modules: tuple[str, ...] = reference(default=())
    stale: tuple[str, ...] = reference(default=())
    by_norm: bool = True
    max_norm: object = "?"
    whole: bool = unrecorded("an iterator is not read", default=False)
    without_gradients: bool = unrecorded("a norm of zero may be computed", default=False)
    again: bool = unrecorded("a recorder does not see what reads a gradient", default=False)


@event
class ReplacedParametersTested(Event):
    """A test whether a parameter of a model is among some that a sharding has replaced.

    modules: the modules whose parameters were replaced.
    """

    kind: ClassVar[str] = "replaced-parameters-tested"
    static_only: ClassVar[str] = "identities of objects are not recorded"
    modules: tuple[str, ...] = reference(default=())


@event
class OptimizerStepped(Event):
    """`optimizer.step()`

    without_gradients: whether all gradients that it certainly gets are zero, because the program
        has set them to zero.
    adds_to_used: whether its gradients have those in them that the last step at this place used:
        a backward pass added to them, and nothing has set them to zero (static traces only).
    """

    kind: ClassVar[str] = "optimizer-stepped"
    optimizer: str = reference(distinct=True)
    without_gradients: bool = combined(on_all, default=False)
    adds_to_used: bool = unrecorded("a recorder does not see what reads a gradient", default=False)


@event
class GradientsZeroed(Event):
    """`optimizer.zero_grad()`

    unused: whether it drops gradients that nothing has used: the program has read or changed none
        since the last backward pass (static traces only).
    retried: whether a turn of the loop around it decides whether another follows (static traces
        only).
    """

    kind: ClassVar[str] = "gradients-zeroed"
    optimizer: str = reference(distinct=True)
    unused: bool = unrecorded("a recorder does not see what reads a gradient", default=False)
    retried: bool = unrecorded("a recorder does not see the loop", default=False)


@event
class SchedulerBuilt(Event):
    """A scheduler of torch for the learning rate of an optimizer.

    class_name: its class; "" if unknown.
    goes_on: whether it gets, or may get, the epoch that it goes on from (`last_epoch`).
    by_steps: whether the learning rate certainly depends on the number of its steps, and not on
        another number that a checkpoint may restore.
    """

    kind: ClassVar[str] = "scheduler-built"
    optimizer: str = reference(distinct=True)
    scheduler: str = definition(default="")
    class_name: str = ""
    goes_on: bool = False
    by_steps: bool = unrecorded("a function does not say what it reads", default=False)


@event
class SchedulerStepped(Event):
    """A scheduler of torch may change the learning rate of its optimizer.

    metric_differs: whether it decides by a number that each rank computes from its own data.
    with_epoch: whether it gets, or may get, the number of the epoch.
    """

    kind: ClassVar[str] = "scheduler-stepped"
    optimizer: str = reference(distinct=True)
    scheduler: str = reference(default="")
    with_epoch: bool = False
    metric_differs: bool = combined(differs, default=False)


@event
class GroupOptionSet(Event):
    """`optimizer.param_groups[0]["lr"] = value`, or in a loop over the groups.

    option: the name of the option.
    differs: whether each rank computes the value from its own data.
    of_first: whether the group is `param_groups[0]`.
    """

    kind: ClassVar[str] = "group-option-set"
    static_only: ClassVar[str] = "a recorder does not see what sets an entry of a dict"
    optimizer: str = reference(distinct=True)
    option: str = ""
    differs: bool = False
    of_first: bool = False


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
class ScalerUnscaled(Event):
    """`scaler.unscale_(optimizer)`: from here on the gradients have their own size."""

    kind: ClassVar[str] = "scaler-unscaled"
    scaler: str = reference(distinct=True)
    optimizer: str = reference(distinct=True)


@event
class ScalerStepped(Event):
    """`scaler.step(optimizer)`, even if the scaler skips the optimizer step."""

    kind: ClassVar[str] = "scaler-stepped"
    scaler: str = reference(distinct=True)
    optimizer: str = reference(distinct=True)


@event
class ScalerUpdated(Event):
    """`scaler.update()`: the scaler may change its scale, and takes the next step."""

    kind: ClassVar[str] = "scaler-updated"
    scaler: str = reference(distinct=True)
