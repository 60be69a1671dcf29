"""FSDP414: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Event,
    GradientsZeroed,
    GroupOptionSet,
    OptimizerStepped,
    ScalerStepped,
    SchedulerStepped,
    ShardCopySet,
    Trace,
)
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import optimizer_named, optimizer_of, sharded_here
from fsdplint.trace.queries.one_sided_edits import edits_of_some_ranks
from fsdplint.trace.queries.one_sided_steps import (
    deciding_test,
    schedules_of_some_ranks,
    steps_of_some_ranks,
    zeroed_by_some_ranks,
)


class StepOnSomeRanks(Rule):
    """The optimizer of a sharded model, or its scheduler, steps on some of the ranks only.

    ## What it does
    Finds steps of an optimizer over sharded parameters that not every rank makes: under a test of the
    rank, or under a test that each rank decides by its own data, such as `if torch.isfinite(loss):`
    with the loss of the rank's own batch, or a test of the gradients that FSDP1 has sharded, of which
    each rank sees its own part. A real run shows each step that some rank leaves out.

    Also finds these under a test of the rank: changes in place of parameters that `fully_shard` has sharded, such as the
    update of a target network; changes of copies of sharded parameters, such as an average of the weights; and
    `zero_grad()`. A copy counts if all ranks have made it, before the last backward.

    Also finds steps of a learning-rate scheduler that not every rank makes, and a scheduler that gets a
    number which each rank computes from its own data, such as `ReduceLROnPlateau` with a loss that is
    not reduced over the ranks. The same holds for options of the parameter groups that the program sets:
    `group["lr"] *= 0.5` under such a test, or with such a number.

    It reports nothing where the other ranks step at another place, where the value that is tested was
    reduced over the ranks, and where a gradient scaler decides that it skips a step: FSDP407 is about that. In a real run
    it reports nothing either where a rank reads a number of its own shard: FSDP405 is about that.

    ## Why is this bad?
    Each rank holds a part of each parameter, and its optimizer updates this part alone. Where a rank
    leaves out a step, its parts stay as they were while those of the other ranks move on: the next
    forward gathers a mixture of old and new weights. There is no error and no hang. With two ranks, the
    weights of rank 0 moved by 13.1 and those of rank 1 by 0.

    An update of a target network on rank 0 alone changed rank 0's parts of it and left those of rank 1 as they were. So
    did the update of an average of the weights that each rank keeps as clones.

    With a scheduler that steps on rank 0 only, the parts of a parameter have different learning rates:
    0.025 on rank 0 and 0.1 on rank 1 after two steps.

    ## Since
    Always, under FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html: the optimizer of each rank
      holds the sharded parameters.
    """

    code = "FSDP414"
    name = "step-on-some-ranks"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen: set[object] = set()
        for event in steps_of_some_ranks(trace):
            if event.site not in seen:
                seen.add(event.site)
                yield self._finding(trace, event)
        for zeroed in zeroed_by_some_ranks(trace):
            if zeroed.site not in seen:
                seen.add(zeroed.site)
                yield self._zeroed(trace, zeroed)
        for edit, unit in edits_of_some_ranks(trace):
            guard = deciding_test(edit)
            place = (
                (guard.site, unit) if guard is not None and guard.site is not None else edit.site
            )
            if place not in seen:
                seen.add(place)
                yield self._edit(trace, edit, unit)
        for scheduled in schedules_of_some_ranks(trace):
            if scheduled.site not in seen:
                seen.add(scheduled.site)
                yield self._check_scheduled(trace, scheduled)

    def _zeroed(self, trace: Trace, event: GradientsZeroed) -> Finding:
        built = optimizer_of(trace, event.optimizer)
        name = optimizer_named(built) if built is not None else "the optimizer"
        guard = deciding_test(event)
        test = f" ({guard})" if guard is not None else ""
        finding = self.finding(
            event,
            f"only some ranks set the gradients of {name} to zero{test}: the parts of the other ranks get "
            "those of all steps together",
            help="Set them to zero on all ranks.",
        )
        return finding.with_test(guard)

    def _check_scheduled(self, trace: Trace, event: SchedulerStepped | GroupOptionSet) -> Finding:
        built = optimizer_of(trace, event.optimizer)
        name = optimizer_named(built) if built is not None else "the optimizer"
        if isinstance(event, GroupOptionSet):
            return self._option(event, name)
        why = "only some ranks do"
        if event.metric_differs:
            why = "each rank gives it a number of its own"
        parts = "each part of the parameters gets another learning rate"
        finding = self.finding(
            event,
            f"the scheduler of {name} has to step in the same way on every rank, but {why}: {parts}",
            help="Step on all ranks, and all-reduce the number that the scheduler gets.",
        )
        guard = deciding_test(event)
        return finding.with_test(guard)

    def _option(self, event: GroupOptionSet, name: str) -> Finding:
        guard = deciding_test(event)
        test = f" ({guard})" if guard is not None else ""
        why = "each rank gives it a number of its own" if event.differs else "only some ranks do"
        if guard is not None and guard.own_data is not None:
            why = f"each rank decides by its own {guard.decides_by}"
        finding = self.finding(
            event,
            f"`{event.option}` of {name} has to be set in the same way on every rank, but {why}{test}: each rank "
            "updates its own part of the parameters with another one",
            help="Set it on all ranks, and all-reduce the number that decides.",
        )
        return finding.with_test(guard)

    def _edit(self, trace: Trace, event: Event, unit: str) -> Finding:
        guard = deciding_test(event)
        test = f" ({guard})" if guard is not None else ""
        changed = f"the parameters of {Groups(trace).name(trace.unwrap(unit))}"
        if isinstance(event, ShardCopySet):
            changed = f"their copies of {changed}"
        return self.finding(
            event,
            f"only some ranks change {changed}{test}: each rank holds other parts of them",
            help="Change them on all ranks.",
            because=sharded_here(trace, unit, event),
        ).with_test(guard)

    def _finding(self, trace: Trace, event: OptimizerStepped | ScalerStepped) -> Finding:
        built = optimizer_of(trace, event.optimizer)
        name = optimizer_named(built) if built is not None else "the optimizer"
        guard = deciding_test(event)
        why = "only some ranks do"
        if guard is not None and guard.own_data is not None:
            why = f"each rank decides by its own {guard.decides_by}"
        test = f" ({guard})" if guard is not None else ""
        finding = self.finding(
            event,
            f"{name} has to step on every rank, but {why}{test}: each rank updates its own part of "
            "the parameters alone",
            help="Step on all ranks or on none: all-reduce what is tested, so that the test has the "
            "same result on all ranks.",
        )
        if guard is not None:
            places = [(guard.site, "test"), (guard.own_data, guard.own_data_here)]
            known = tuple((site, word) for site, word in places if site is not None)
            finding.related = (*known, *finding.related)
        return finding
