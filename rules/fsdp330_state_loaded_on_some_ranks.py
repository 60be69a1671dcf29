"""FSDP330: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import SchedulerBuilt, Trace
from fsdplint.trace.queries.common import optimizer_named, optimizer_of
from fsdplint.trace.queries.one_sided_loads import loads_of_some_ranks
from fsdplint.trace.queries.one_sided_steps import deciding_test


class StateLoadedOnSomeRanks(Rule):
    """Only some ranks load the state of an optimizer or scheduler from a checkpoint.

    ## What it does
    Finds `scheduler.load_state_dict(...)` and `optimizer.load_state_dict(...)` under a test of the rank, if the
    parameters of the optimizer are sharded and all ranks go on to step it.

    It reports nothing if the other ranks load a state at another place, for example after a broadcast, or if all ranks
    load it in turn.

    ## Why is this bad?
    Each rank updates its own part of each parameter with the learning rate and the moments that it has itself. The ranks
    that load nothing start anew, warmup included, and there is no error. After a resume on two ranks, a schedule that
    halves the learning rate prints:

        rank 0: learning rate 0.0125
        rank 1: learning rate 0.1000

    Load the state on all ranks. If only one rank can read the file, broadcast the state with
    `broadcast_object_list` first.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html: the optimizer of each rank holds the
      sharded parameters.
    - https://docs.pytorch.org/docs/stable/optim.html (`load_state_dict`)
    """

    code = "FSDP330"
    name = "state-loaded-on-some-ranks"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        schedulers = {built.scheduler: built for built in trace.of(SchedulerBuilt)}
        seen: set[object] = set()
        for event, optimizer in loads_of_some_ranks(trace):
            if event.site in seen:
                continue
            seen.add(event.site)
            built = optimizer_of(trace, optimizer)
            name = optimizer_named(built) if built is not None else "the optimizer"
            scheduler = schedulers.get(event.into)
            guard = deciding_test(event)
            test = f" ({guard})" if guard is not None else ""
            what = f"the scheduler of {name}" if scheduler is not None else name
            damage = "another learning rate" if scheduler is not None else "another state"
            yield self.finding(
                event,
                f"only some ranks load the state of {what}{test}: each rank updates its own part of the "
                f"parameters with {damage}",
                help="Load it on all ranks.",
            ).with_test(guard)
