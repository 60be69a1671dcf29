"""FSDP514: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Collective,
    Event,
    GroupMissed,
    GuardKind,
    Loaded,
    MeshBuilt,
    ProcessGroupDestroyed,
    ProcessGroupInit,
    Ranks,
    RunElsewhere,
    Saved,
    Sharded,
    Site,
    StateLoaded,
    StateTaken,
    Trace,
)
from fsdplint.trace.queries.collective_names import collective_text

_OF_TENSORS = {"full_tensor", "distribute_tensor"}  # these have the group of their mesh


class NoProcessGroup(Rule):
    """A function needs the default process group before it exists, or after it was destroyed.

    ## What it does
    Finds `get_rank()`, `get_world_size()`, `get_backend()`, collectives and checkpoints that run before
    the program's `init_process_group`, or after its `destroy_process_group`, with no new group in
    between. Also finds a second `destroy_process_group`, and one in the process that started the ranks.

    `init_device_mesh`, and `fully_shard` without a mesh, create the group too. Code under a test of
    `is_initialized()` is fine, and so are programs that never create a group themselves: a library may.

    ## Why is this bad?
    The function raises an error:

        ValueError: Default process group has not been initialized, please make sure to call
        init_process_group.
        AssertionError: Process group cannot be None

    `torch.distributed.checkpoint.save` without a group raises no error. Each rank then writes as if it
    were alone, and the ranks overwrite each other's files.

    ## Since
    All versions.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html (Initialization, Shutdown)
    """

    code = "FSDP514"
    name = "no-process-group"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete:
            return
        first = next((one for one in trace.of(ProcessGroupInit) if _is_first(one)), None)
        life, causes = _Life(), set[Site]()
        for event in trace:
            if life.follows(event) or not _needs_group(event):
                continue
            if _error_was_handled(trace, event):
                continue
            cause = life.missing(event, first)
            if cause is None and trace.producer == "runtime" and isinstance(event, GroupMissed):
                cause = event, "does not exist yet"
            if cause is not None and cause[0].site not in causes:
                causes.add(cause[0].site)  # the program ends at the first of them
                yield self._finding(trace, event, *cause)

    def _finding(self, trace: Trace, event: Event, cause: Event, why: str) -> Finding:
        name = collective_text(trace, event, short=True)
        if cause.index >= event.index:
            help = "Call `init_process_group` first."
        elif isinstance(event, ProcessGroupDestroyed):
            help = "Remove this call."
        else:
            help = "Call `destroy_process_group` once, at the end of each rank."
        return self.finding(
            event,
            f"{name} needs the default process group, which {why}",
            help=help,
            because=[(cause, "here")] if cause is not event else [],
        )


@dataclass
class _Life:
    """Whether the process that runs the events has the default group.

    Attributes:
        ended: the event that destroyed it; None if it was not destroyed or exists.
        exists: whether the program has created it.
        elsewhere: an event that created it in another process.
        outside: the processes that wait for the one that runs, each with what started that one.
    """

    ended: Event | None = None
    exists: bool = False
    elsewhere: Event | None = None
    outside: list[tuple[Site, Event | None, bool]] = field(default_factory=list)

    def follows(self, event: Event) -> bool:
        """Take note of an event that changes whether there is a group."""
        if isinstance(event, RunElsewhere):
            self._change_process(event)
            return True
        if isinstance(event, ProcessGroupDestroyed):
            if not self.exists:
                return False
            self.ended = event if _is_certain(event) else None
            self.exists = False
            return True
        if isinstance(event, ProcessGroupInit | MeshBuilt | Sharded):
            self.ended, self.exists = None, True
            if self.outside and isinstance(event, ProcessGroupInit):
                self.elsewhere = event
            return True
        return False

    def _change_process(self, event: Event) -> None:
        if self.outside and self.outside[-1][0] == event.site:
            _, self.ended, self.exists = self.outside.pop()
        else:
            self.outside.append((event.site, self.ended, self.exists))
            self.ended, self.exists = None, False

    def missing(self, event: Event, first: ProcessGroupInit | None) -> tuple[Event, str] | None:
        """Why there is no group at an event, with the event that shows it; None if there may be."""
        if self.exists:
            return None
        if self.ended is not None and self.ended.callbacks == event.callbacks:
            return self.ended, "was destroyed before"
        destroys = isinstance(event, ProcessGroupDestroyed)
        if destroys and self.elsewhere is not None and not self.outside:
            return self.elsewhere, "only the started processes create"
        if first is None or self.outside or event.index > first.index:
            return None
        if not isinstance(event, GroupMissed):
            return None
        return first, "is created later"


def _needs_group(event: Event) -> bool:
    if isinstance(event, GroupMissed | ProcessGroupDestroyed):
        return True
    if isinstance(event, Collective):
        return event.collective and event.api.rpartition(".")[2] not in _OF_TENSORS
    return event.collective and isinstance(event, Saved | Loaded | StateTaken | StateLoaded)


def _error_was_handled(trace: Trace, event: Event) -> bool:
    """Whether a recorded run went on after a function that fails without a group."""
    if trace.producer != "runtime" or isinstance(event, Saved | Loaded):
        return False
    return event.index < len(trace.events) - 1 or "raised" not in trace.ends.values()


def _is_first(event: ProcessGroupInit) -> bool:
    """Whether no other code can have created the group before."""
    return _is_certain(event) and not event.tested


def _is_certain(event: Event) -> bool:
    """Whether all ranks come to an event, whatever happens within the run."""
    return (
        event.ranks is Ranks.ALL
        and not event.callbacks
        and all(guard.kind is GuardKind.CONFIG for guard in event.guards)
    )
