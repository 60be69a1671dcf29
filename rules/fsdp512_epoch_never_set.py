"""FSDP512: see the class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import EpochSet, GuardKind, LoaderBuilt, LoaderIterated, SamplerBuilt, Trace
from fsdplint.trace.queries.data_passes import out_of_sight, training_passes

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


def _passes_of_one_epoch(trace: Trace, loader: LoaderBuilt) -> Iterator[LoaderIterated]:
    """The training passes at one place in which a sampler of the program has one epoch."""
    passes = [one for one in training_passes(trace) if one.loader == loader.loader]
    sites = Counter(one.site for one in passes)
    site = next((one.site for one in passes if sites[one.site] > 1), None)
    held = [one for one in passes if one.site == site]
    if not held or not (held[0].epoch and held[-1].epoch_setter):
        return
    if any(one.epoch != held[0].epoch for one in held):
        return
    for one in held:
        if not out_of_sight(trace, one.loader, held[-1]):
            yield one


class EpochNeverSet(Rule):
    """A shuffling `DistributedSampler` goes through several epochs without `set_epoch`.

    ## What it does
    Finds a `DistributedSampler` that shuffles, if the program trains over its loader more than once and
    never calls `set_epoch`, or calls it with the same number each time.

    Also finds a sampler of the program that seeds its shuffle with an attribute which a method of the
    sampler sets, if no pass has another number there. This needs the code of the sampler, so that only a
    check finds it.

    Loaders for evaluation, samplers with `shuffle=False`, subclasses with their own order, and samplers
    that are passed to code that fsdplint does not follow are not reported.

    ## Why is this bad?
    The sampler seeds its order with `seed + epoch`, and the epoch stays 0 until `set_epoch` is called.
    There is no error: every epoch has the same batches in the same order. Two ranks and 16 samples:

        epoch 0 order [5, 10, 6, 12, 14, 3, 7, 2]
        epoch 1 order [5, 10, 6, 12, 14, 3, 7, 2]

    Each rank also sees the same half of the data in every epoch, and never the other half.

    ## Fix safety
    Safe: `sampler.set_epoch(epoch)` becomes the first statement of the loop over the epochs. The first
    epoch keeps its order. There is no fix if the loop does not count the epochs, if no variable there
    holds the sampler or its loader, or if the program sets the same number each time.

    ## Since
    All versions.

    ## References
    - https://docs.pytorch.org/docs/stable/data.html (`torch.utils.data.distributed.DistributedSampler`)
    """

    code = "FSDP512"
    name = "epoch-never-set"
    severity = Severity.WARNING
    changes_steps = True
    fixable = Safety.SAFE
    all_configurations = True

    def check(self, trace: Trace) -> Iterable[Finding]:
        if not trace.complete or not trace.shardings():
            return
        for built in trace.of(SamplerBuilt):
            passes = list(self._passes(trace, built))
            if len(passes) < 2:
                continue
            same = next((one for one in trace.of(EpochSet) if one.sampler == built.sampler), None)
            what = "is never called" if same is None else f"always gets {same.epoch}"
            because = [(passes[-1], "the same order in every pass")]
            yield self.finding(
                built,
                f"`set_epoch` {what}, so every epoch has the same order",
                help="Call `sampler.set_epoch(epoch)` at the beginning of each epoch.",
                because=because if same is None else [*because, (same, "the same number here")],
            )
        for loader in trace.of(LoaderBuilt):
            passes = list(_passes_of_one_epoch(trace, loader))
            if len(passes) > 1:
                held = passes[-1]
                yield self.finding(
                    loader,
                    f"the sampler seeds its order with `{held.epoch.partition(' ')[0]}`, which no "
                    "pass changes, so every epoch has the same order",
                    help=f"Call `{held.epoch_setter}` of the sampler at the beginning of each epoch.",
                    because=[(held, f"`{held.epoch}` in every pass")],
                )

    def concerns(self, trace: Trace, finding: Finding) -> bool:
        """Whether a trace goes more than once through the sampler of a finding.

        A trace in which nothing is sharded has no finding. If its passes have the same order, too,
        it contradicts none.
        """
        found = finding.events[0]
        if isinstance(found, LoaderBuilt):
            return self._concerns_loader(trace, found)
        built = [
            one
            for one in trace.of(SamplerBuilt)
            if one.site == found.site and one.stack == found.stack
        ]
        if not trace.shardings():
            built = [one for one in built if len(list(self._passes(trace, one))) < 2]
        samplers = {one.sampler for one in built}
        passes = Counter(one.sampler for one in training_passes(trace) if one.sampler in samplers)
        return any(count > 1 for count in passes.values())

    @staticmethod
    def _concerns_loader(trace: Trace, found: LoaderBuilt) -> bool:
        loaders = {one.loader for one in trace.of(LoaderBuilt) if one.site == found.site}
        passes = [one for one in training_passes(trace) if one.loader in loaders]
        if not trace.shardings() and all(one.epoch for one in passes):
            return False
        return any(count > 1 for count in Counter(one.loader for one in passes).values())

    @staticmethod
    def _passes(trace: Trace, built: SamplerBuilt) -> Iterator[LoaderIterated]:
        """The training passes at one place that have the same order."""
        passes = [p for p in training_passes(trace) if p.sampler == built.sampler]
        if built.shuffle is not True or not passes:
            return
        last = passes[-1]
        if out_of_sight(trace, built.sampler, last):
            return
        epochs = [one for one in trace.of(EpochSet) if one.sampler in (built.sampler, None)]
        if any(one.sampler is None or one.epoch is None for one in epochs):
            return
        if len({one.epoch for one in epochs}) > 1 or 0 < len(epochs) < 2:
            return
        sites = Counter(one.site for one in passes)
        site = next((one.site for one in passes if sites[one.site] > 1), None)
        for one in passes:
            if one.site == site and not out_of_sight(trace, one.loader, last):
                yield one

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.epochs import set_epoch_in_loop

        built, begun, *sets = finding.events
        if sets or isinstance(built, LoaderBuilt) or not isinstance(begun, LoaderIterated):
            return None
        config = {guard for guard in built.guards if guard.kind is GuardKind.CONFIG}
        if not config <= set(begun.guards):
            return None  # in other configurations there may be no such sampler
        if any(guard.kind is GuardKind.VARYING for guard in begun.guards):
            return None  # the loop around it does not count the passes
        rewrite = Rewrite()
        if not set_epoch_in_loop(rewrite, program, begun):
            return None
        return rewrite.fix("Set the sampler's epoch", Safety.SAFE)
