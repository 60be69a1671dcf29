"""FSDP319: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import OptimizerBuilt, SchedulerBuilt, StateTaken, Trace
from fsdplint.trace.queries.common import class_name, optimizer_named
from fsdplint.trace.queries.dropped_loads import dropped_loads, puts_back
from fsdplint.trace.queries.entries_never_saved import entries_never_saved
from fsdplint.trace.queries.own_states_loaded import own_states_loaded
from fsdplint.trace.queries.resumed_training import (
    NotRestored,
    Part,
    dropped_conversions,
    parts_not_restored,
    restores,
)


class StateNotRestored(Rule):
    """A resumed run restores the model, but not the optimizer, scheduler or gradient scaler.

    ## What it does
    Finds a program that writes a checkpoint with the states of the model and of its optimizer, a scheduler or a
    gradient scaler, reads this checkpoint back into the sharded model, and trains on with an optimizer,
    scheduler or scaler that nothing has restored.

    Only a program that resumes is reported: it restores another one of these states from the file, or goes on to
    write the state that it did not restore. A state that some configuration restores, a key of the checkpoint that
    the program reads anywhere, and a scheduler that the program moves on by hand are not reported.

    A distributed checkpoint restores a model also without a call that sets its state: under `fully_shard`, the state
    has the parameters themselves. The state of a scheduler or scaler in the same dict is a copy, which has to be
    loaded. The state of the optimizer may also be in a file beside the checkpoint, from which the resumed program
    reads another entry.

    Also finds an optimizer whose state the program neither saves nor loads, while it does both with another optimizer
    of the same model, and a scheduler of which it takes no state, while it saves and restores the optimizer. A scheduler
    that goes on from the learning rate of the optimizer (`ExponentialLR`, `StepLR`) needs no state.

    Also finds a distributed checkpoint that is loaded into copies of the parameters, which nothing reads after it,
    before the model trains. The full state of a model has copies, and so have all states of FSDP1 but the local one.
    A state on the CPU (`cpu_offload=True`) has copies of parameters that are on a GPU.

    Also finds a scheduler or scaler that loads its own state, because the program puts this state into the dict only
    after the checkpoint was loaded into it.

    Also finds an object that a distributed checkpoint saves and loads by its `state_dict` and `load_state_dict`, if the
    second method restores something from a key only if the state has it, and no method of the class writes this key.

    Also finds `FSDP.optim_state_dict_to_load`, and the older `FSDP.shard_full_optim_state_dict` and
    `FSDP.scatter_full_optim_state_dict`, whose result the program drops. They return the state that the optimizer
    has to load; only `load_directly=True` loads it, too.

    ## Why is this bad?
    There is no error. A new scheduler starts its schedule again, warmup included. A new Adam begins with moments
    of zero, and a new scaler with its first scale. Two ranks stop after 4 steps of a `StepLR` that halves the
    learning rate, resume, and print:

        before the stop: learning rate 0.0063
        after the resume: learning rate 0.1000

    Load each state that the checkpoint has: `scheduler.load_state_dict(checkpoint["scheduler"])`.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html (a checkpoint for resuming training)
    - https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html
    """

    code = "FSDP319"
    name = "state-not-restored"
    severity = Severity.ERROR
    all_configurations = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen: set[object] = set()
        never_saved = any(True for _ in entries_never_saved(trace))
        for found in parts_not_restored(trace):
            if never_saved and not found.in_file:
                continue  # this is found where the class would restore it
            key = (found.restored.site, found.part.built.site)
            if key in seen:
                continue
            seen.add(key)
            name = _name(found.part)
            yield self.finding(
                found.restored,
                f"this restores the model of a checkpoint and not its {name}, which starts anew"
                if found.in_file
                else f"this restores a checkpoint that has no state of the {name}, which starts anew",
                help=f"Load the state of the {found.part.kind} from the checkpoint, too."
                if found.in_file
                else f"Save the state of each {found.part.kind}, and load it.",
                because=[
                    (found.part.built, ""),
                    (
                        found.saved,
                        f"the checkpoint has the state of {_what(found)}",
                    ),
                    (found.step, "steps with the state that it was built with"),
                    *([] if found.optimizer is None else [(found.optimizer, "restored there")]),
                ],
            )

        yield from self._own(trace, seen)
        yield from self._never_saved(trace, seen)
        yield from self._dropped_conversions(trace, seen)
        yield from self._into_copies(trace, seen)

    def _own(self, trace: Trace, seen: set[object]) -> Iterator[Finding]:
        for found in own_states_loaded(trace):
            if found.event.site not in seen:
                seen.add(found.event.site)
                of_scheduler = any(
                    one.scheduler == found.event.into for one in trace.of(SchedulerBuilt)
                )
                yield self.finding(
                    found.event,
                    f"this loads the {'scheduler' if of_scheduler else 'gradient scaler'}'s own state, which "
                    "no checkpoint was read into",
                    help="Put the state into the dict before the checkpoint is loaded into it.",
                    because=[
                        (found.taken, "state taken here"),
                        (found.read, "checkpoint read here"),
                    ],
                )

    def _never_saved(self, trace: Trace, seen: set[object]) -> Iterator[Finding]:
        for event, step in entries_never_saved(trace):
            site = event.restored_at
            if site is None or site in seen:
                continue
            seen.add(site)
            finding = self.finding(
                event,
                f'`{event.name}` would restore this from `"{event.key}"`, which its `state_dict` never saves',
                help=f'Save `"{event.key}"` in `state_dict`, too.',
                because=[(step, "steps with the state that it was built with")],
                site=site,
            )
            if event.saved_by is not None:
                finding.related = (*finding.related, (event.saved_by, "the state that is saved"))
            yield finding

    def _dropped_conversions(self, trace: Trace, seen: set[object]) -> Iterator[Finding]:
        for event, built in dropped_conversions(trace):
            if event.site not in seen:
                seen.add(event.site)
                method = event.api.removeprefix("FSDP.")
                yield self.finding(
                    event,
                    f"`{method}` returns the state for {optimizer_named(built)}, and nothing loads it",
                    help="Pass the result to the optimizer's `load_state_dict`.",
                    because=[(built, "built here")],
                )

    def _into_copies(self, trace: Trace, seen: set[object]) -> Iterator[Finding]:
        for found in dropped_loads(trace):
            if found.loaded.site not in seen:
                seen.add(found.loaded.site)
                yield self.finding(
                    found.loaded,
                    f"this reads a checkpoint into copies of the parameters of "
                    f"`{class_name(trace, found.taken.of)}`, and nothing puts them into the model",
                    help="Load the state into the model after this.",
                    why="There is no error. The training goes on with the weights that the model had before.",
                    because=[
                        (found.taken, "this state has copies"),
                        (found.step, "trains the parameters that the model was built with"),
                    ],
                )

    def concerns(self, trace: Trace, finding: Finding) -> bool:
        """Whether a trace restores the state that a finding of another trace misses.

        Where the optimizer is restored, the training goes on: another function that restores all
        states, in another configuration, does not make up for this one.
        """
        missed = finding.events[1]
        others = [one for one in finding.events if one is not missed]
        goes_on = any(isinstance(one, OptimizerBuilt) for one in others)
        if goes_on and not super().concerns(trace, finding):
            return False
        if isinstance(missed, StateTaken):
            return puts_back(trace, finding.site)
        return restores(trace, missed)


def _what(found: NotRestored) -> str:
    return f"the {found.part.kind}" if found.in_file else "another optimizer"


def _name(part: Part) -> str:
    name = getattr(part.built, "class_name", "")
    return f"{part.kind} (`{name}`)" if name else part.kind
