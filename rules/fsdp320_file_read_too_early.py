"""FSDP320: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Collective,
    Event,
    FileUsed,
    Loaded,
    MeshBuilt,
    Prepared,
    ProcessGroupInit,
    Ranks,
    Saved,
    Trace,
    is_inside,
)
from fsdplint.trace.queries.common import side, whole_file


class FileReadTooEarly(Rule):
    """One rank writes a file, and the other ranks read it without waiting for that rank.

    ## What it does
    Finds reads of a file on ranks that do not write it, if one rank writes the same file before, and no collective
    (`dist.barrier()`, a broadcast, a forward of the sharded model) and no code out of sight comes between the two. Reads and
    writes are `torch.load` and `torch.save`, `open`, `numpy.load` and `numpy.save`, and the methods of `pathlib.Path`.

    Also finds files that all ranks write in a folder that one rank makes before (`os.makedirs`, `Path.mkdir`), unless a
    library gets the folder, since it may make the folder, too.

    ## Why is this bad?
    Nothing orders the ranks: the others come to `torch.load` before the file is there, or while it is written.
    Which rank is first is a race. On two ranks, rank 1 raises:

        FileNotFoundError: [Errno 2] No such file or directory

    If the file of an earlier run or step is still there, the other ranks read that one, and there is no error:

        rank 0 is at step 1
        rank 1 is at step 0

    In a folder that is not there yet, the other ranks raise FileNotFoundError, too.

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
        yield from self._files(trace)
        yield from self._folders(trace)

    def _files(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Loaded, FileUsed):
            assert isinstance(event, Loaded | FileUsed)
            if event.site in seen or not _reads(event) or not _on_others(event):
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

    def _folders(self, trace: Trace) -> Iterator[Finding]:
        """A finding for each folder, at the first file in it."""
        for made in trace.of(FileUsed):
            if made.action != "folder" or not _by_one_rank(made) or _is_there(trace, made):
                continue
            for event in trace.after(made, FileUsed):
                if event.action == "folder" and made.path in event.path and not _by_one_rank(event):
                    break  # the other ranks make it, too
                if event.action == "folder" or not is_inside(event.folder, made.path):
                    continue
                # A file to read that the program has not written is there, and so is its folder.
                is_late = event.action == "write" and _may_be_others(event)
                if is_late and not _are_ordered(trace, made, event):
                    yield self.finding(
                        event,
                        "ranks use this folder that only one rank makes, and do not wait until it is there",
                        help="Call `dist.barrier()` on all ranks after the folder is made.",
                        because=[(made, "made on one rank here")],
                    )
                break


def _reads(event: Loaded | FileUsed) -> bool:
    if isinstance(event, FileUsed):
        return event.action == "read"
    return whole_file(event.api) and not event.perhaps_waited


def _on_others(event: Loaded | FileUsed) -> bool:
    """Whether other ranks than the first one certainly use one file."""
    return bool(event.path) and not event.per_rank and _may_be_others(event)


def _may_be_others(event: Loaded | FileUsed) -> bool:
    """Whether other ranks than the first one certainly come to an event."""
    return not event.callbacks and side(event) in (Ranks.ALL, Ranks.OTHERS)


def _by_one_rank(event: Saved | FileUsed) -> bool:
    one = side(event) is Ranks.ONE and not event.callbacks
    return one and bool(event.path) and not event.per_rank


def _write_of_one_rank(trace: Trace, event: Loaded | FileUsed) -> Saved | FileUsed | None:
    """The last event that writes the file; None if not one rank alone writes it."""
    last: Saved | FileUsed | None = None
    for written in trace.before(event, Saved, FileUsed):
        assert isinstance(written, Saved | FileUsed)
        if isinstance(written, FileUsed) and written.action != "write":
            continue
        if written.path == event.path:
            last = written
    if last is None or (isinstance(last, Saved) and not whole_file(last.api)):
        return None
    return last if _by_one_rank(last) else None


def _is_there(trace: Trace, made: FileUsed) -> bool:
    """Whether the folder may be there before: something has made it, or has used a file in it."""
    return any(
        one.path == made.path or is_inside(one.path, made.path) or is_inside(one.folder, made.path)
        for one in trace.before(made, FileUsed)
    )


def _are_ordered(trace: Trace, written: Event, event: Event) -> bool:
    """Whether something between the two may make the ranks wait for each other."""
    if isinstance(event, FileUsed) and event.waited_at > written.index:
        return True
    between: list[Event] = trace.events[written.index + 1 : event.index]
    return any(map(_waits, between)) or _has_others_waiting(trace, written)


def _waits(event: Event) -> bool:
    return event.collective or isinstance(event, Collective | MeshBuilt | ProcessGroupInit)


def _has_others_waiting(trace: Trace, event: Event) -> bool:
    """Whether the other ranks wait for one that lets them go on by its next collective.

    `if rank != 0: dist.barrier()`, before one rank does its work
    """
    last = next((one for one in reversed(trace.events[: event.index]) if _waits(one)), None)
    return last is not None and side(last) is Ranks.OTHERS
