"""FSDP134: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Event, Loaded, ModuleMoved, Saved, StateLoaded, StateTaken, Trace
from fsdplint.trace.queries.common import class_name


class WeightsNeverInitialized(Rule):
    """A model that was built on the meta device is trained without values in its parameters.

    ## What it does
    Finds models that are built on the meta device, get memory by `to_empty`, are sharded, and are then
    called for training, if no parameter of a module has been initialised or loaded in between.

    A model is not reported if code that cannot be followed gets it or its parameters after `to_empty`, and
    if some configuration of the program loads a checkpoint, unless it is one that the program itself
    writes after the training: the run that writes the first one has no values.

    ## Why is this bad?
    On the meta device, `reset_parameters` and the functions of `torch.nn.init` in the constructors do
    nothing. `to_empty` allocates memory and does not write to it. There is no error: the program trains
    with whatever the memory held. With `torch.use_deterministic_algorithms(True)`, which fills such memory,
    the first loss is `nan`.

    After `to_empty`, call `reset_parameters` of each module that has one, or the model's own
    initialisation, or load a checkpoint. Buffers have to be initialised, too (FSDP704).

    ## Since
    torch 2.0, the first with the meta device for modules.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html (`to_empty`)
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (initialise after `to_empty`)
    """

    code = "FSDP134"
    name = "weights-never-initialized"
    severity = Severity.ERROR
    all_configurations = True  # users may always choose the configuration that loads a checkpoint

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete:
            return
        for call in trace.of(Called):
            if not call.uninitialized and not _only_resumes(trace, call):
                continue
            moves = [
                event for event in trace.before(call, ModuleMoved) if event.method == "to_empty"
            ]
            because: list[tuple[Event, str]] = [(move, "memory allocated here") for move in moves]
            yield self.finding(
                call,
                f"parameters of `{class_name(trace, call.module)}` were never initialised: it is trained "
                f"with whatever their memory holds",
                help="After `to_empty`, initialise the parameters and buffers, or load a checkpoint.",
                because=because[-1:],
            )
            return


def _only_resumes(trace: Trace, call: Called) -> bool:
    """Whether the parameters have the values of a checkpoint of this model, and no others."""
    loads = [trace.events[index] for index in call.only_loaded_by]
    files = [event for event in loads if isinstance(event, Loaded)]
    states = {state for event in files for state in (event.state, *event.states)}
    applied = [event for event in loads if isinstance(event, StateLoaded)]
    return (
        bool(files)
        and all(event.state in states for event in applied)
        and all(_is_written_later(trace, event, call.module) for event in files)
    )


def _is_written_later(trace: Trace, event: Loaded, module: str) -> bool:
    """Whether the program writes the state of a model to this path after it has read the path."""
    saves = [saved for saved in trace.of(Saved) if event.path and saved.path == event.path]
    if not saves or saves[0].index < event.index or any(saved.per_rank for saved in saves):
        return False
    of = {taken.of for taken in trace.of(StateTaken) if taken.state in saves[0].states}
    return any(one in trace.modules and trace.related(one, module) for one in of)
