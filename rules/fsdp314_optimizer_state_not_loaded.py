"""FSDP314: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Loaded,
    OptimizerBuilt,
    OptimizerStepped,
    StateLoaded,
    StateTaken,
    Trace,
    Wrapped,
)
from fsdplint.trace.queries.common import optimizer_named, optimizer_of, sharded_module_of

# Optimizers whose state begins to exist in their first step.
_LAZY = {"Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adadelta", "Adafactor"}

_OF_FSDP1 = " With FSDP1 that needs a model with a `device_mesh`."

# What gives the state as it is; torch's own functions make it first.
_AS_IT_IS = {"state_dict", "FSDP.optim_state_dict"}


class OptimizerStateNotLoaded(Rule):
    """A distributed checkpoint is loaded into an optimizer that has no state yet.

    ## What it does
    Finds `torch.distributed.checkpoint.load` of a dict with `optimizer.state_dict()`, with FSDP1's
    `FSDP.optim_state_dict(model, optimizer)`, or with the optimizer itself, if the model is sharded and the
    optimizer (Adam, AdamW, RMSprop, ...) has not stepped yet.

    `get_optimizer_state_dict` and `get_state_dict` create the state first and are fine. `load` reads what they
    give for a model of FSDP1 if the model has a `device_mesh`, so that the state has DTensors.

    ## Why is this bad?
    An optimizer of torch makes its moments in its first step. Before it, `state_dict()["state"]` is empty.
    `load` reads only the keys that the dict has, so it skips the moments and gives no error. The program
    goes on with moments of zero: after the load of a checkpoint with the state of 4 parameters, the
    optimizer had the state of 0.

    Take the state with `get_optimizer_state_dict(model, optimizer)`, and set it with
    `set_optimizer_state_dict` after the load.

    ## Since
    torch 2.2, the first with this function.

    ## References
    - https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`get_optimizer_state_dict`)
    """

    code = "FSDP314"
    name = "optimizer-state-not-loaded"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Loaded):
            if event.site in seen or not event.api.startswith("torch.distributed.checkpoint."):
                continue
            for built in _optimizers_without_state(trace, event):
                seen.add(event.site)
                yield self.finding(
                    event,
                    f"{optimizer_named(built)} has no state yet, so this load skips its state in the "
                    f"checkpoint",
                    help="Take its state with `get_optimizer_state_dict(model, optimizer)`, which creates "
                    "it, and set it with `set_optimizer_state_dict` after the load."
                    + (_OF_FSDP1 if _of_fsdp1(trace, built) else ""),
                    because=[(built, "built here")],
                )
                break


def _optimizers_without_state(trace: Trace, event: Loaded) -> Iterator[OptimizerBuilt]:
    """The optimizers that the dict of a load holds and that certainly have no state."""
    held = dict.fromkeys(event.optimizers, event.index)
    for taken in trace.before(event, StateTaken):
        if taken.state in event.states and taken.api in _AS_IT_IS:
            held[taken.of] = taken.index
    for name, index in held.items():
        built = optimizer_of(trace, name)
        if built is None or built.class_name not in _LAZY or not built.complete:
            continue
        if sharded_module_of(trace, built.modules, event) is None:
            continue
        if not any(_may_make_state(one, name) for one in trace.events[built.index : index]):
            yield built


def _of_fsdp1(trace: Trace, built: OptimizerBuilt) -> bool:
    """Whether FSDP1 wraps a model of the optimizer, without a mesh that makes its state DTensors."""
    wrapped = [event for event in trace.of(Wrapped) if event.index < built.index]
    return any(
        event.module in built.modules and "device_mesh" not in event.options for event in wrapped
    )


def _may_make_state(event: object, optimizer: str) -> bool:
    """Whether the optimizer may have a state after the event."""
    if isinstance(event, OptimizerStepped):
        return event.optimizer == optimizer
    if isinstance(event, StateLoaded):
        return event.into == optimizer or event.api == "set_state_dict"
    return isinstance(event, StateTaken) and event.api in (
        "get_optimizer_state_dict",
        "get_state_dict",
    )
