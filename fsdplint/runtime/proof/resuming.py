"""Checkpoints proven by going on from them, with the arguments that `--resume` gives.

A checkpoint that can be read is not yet one that training goes on from: the program may read it and
leave the optimizer as it was. So each program goes on from the files that either of them has left,
in new copies of the project, and that is compared with the program before going on from its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fsdplint.runtime.launch.failures import failure
from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.proof.checks import Check, Comparison, Side
from fsdplint.runtime.proof.compare import compare, tolerance_of
from fsdplint.runtime.proof.compare_tensors import steps_counted
from fsdplint.runtime.proof.program_pair import Pair, ProveError
from fsdplint.trace import Trace

_FIRST = "before resumed"


@dataclass(frozen=True)
class _Continuation:
    """A program that goes on from what a run has left.

    binding: whether the verdict hangs on it. Going back is told: a migration may well leave it out.
    """

    name: str
    continuing: str
    title: str
    binding: bool = True


_WAYS = (
    _Continuation("after resumed", "after", "resumed: after, from its own checkpoint"),
    _Continuation(
        "after resumed from before", "before", "resumed: after, from the checkpoint of before"
    ),
    _Continuation(
        "before resumed from after", "after", "resumed: before, from the one of after", False
    ),
)


@dataclass
class ResumedRuns:
    """What was seen when the programs went on from checkpoints.

    Attributes:
        first: the program before, from its own checkpoint.
        traces: that one's, and that of the program after from its own.
        unlike: where the program before differs from itself when it goes on once more; empty where
            it does not, None where that was not tried.
        lost: what of its own checkpoint the program before does not go on from, in words.
    """

    first: Run
    traces: tuple[Trace, Trace]
    checks: list[Check] = field(default_factory=list)
    unlike: str | None = None
    lost: str = ""


def go_on(pair: Pair, before: Run, lines: Mapping[str, Sequence[int]] | None = None) -> Run:
    """The program before, which goes on from its own checkpoint.

    lines: those that are asked for, see `reached`.

    Raises:
        ProveError: it left nothing, reads nothing of it, or does not come to its end.
    """
    files = {copy: pair.left("before", copy) for copy in pair.copies("before")}
    if not any(files.values()):
        text = "--resume: the program before has written no file to go on from into its folder"
        if pair.options.steps is not None:
            text += "; perhaps --steps ends it before it does"
        raise ProveError(text)
    pair.progress(f"running {pair.script.name} as it is, from its checkpoint")
    run = pair.run(_FIRST, lines, continuing="before")
    if not run.ok:
        raise ProveError("--resume: " + failure(run, "before, going on from its checkpoint"))
    copies = pair.copies(_FIRST)
    names = {str(one / file) for one in copies for left in files.values() for file in left}
    if not _has_read(run, names) and _first_losses(run) == _first_losses(before):
        raise ProveError(
            "--resume: with these arguments the program before reads nothing that it has written, "
            "and begins anew; give those with which it goes on"
        )
    return run


def _has_read(run: Run, names: set[str]) -> bool:
    """Whether a rank has read one of these files, or a distributed checkpoint."""
    return any(
        event["kind"] == "loaded" and (not event.get("path") or event["path"] in names)
        for record in run.records
        for event in record.events
    )


def _first_losses(run: Run) -> list[object]:
    return [record.measures[0]["losses"] if record.measures else None for record in run.records]


def resume(pair: Pair, before: Run, first: Run, same_units: bool) -> ResumedRuns:
    """Have the programs go on from checkpoints, and compare; first: what `go_on` gave."""
    ours = pair.side_of(first)
    found = ResumedRuns(first, (ours.trace, Trace(producer="runtime")))
    found.lost = optimizer_state_lost(pair.side_of(before), ours)
    for way in _WAYS:
        program = pair.other_script if way.name.startswith("after") else pair.script
        pair.progress(f"running {program.name} {_said(way)}")
        run = pair.run(way.name, continuing=way.continuing)
        if way is _WAYS[0]:
            found.traces = (ours.trace, pair.trace(run, way.name))
        if not run.ok:
            text = failure(run, _said(way))
            found.checks.append(Check(way.title, False, text, binding=way.binding))
            found.lost = found.lost if not way.binding else ""  # that excuses no failure
            continue
        comparison = compare(ours, pair.side_of(run), same_units=same_units)
        if way.binding and not comparison.trains_alike and found.unlike is None and not found.lost:
            found.unlike = _unlike(pair, ours)
        found.checks.append(
            Check(
                way.title,
                comparison.holds,
                _detail(comparison),
                str(tolerance_of(ours)),
                binding=way.binding,
                layout=comparison.trains_alike,
            )
        )
    return found


def optimizer_state_lost(left: Side, ours: Side) -> str:
    """Whether the program goes on with a new optimizer's state, as its count of steps tells.

    `FSDP.optim_state_dict` of an optimizer that has made no step is empty, say, and
    `torch.distributed.checkpoint.load` fills in what it finds there: nothing.
    """
    made = max((len(record.measures) for record in ours.records), default=0)
    before, now = steps_counted(left), steps_counted(ours)
    if not before or not made or now != made:
        return ""
    return (
        "the program before does not go on from its optimizer's state: after the checkpoint it "
        f"counts {now:g} steps, those of this run (the run that left it counted {before:g})"
    )


def _unlike(pair: Pair, ours: Side) -> str:
    """Where the program before differs from itself when it goes on once more."""
    pair.progress("the runs differ: running the program once more from its checkpoint")
    again = pair.run(f"{_FIRST} again", continuing="before")
    if not again.ok:
        return failure(again, "in a second run from its checkpoint")
    repeated = compare(ours, pair.side_of(again), same_units=True)
    return next((f"{one.name}: {one.detail}" for one in repeated.failed), "")


def _said(way: _Continuation) -> str:
    which = way.name.partition(" ")[0]
    whose = "its own checkpoint" if which == way.continuing else f"that of {way.continuing}"
    return f"{which}, from {whose}"


def _detail(comparison: Comparison) -> str:
    if not comparison.holds:
        return "; ".join(f"{one.name}: {one.detail}" for one in comparison.failed[:2])
    steps = next((one.detail for one in comparison.checks if one.name == "steps"), "")
    return f"{steps}: all of the above agrees"
