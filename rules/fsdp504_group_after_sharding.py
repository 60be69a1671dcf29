"""FSDP504: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Event,
    GuardKind,
    MeshBuilt,
    ProcessGroupDestroyed,
    ProcessGroupInit,
    Ranks,
    RunElsewhere,
    Sharded,
    Trace,
)


class GroupAfterSharding(Rule):
    """`init_process_group` is called when the default group exists already.

    ## What it does
    Finds `init_process_group` after `init_device_mesh`, after `fully_shard` without a mesh, or after
    another `init_process_group`, with no `destroy_process_group` in between.

    ## Why is this bad?
    `init_device_mesh`, and `fully_shard` without a mesh, create the default process group if there is
    none. A second one raises an error:

        ValueError: trying to initialize the default process group twice!

    Call `init_process_group` first, which also sets the backend and the timeout that you choose. Or
    remove the call, or test `dist.is_initialized()`.

    ## Since
    torch 2.2 for `init_device_mesh`, 2.4 for `fully_shard`.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`mesh`)
    - https://docs.pytorch.org/docs/stable/distributed.html (`init_device_mesh`)
    """

    code = "FSDP504"
    name = "group-after-sharding"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterable[Finding]:
        if not trace.complete:
            return
        creator: Event | None = None
        for event in trace:
            if isinstance(event, ProcessGroupDestroyed | RunElsewhere):
                creator = None
            elif isinstance(event, ProcessGroupInit) and creator is not None:
                # A group that torch creates itself has the place of the call that made torch do so.
                here, there = (event.site, event.stack), (creator.site, creator.stack)
                if here != there and _reached_by_all_ranks(event):
                    yield self._finding(event, creator)
            elif creator is None and _makes_group(event) and _reached_by_all_ranks(event):
                creator = event

    def _finding(self, event: ProcessGroupInit, creator: Event) -> Finding:
        what = {MeshBuilt: "`init_device_mesh`", Sharded: "`fully_shard`"}.get(
            type(creator), "`init_process_group`"
        )
        return self.finding(
            event,
            f"{what} has created the default process group already: this call fails",
            help="Call `init_process_group` first, or remove it.",
            because=[(creator, "group created here")],
        )


def _makes_group(event: Event) -> bool:
    if isinstance(event, Sharded):
        return not {"mesh", "**"} & set(event.options)
    return isinstance(event, ProcessGroupInit | MeshBuilt)


def _reached_by_all_ranks(event: Event) -> bool:
    """Whether all ranks come to it, whatever happens within the run."""
    return event.ranks is Ranks.ALL and not any(
        guard.kind is not GuardKind.CONFIG for guard in event.guards
    )
