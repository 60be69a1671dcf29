"""FSDP501: see the class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Clipped,
    Collective,
    Event,
    Guard,
    GuardKind,
    Loaded,
    Ranks,
    Saved,
    Site,
    StateLoaded,
    StateTaken,
    Trace,
)
from fsdplint.trace.queries.collective_names import collective_text
from fsdplint.trace.queries.common import class_name, optimizer_of
from fsdplint.trace.queries.data_parallelism import begins_process_group
from fsdplint.trace.queries.own_data import own_data_tests, undecided_collectives
from fsdplint.trace.queries.rank_divergence import unmatched_collectives
from fsdplint.trace.queries.rank_matching import ran_out

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

# How ranks agree on what each of them decides by its data, or by its clock.
_AGREE = {False: "all-reduce what is tested", True: "broadcast what one rank decides"}


class CollectiveUnderRankGuard(Rule):
    """A collective runs on some of the ranks only.

    ## What it does
    Finds collectives that only one rank, or all ranks but one, reach: under `if rank == 0:`, after `if
    rank != 0: return`, in a loop over `loader if rank == 0 else []`, under `if logger is not None:` where
    only rank 0 has made the logger, in the methods of a callback that only rank 0 has in its list, and in
    other spellings (also of the local rank). Collectives are the gathered state dict of a sharded model
    (`get_model_state_dict` with `full_state_dict=True`, FSDP1's `state_dict()`), `full_tensor()`, forward
    and backward of a sharded model, clipping its gradients, `torch.distributed.checkpoint.save`, and the
    collectives of `torch.distributed`. A model is sharded, too, if Fabric's `FSDPStrategy`, Accelerate's
    plugin or an `accelerate launch` in a script of the project shards it.

    Also finds collectives that each rank runs or skips by its own data: `if torch.isnan(loss): continue`
    before the backward, a checkpoint under `if loss < best:`, a `break` by a loss that was never reduced
    or by the rank's clock, and a unit that a forward skips if no token chose it. The data of a rank are
    the batches of a `DistributedSampler` or of a slice by rank, the elements that a rank takes in turns
    of its own (`if i % world_size == rank`), what torch, NumPy or Python draws with a seed of the rank,
    and what NumPy or Python draws where nothing seeds them (torch has the same seed in each process
    then). A list that a loop over such a slice fills is the rank's own, too (`if not losses: return`),
    and so is the number of turns over a list that a function fills once with the rows that its data
    choose, and over `range(count)` of a number that the rank draws, or computes of all elements of its
    data (`lengths.max().item()`). A batch is the rank's own where samples of the program's dataset, and
    then batches of `collate_fn`, may be None (`if batch is None: continue`). After an `all_reduce`,
    `all_gather` or `broadcast` the ranks agree; a `raise` or `exit` under such a test ends the program
    and is not reported.

    Also finds a collective of all ranks, or a distributed save or load, that only the ranks at one
    position of their groups run: `dist.all_reduce(loss)` under `if mesh["tp"].get_local_rank() == 0`.

    Also finds `new_group` that only the ranks of the new group reach (`if rank in members:`), in a
    program that makes several groups. `use_local_synchronization=True` allows that.

    A collective is fine if the other ranks run a matching one: in the `else` of the same test, or in
    "rank 0 first" (`if rank != 0: barrier()`, the work, `if rank == 0: barrier()`). So are collectives
    that each rank runs in turns of its own, in a loop without a collective of all ranks; those of a
    subgroup, unless it is a dimension of a mesh of which one rank alone reaches them; FSDP2's own
    `state_dict()`, which does not communicate; FSDP1's `optim_state_dict_to_load` of whole tensors that
    every rank has; and states, forwards and norms of models that are only replicated (a mesh whose last
    dimension has one rank, `NO_SHARD`).

    ## Why is this bad?
    The rank waits for the other ranks, which never run the collective. The job hangs until NCCL's
    watchdog or a time limit ends it. Or the next collective of the other ranks matches this one, and the
    data is mixed up: in one run, an FSDP1 `state_dict()` on rank 0 "succeeded" with data that the other
    rank sent for its next forward. gloo often aborts: `gloo::EnforceNotMet ... Received data size doesn't
    match expected size`, or "Connection closed by peer" if the other rank has already finished.

    `new_group` itself does not wait for all ranks. But torch numbers the groups, and if the ranks have
    made different ones, they wait for each other for ever when they use them for the first time.

    ## Fix safety
    Safe: the collective moves out of the test, so that all ranks run it, and the code that uses its
    result stays under the test. A `barrier()` at the end of the body moves behind it. Other conditions of
    the test (`step % 100 == 0 and rank == 0`) also apply to the moved collective; they have to be equal
    on all ranks (counters, settings and constants). There is no fix if code before the collective in the
    body has to run first, for larger code such as an evaluation on rank 0, if each rank tests its own
    data, for a call that uses what other ranks have as None, or for a group that only its members make,
    since each rank has to keep another group.

    ## Since
    All versions.

    ## References
    - pytorch/pytorch#73383: "All ranks will still need to call all collectives"
    - https://docs.pytorch.org/docs/stable/distributed.html (collective functions)
    """

    code = "FSDP501"
    name = "collective-under-rank-guard"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        groups: dict[object, list[Event]] = {}
        for event in unmatched_collectives(trace):
            if ran_out(trace, event):
                continue  # FSDP702
            guard = rank_guard(event)
            if guard is not None and guard.asserted:
                continue  # another place keeps the other ranks away
            place = (guard.site or guard.text) if guard is not None else None
            groups.setdefault((place, event.ranks), []).append(event)
        for events in groups.values():
            yield self._finding(trace, events)
        yield from self._by_own_data(trace)
        yield from self._by_position(trace, {one.site for some in groups.values() for one in some})

    def _by_position(self, trace: Trace, seen: set[Site]) -> Iterator[Finding]:
        """Collectives of all ranks that the ranks at one position of their groups reach.

        seen: the places of collectives with a finding.
        """
        under: list[set[str]] = []  # the tests of those with a finding
        events: list[Collective | Saved | Loaded] = [
            *trace.of(Collective),
            *trace.of(Saved),
            *trace.of(Loaded),
        ]
        for event in sorted(events, key=lambda one: one.index):
            if event.of_position and event.site not in seen:
                seen.add(event.site)
                tests = {guard.text for guard in event.guards}
                if any(known <= tests for known in under):
                    continue
                under.append(tests)
                group = "its group" if event.of_position == "?" else f"`{event.of_position}`"
                yield self.finding(
                    event,
                    f"{describe(trace, event)} has to run on every rank, but only the ranks at one position in "
                    f"{group} reach it",
                    help="Run it on all ranks, or pass the group of the ranks that run it: "
                    '`group=mesh["dp"].get_group()`.',
                )

    def _by_own_data(self, trace: Trace) -> Iterator[Finding]:
        if not begins_process_group(trace):
            return  # perhaps one process, whose tests of the number of processes are not known
        groups: dict[object, list[Event]] = {}
        for event in undecided_collectives(trace):
            guard = own_data_tests(event)[-1]
            groups.setdefault((guard.site or guard.text), []).append(event)
        for events in groups.values():
            event, guard = events[0], own_data_tests(events[0])[-1]
            finding = self.finding(
                event,
                f"{describe(trace, event)} has to run on every rank, but each rank decides by its "
                f"own {guard.decides_by} whether it does ({guard})",
                help=f"Let the ranks decide together: {_AGREE[guard.by_clock]}, so that the test has the same "
                "result on all ranks.",
                because=[
                    (other, f"{describe(trace, other)} too") for other in _at_distinct_sites(events)
                ],
            )
            related = [(guard.site, "test"), (guard.own_data, guard.own_data_here)]
            places = tuple((site, word) for site, word in related if site is not None)
            finding.related = (*places, *finding.related)
            finding.cause = guard.site
            yield finding

    def _finding(self, trace: Trace, events: list[Event]) -> Finding:
        event = events[0]
        guard = rank_guard(event)
        test = f" ({guard})" if guard is not None else ""
        who = {
            Ranks.ONE: "only one rank reaches it",
            Ranks.OTHERS: "one rank does not reach it",
        }.get(event.ranks, "only some ranks reach it")
        finding = self.finding(
            event,
            f"{describe(trace, event)} has to run on every rank, but {who}{test}",
            help=_OF_GROUPS if isinstance(event, Collective) and event.by_members else _OF_ONE_RANK,
            because=[
                (other, f"{describe(trace, other)} too") for other in _at_distinct_sites(events)
            ],
        )
        if guard is not None and guard.site is not None:
            finding.cause = guard.site
        return finding.with_test(guard, "rank test")

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.hoisting import hoist_collective

        event = finding.events[0]
        if isinstance(event, Collective) and event.by_members:
            return None  # all ranks make each group, and each one keeps its own
        guard = rank_guard(event)
        rewrite = Rewrite()
        if guard is None or not hoist_collective(rewrite, event.site, guard, program):
            return None
        return rewrite.fix("Run the collective on all ranks", Safety.SAFE)


_OF_ONE_RANK = (
    "Run it on all ranks. Keep only what one rank has to do (write, print) under the test."
)
_OF_GROUPS = (
    "Call it on all ranks, also those that are no members, and keep the group under the test."
)


def rank_guard(event: Event) -> Guard | None:
    """The innermost test of the rank that keeps some ranks from the event."""
    for guard in reversed(event.guards):
        if guard.kind is GuardKind.RANK and guard.ranks.partial:
            return guard
    return None


def _at_distinct_sites(events: list[Event]) -> Iterator[Event]:
    """The further events, one for each place, up to a limit."""
    seen = {events[0].site}
    for event in events[1:]:
        if event.site not in seen and len(seen) < 5:
            seen.add(event.site)
            yield event


def describe(trace: Trace, event: Event) -> str:
    """A collective in words."""
    if isinstance(event, Clipped):
        return "clipping the gradients of a sharded model"
    if isinstance(event, StateTaken | StateLoaded):
        of = event.of if isinstance(event, StateTaken) else event.into
        built = optimizer_of(trace, of)
        name = built.class_name if built is not None else class_name(trace, of)
        return f"`{event.api.rpartition('.')[2]}` of sharded `{name}`"
    if isinstance(event, Saved):
        return f"`{event.api}`"
    return collective_text(trace, event)
