"""Proves checkpoints by resuming from them, with the arguments of `--resume`.

A readable checkpoint is not sufficient: the program may read it and not restore the optimizer.
Each program resumes from the files of both programs, in new copies of the project. These runs are
compared with the program before, resumed from its own checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fsdplint.runtime.launch.failures import failure_summary
from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.proof.checks import Check, Comparison, Side
from fsdplint.runtime.proof.compare import compare, tolerance_of
from fsdplint.runtime.proof.compare_tensors import counted_steps
from fsdplint.runtime.proof.program_pair import Pair, ProveError
from fsdplint.trace import Trace

_FIRST = "before resumed"


@dataclass(frozen=True)
class _Continuation:
    """A program that resumes from the files of a run.

    binding: whether the verdict depends on it. A migration need not support the way back.
    """

    name: str
    resume_from: str
    title: str
    binding: bool = True


_CONTINUATIONS = (
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
    """The results of resuming from checkpoints.

    Attributes:
        first: the program before, resumed from its own checkpoint.
        traces: the traces of `first`, and of the program after, resumed from its own checkpoint.
        rerun_difference: the difference between `first` and a repetition of it; empty if there is
            none, None if it was not repeated.
        lost_state: which state the program before does not restore from its own checkpoint.
    """

    first: Run
    traces: tuple[Trace, Trace]
    checks: list[Check] = field(default_factory=list)
    rerun_difference: str | None = None
    lost_state: str = ""


def go_on(pair: Pair, before: Run, lines: Mapping[str, Sequence[int]] | None = None) -> Run:
    """Resume the program before from its own checkpoint.

    lines: the lines to report, see `reached_lines`.

    Raises:
        ProveError: the program wrote no file, reads none of its files, or fails.
    """
    files = {copy: pair.written_files("before", copy) for copy in pair.copies("before")}
    if not any(files.values()):
        text = "--resume: the program before wrote no file into its folder to resume from"
        if pair.options.steps is not None:
            text += "; perhaps --steps ends it before it writes one"
        raise ProveError(text)
    pair.progress(f"running {pair.script.name} as it is, from its checkpoint")
    run = pair.run(_FIRST, lines, resume_from="before")
    if not run.ok:
        raise ProveError(
            "--resume: " + failure_summary(run, "before, going on from its checkpoint")
        )
    copies = pair.copies(_FIRST)
    names = {str(one / file) for one in copies for left in files.values() for file in left}
    if not _has_read(run, names) and _first_losses(run) == _first_losses(before):
        raise ProveError(
            "--resume: with these arguments the program before reads none of the files that it "
            "wrote and starts from the beginning; give the arguments with which it resumes"
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
    """Resume the programs from checkpoints and compare; first: the result of `go_on`."""
    reference = pair.side_of(first)
    found = ResumedRuns(first, (reference.trace, Trace(producer="runtime")))
    found.lost_state = optimizer_state_lost(pair.side_of(before), reference)
    for way in _CONTINUATIONS:
        program = pair.other_script if way.name.startswith("after") else pair.script
        pair.progress(f"running {program.name} {_run_title(way)}")
        run = pair.run(way.name, resume_from=way.resume_from)
        if way is _CONTINUATIONS[0]:
            found.traces = (reference.trace, pair.trace(run, way.name))
        if not run.ok:
            text = failure_summary(run, _run_title(way))
            found.checks.append(Check(way.title, False, text, binding=way.binding))
            found.lost_state = (
                found.lost_state if not way.binding else ""
            )  # it does not excuse a failure
            continue
        comparison = compare(reference, pair.side_of(run), same_units=same_units)
        if (
            way.binding
            and not comparison.same_training
            and found.rerun_difference is None
            and not found.lost_state
        ):
            found.rerun_difference = _rerun_difference(pair, reference)
        found.checks.append(
            Check(
                way.title,
                comparison.holds,
                _detail(comparison),
                str(tolerance_of(reference)),
                binding=way.binding,
                layout=comparison.same_training,
            )
        )
    return found


def optimizer_state_lost(first: Side, reference: Side) -> str:
    """A message if the count of steps shows that the program does not restore its optimizer.

    For example, `FSDP.optim_state_dict` of an optimizer without any step is empty, and
    `torch.distributed.checkpoint.load` restores only the entries that it finds there.

    Args:
        first: the run that wrote the checkpoint.
        reference: the run that resumed from it.
    """
    steps = max((len(record.measures) for record in reference.records), default=0)
    before, now = counted_steps(first), counted_steps(reference)
    if not before or not steps or now != steps:
        return ""
    return (
        "the program before does not restore the state of its optimizer: after resuming, the state "
        f"counts {now:g} steps, only those of this run (the run before counted {before:g})"
    )


def _rerun_difference(pair: Pair, reference: Side) -> str:
    """The first difference between two resumed runs of the program before; empty if none."""
    pair.progress("the runs differ: running the program once more from its checkpoint")
    again = pair.run(f"{_FIRST} again", resume_from="before")
    if not again.ok:
        return failure_summary(again, "in a second run from its checkpoint")
    repeated = compare(reference, pair.side_of(again), same_units=True)
    return next((f"{one.name}: {one.detail}" for one in repeated.differences), "")


def _run_title(way: _Continuation) -> str:
    which = way.name.partition(" ")[0]
    whose = "its own checkpoint" if which == way.resume_from else f"that of {way.resume_from}"
    return f"{which}, from {whose}"


def _detail(comparison: Comparison) -> str:
    if not comparison.holds:
        return "; ".join(f"{one.name}: {one.detail}" for one in comparison.differences[:2])
    steps = next((one.detail for one in comparison.checks if one.name == "steps"), "")
    return f"{steps}: all of the above agrees"
