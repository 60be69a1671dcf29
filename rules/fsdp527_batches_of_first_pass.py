"""FSDP527: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Called,
    GradMode,
    LoaderBuilt,
    LoaderIterated,
    SamplerBuilt,
    Trace,
)
from fsdplint.trace.queries.data_passes import out_of_sight


class BatchesOfFirstPass(Rule):
    """A model is trained on `itertools.cycle(loader)`, which repeats the batches of the first pass.

    ## What it does
    Finds `itertools.cycle` of a `DataLoader` whose `DistributedSampler` shuffles, if a sharded model is trained on
    its batches.

    A sampler with `shuffle=False` gives every pass the same order anyway, and is not reported.

    ## Why is this bad?
    `itertools.cycle` keeps each batch of the first pass, and yields the same objects again after it. There is no
    error: `set_epoch` has no effect, no later pass has another order or another augmentation, each rank sees
    its first part of the data only, and all batches stay in memory. Two ranks count the batches of three passes:

        distinct batches: 3 of 9

    A generator begins a new pass each time:

        def endless(loader, sampler):
            epoch = 0
            while True:
                sampler.set_epoch(epoch)
                yield from loader
                epoch += 1

    ## Since
    All versions.

    ## References
    - https://docs.python.org/3/library/itertools.html (`cycle` saves a copy of each element)
    """

    code = "FSDP527"
    name = "batches-of-first-pass"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete or not trace.shardings():
            return
        seen = set()
        for begun in trace.of(LoaderIterated):
            if not begun.kept or begun.site in seen or not _shuffles(trace, begun):
                continue
            call = _training_call(trace, begun)
            if call is None:
                continue
            seen.add(begun.site)
            yield self.finding(
                begun,
                "`itertools.cycle` keeps the batches of the first pass over the loader: all later passes repeat them "
                "in the same order",
                help="Begin a new pass over the loader after each pass, and call `set_epoch` before it.",
                because=[(call, "trained on them")],
            )


def _shuffles(trace: Trace, begun: LoaderIterated) -> bool:
    built = next((one for one in trace.of(SamplerBuilt) if one.sampler == begun.sampler), None)
    if built is None or built.shuffle is not True:
        return False
    return not out_of_sight(trace, begun.loader, begun)


def _training_call(trace: Trace, begun: LoaderIterated) -> Called | None:
    """A call of a sharded model with a batch of the pass, before a backward pass."""
    built = next((one for one in trace.of(LoaderBuilt) if one.loader == begun.loader), None)
    found = None
    for event in trace.after(begun, Called, BackwardRun):
        if isinstance(event, BackwardRun):
            if found is not None:
                return found
        elif isinstance(event, Called) and event.inside is None and event.module is not None:
            own = built is not None and event.own_input == built.site
            own = own and event.grad is not GradMode.OFF
            own = own and trace.sharded_within(event.module, event) is not None
            found = event if own else None
    return None
