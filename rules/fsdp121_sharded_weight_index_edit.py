"""FSDP121: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Fsdp1Used, Gathered, RowEdited, Sharded, Site, Trace
from fsdplint.trace.groups import Groups, sharded_by


class ShardedWeightIndexEdit(Rule):
    """A row of a sharded parameter is changed in place, which has no effect.

    ## What it does
    Finds in-place methods on an index or slice of the first dimension of a parameter that
    `fully_shard` has sharded: `parameter[0].zero_()`, `parameter[:2].fill_(1.0)`.

    An index of another dimension (`parameter[:, 0]`) is fine, and so is everything before sharding.

    ## Why is this bad?
    The parameter is a DTensor that is sharded over its first dimension. Indexing that dimension gathers
    a copy, and the method changes the copy. There is no error: the row of the parameter keeps its values
    (the sum of its magnitudes was 1.309 before and after `weight[0].zero_()`).

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`: parameters become DTensors, sharded on dim 0.
    """

    code = "FSDP121"
    name = "sharded-weight-index-edit"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for event in trace.of(RowEdited):
            shard = _shard(groups, event)
            if shard is None or event.site in seen:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"`{event.api}` changes a copy: indexing a sharded parameter of "
                f"{groups.name(event.module)} gathers its rows, and the parameter stays as it was",
                help="Change the parameter before it is sharded, or multiply the whole parameter by a mask.",
                because=[(shard, "sharded here")],
            )


def _shard(groups: Groups, event: RowEdited) -> Sharded | None:
    """What sharded the parameter over its first dimension, if it certainly is so at the event."""
    owner = groups.owner(event.module, before=event)
    if owner is None or any(
        gathered.gathered and gathered.module == owner
        for gathered in groups.trace.before(event, Gathered)
    ):
        return None
    if any(
        used.api.endswith("summon_full_params") for used in groups.trace.before(event, Fsdp1Used)
    ):
        return None  # see FSDP206
    for shard in groups.trace.before(event, Sharded):
        if owner in sharded_by(shard):
            options = shard.options
            ignored = any(name.startswith("ignored_") for name in options)
            placed = "shard_placement_fn" in options or "**" in options
            return None if ignored or placed else shard
    return None
