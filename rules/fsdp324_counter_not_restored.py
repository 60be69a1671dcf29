"""FSDP324: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    CounterDropped,
    CounterReadEarly,
    Event,
    Loaded,
    OptimizerStepped,
    Saved,
    StateLoaded,
    Trace,
)
from fsdplint.trace.queries.common import class_name, whole_file


class CounterNotRestored(Rule):
    """A resumed run restores the model, but not the counter of steps or epochs that the checkpoint has.

    ## What it does
    Finds a distributed checkpoint that an object of the program saves and loads by its `state_dict` and
    `load_state_dict`, if `state_dict` saves an attribute that the training counts up (`self.step`), and that ends
    a loop (`while app.step < total`, `range(app.epoch, n)`), and `load_state_dict` sets a sharded model and does not
    read the key of this attribute.

    Also finds a number in the dict that `torch.distributed.checkpoint.load` gets, if nothing reads it from the dict
    after the load, and a loop begins at the variable that the dict got it from. The load puts the saved number into
    the dict, and not into the variable.

    Also finds a number that the program computes from such a counter before the load, if a loop begins at it after
    the load: `range(start, n)`, a test that skips batches, or a `while` loop that counts it up.

    A `load_state_dict` that uses the state otherwise than by constant keys is not reported.

    ## Why is this bad?
    There is no error. The counter starts at its first value, so that the resumed run trains as many steps as the
    first one, on batches that it had before. Of 4 steps, two ranks stop after 3, resume, and print:

        trained 7 steps of 4

    Restore the counter in `load_state_dict`: `self.step = state["step"]`. Compute the position in the data after the
    load.

    ## Since
    torch 2.2, the first with `torch.distributed.checkpoint.load`.

    ## References
    - https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html (`Stateful`)
    """

    code = "FSDP324"
    name = "counter-not-restored"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(CounterDropped):
            restored = _restored_model(trace, event)
            if restored is None or event.site in seen or event.callbacks or event.ranks.partial:
                continue
            step = next(iter(trace.after(event, OptimizerStepped)), None)
            if step is None or not _is_written(trace, event):
                continue
            seen.add(event.site)
            advice = f"Restore `{event.name}` in `load_state_dict`."
            what = f"this restores `{class_name(trace, restored.into)}` and not `{event.name}`, which the checkpoint has"
            if event.in_dict:
                what = f"this puts the saved `{event.name}` into the dict, and a loop begins at the number from before"
                advice = f"Read `{event.name}` from the dict after the load."
            yield self.finding(
                event,
                what,
                help=advice,
                because=[(restored, "the model is restored here"), (step, "trains on")],
            )
        for early in trace.of(CounterReadEarly):
            loads = [*trace.before(early, Loaded)]
            step = next(iter(trace.after(early, OptimizerStepped)), None)
            restored = _restored_in(trace, loads[-1], step) if loads and step is not None else None
            if step is None or restored is None or early.site in seen:
                continue
            if early.callbacks or early.ranks.partial:
                continue
            seen.add(early.site)
            yield self.finding(
                early,
                f"`{early.number}` comes from `{early.name}` as it is before the checkpoint is loaded, and the "
                "training begins at it",
                help=f"Read `{early.name}` after the load.",
                because=[(restored, "the model is restored here"), (step, "trains on")],
            )


def _restored_model(trace: Trace, event: CounterDropped) -> StateLoaded | None:
    """Where a sharded model gets its state in the load of an object."""
    loads = [one for one in trace.before(event, Loaded) if one.site == event.site]
    return _restored_in(trace, loads[-1], event) if loads else None


def _restored_in(trace: Trace, loaded: Loaded, event: Event) -> StateLoaded | None:
    """Where a sharded model gets its state after a load and before an event."""
    for one in trace.after(loaded, StateLoaded):
        if one.index < event.index and one.into in trace.modules:
            return one if trace.sharded_within(one.into, one) is not None else None
    return None


def _is_written(trace: Trace, event: CounterDropped) -> bool:
    """Whether the program also writes the checkpoint that it reads."""
    return bool(event.path) and any(
        saved.path == event.path and not whole_file(saved.api) for saved in trace.of(Saved)
    )
