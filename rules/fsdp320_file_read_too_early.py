"""FSDP320: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Collective,
    Event,
    Loaded,
    MeshBuilt,
    Prepared,
    ProcessGroupInit,
    Ranks,
    Saved,
    Trace,
)
from fsdplint.trace.queries.common import side, whole_file


class FileReadTooEarly(Rule):
    """One rank writes a file, and the other ranks read it without waiting for that rank.

    ## What it does
    Finds `torch.load` of a file on ranks that do not write it, if one rank writes the same file before with
    `torch.save`, and no collective (`dist.barrier()`, a broadcast, a forward of the sharded model) and no code
    out of sight comes between the two.

    ## Why is this bad?
    Nothing orders the ranks: the others come to `torch.load` before the file is there, or while it is written.
    Which rank is first is a race. On two ranks, rank 1 raises:

        FileNotFoundError: [Errno 2] No such file or directory

    If the file of an earlier run or step is still there, the other ranks read that one, and there is no error:

        rank 0 is at step 1
        rank 1 is at step 0

    Call `dist.barrier()` on all ranks between the two.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html (save and load checkpoints: `dist.barrier()`)
    - https://docs.pytorch.org/docs/stable/distributed.html (`barrier`)
    """

    code = "FSDP320"
    name = "file-read-too-early"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete or not (trace.shardings() or any(trace.of(Prepared))):
            return
        seen = set()
        for event in trace.of(Loaded):
            if event.site in seen or event.perhaps_waited or not _on_others(event):
                continue
            written = _write_of_one_rank(trace, event)
            if written is None or _are_ordered(trace, written, event):
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                "ranks read this file that only one rank writes, and do not wait until it is written",
                help="Call `dist.barrier()` on all ranks between the write and the read.",
                because=[(written, "written on one rank here")],
            )


def _on_others(event: Loaded) -> bool:
    """Whether other ranks than the first one certainly read one file."""
    if not event.path or event.per_rank or event.callbacks or not whole_file(event.api):
        return False
    return side(event) in (Ranks.ALL, Ranks.OTHERS)


def _write_of_one_rank(trace: Trace, event: Loaded) -> Saved | None:
    """The last event that writes the file; None if not one rank alone writes it."""
    last = None
    for saved in trace.before(event, Saved):
        if saved.path == event.path:
            last = saved
    if last is None or last.per_rank or last.callbacks or not whole_file(last.api):
        return None
    return last if side(last) is Ranks.ONE else None


def _are_ordered(trace: Trace, written: Saved, event: Loaded) -> bool:
    """Whether something between the two may make the ranks wait for each other."""
    between: list[Event] = trace.events[written.index + 1 : event.index]
    return any(
        one.collective or isinstance(one, Collective | MeshBuilt | ProcessGroupInit)
        for one in between
    )
