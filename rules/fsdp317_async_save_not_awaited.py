"""FSDP317: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, Loaded, ProcessGroupDestroyed, Saved, Trace
from fsdplint.trace.queries.checkpoint_formats import is_distributed


class AsyncSaveNotAwaited(Rule):
    """Nothing waits for an asynchronous save before the next checkpoint or the end of the group.

    ## What it does
    Finds `torch.distributed.checkpoint.async_save` where the program drops the result, and later writes or
    reads a distributed checkpoint, or calls `destroy_process_group`. Also finds it where the program keeps the result,
    and certainly waits for nothing in between.

    ## Why is this bad?
    The save goes on in the background, with collectives of its own. A second save at the same time mixes
    them up: on two ranks, four saves without a wait hung. When the process group ended right after a save,
    the checkpoint had no `.metadata` file, and cannot be loaded. There is no error.

    Keep the result, and wait for it before the next save and at the end:

        if future is not None:
            future.result()
        future = dcp.async_save(state, checkpoint_id=folder)

    ## Since
    torch 2.3, the first with `async_save`.

    ## References
    - https://docs.pytorch.org/tutorials/recipes/distributed_async_checkpoint_recipe.html
    """

    code = "FSDP317"
    name = "async-save-not-awaited"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Saved):
            kept = event.unawaited and trace.complete and not event.ranks.partial
            if not (event.dropped or kept) or event.site in seen:
                continue
            after = _next_use(trace, event)
            if after is None:
                continue
            seen.add(event.site)
            what = "the end of the process group"
            if not isinstance(after, ProcessGroupDestroyed):
                what = "the next checkpoint"
            yield self.finding(
                event,
                f"nothing waits for this asynchronous save before {what}",
                help="Keep the result of `async_save`, and call its `result()` first.",
                because=[(after, "here")] if after.site != event.site else [],
            )


def _next_use(trace: Trace, event: Saved) -> Event | None:
    """The next event that needs the save to be done."""
    for other in trace.after(event, Saved, Loaded, ProcessGroupDestroyed):
        if isinstance(other, ProcessGroupDestroyed):
            return other
        if isinstance(other, Saved | Loaded) and is_distributed(other):
            if not _goes_another_way(event, other):
                return other
    return None


def _goes_another_way(event: Event, other: Event) -> bool:
    """Whether a test went another way for one of two events."""
    return any(g.text == o.text and g.holds != o.holds for g in event.guards for o in other.guards)
