"""FSDP702: see the class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import ranks
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, BatchesEnded, Called, Event, JoinUsed, Trace, UnequalTurns
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.collective_names import collective_text
from fsdplint.trace.queries.common import only_fsdp2
from fsdplint.trace.queries.gathered import StaysGathered
from fsdplint.trace.queries.rank_divergence import unmatched_collectives
from fsdplint.trace.queries.rank_matching import ran_out, same_place


class UnequalBatchCounts(Rule):
    """The ranks run a loop with collectives a different number of times.

    ## What it does
    Finds collectives in a loop (the forward of a sharded module, a `dist.all_reduce`, ...) that some
    ranks ran more often than others: one rank had fewer batches, or left the loop early.

    A rank that runs the same collectives at another place (for example for a dummy batch) is not
    reported, nor are loops without collectives, nor DDP under `Join`.

    A check without a run finds loops over `range(rank, count, world_size)`, over `elements[rank::world_size]`, or over a
    loader with such indices as its sampler or in a `Subset`, if the number of elements is known, two ranks make other
    numbers of turns, and each turn gathers a model that FSDP2 shards. A setting counts as its default. Loops that may
    end early (`break`) or that visit some of the elements only (`zip`, `islice`) are not reported, nor is a model that
    the function calls again after the loop.

    ## Why is this bad?
    The rank with more batches waits in an all-gather that the others never join: the program hangs until
    a timeout, or the transport breaks ("Connection closed by peer" with gloo). If the others continue with
    collectives of the same sizes, the wrong collectives match without an error, and the hang comes later.
    Validation loops are the usual place: a dataset is split into slices of different lengths.

    ## Since
    Always.

    ## References
    - https://docs.pytorch.org/docs/stable/data.html (`DistributedSampler`, `drop_last`)
    - pytorch/torchtitan#1618.
    """

    code = "FSDP702"
    name = "unequal-batch-counts"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen: set[tuple[int, ...]] = set()
        for event in unmatched_collectives(trace):
            if event.took_part in seen or not ran_out(trace, event):
                continue
            if any(trace.before(event, JoinUsed)):
                continue  # under `Join`, ranks without batches take part in the collectives of the others
            seen.add(event.took_part)  # the rest of the iteration runs on the same ranks only
            ended = _last_ended_loop(trace, event)
            yield self.finding(
                event,
                f"{collective_text(trace, event, short=True)} runs {_describe_counts(trace, event)}: a rank that has no batch left "
                "does not take part, and the others wait for it",
                help="Give every rank the same number of batches (`DistributedSampler` pads, "
                "`drop_last=True` cuts). Or let the ranks agree before each iteration whether all of "
                "them have a batch (`all_reduce` with `MIN`).",
                because=[
                    (end, f"ended after {end.batches} batches on {ranks(end.took_part)}")
                    for end in ended
                ],
            )
        groups = Groups(trace)
        places = set()
        for turns in trace.of(UnequalTurns):
            call = _forward(groups, turns)
            if call is None or call.site in places or _is_called_again(trace, turns, call):
                continue
            places.add(call.site)
            yield self.finding(
                call,
                f"{collective_text(trace, call, short=True)} runs {turns.most} times on one of two ranks and {turns.fewest} times "
                "on the other: the rank that has no batch left does not take part, and the other waits for it",
                help="Give every rank the same number of batches (`DistributedSampler` pads, "
                "`drop_last=True` cuts).",
                because=[(turns, "each rank takes its part here")],
            )


def _describe_counts(trace: Trace, event: Event) -> str:
    """Such as "3 times on rank 0 and 2 times on rank 1"."""
    counts: Counter[int] = Counter(dict.fromkeys(trace.ends, 0))
    for other in trace:
        if same_place(other, event):
            counts.update(other.took_part)
    by_count: dict[int, list[int]] = {}
    for rank, count in counts.items():
        by_count.setdefault(count, []).append(rank)
    parts = [
        f"{count} time{'' if count == 1 else 's'} on {ranks(sorted(by_count[count]))}"
        for count in sorted(by_count, reverse=True)
    ]
    return " and ".join(parts)


def _last_ended_loop(trace: Trace, event: Event) -> list[BatchesEnded]:
    """The loop that has ended on ranks that did not take part, the last one."""
    found = [end for end in trace.of(BatchesEnded) if not set(end.took_part) & set(event.took_part)]
    return found[-1:]


def _forward(groups: Groups, event: UnequalTurns) -> Called | None:
    """A forward of a sharded module that each turn of a loop calls, and that gathers in each."""
    trace = groups.trace
    if event.begin is None or event.callbacks or event.ranks.partial:
        return None
    stays = StaysGathered(groups)
    for one in trace.events[: event.begin]:
        stays.read(one)
    found = None
    for one in trace.events[event.begin : event.index]:
        if one.guards != event.guards or one.callbacks:
            continue
        if isinstance(one, Called) and one.collective:
            if stays.after(one) is None and only_fsdp2(trace, one.module, one):
                return one
            found = found or one
        elif isinstance(one, BackwardRun) and found is not None:
            return found
    return None


def _is_called_again(trace: Trace, event: UnequalTurns, call: Called) -> bool:
    """Whether the function with the loop calls the module at another place after the loop."""
    depth = len(event.stack)
    inner = (*call.stack, call.site)[depth : depth + 1]
    for one in trace.events[event.index + 1 :]:
        if one.stack[:depth] != event.stack:
            return False
        if isinstance(one, Called) and one.module == call.module:
            if (*one.stack, one.site)[depth : depth + 1] != inner:
                return True
    return False
