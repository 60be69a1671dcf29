"""FSDP151: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Called,
    Collective,
    GradMode,
    StateLoaded,
    Trace,
    WeightsSet,
)
from fsdplint.trace.queries.common import class_name, sharded_here


class StatisticsOfEachRank(Rule):
    """A sharded model is evaluated with the BatchNorm statistics that each rank has for itself.

    ## What it does
    Finds a sharded model with `nn.BatchNorm1d`, `2d` or `3d` that is trained in training mode and then called in
    evaluation mode, if nothing in the program reduces or broadcasts the buffers, or loads or sets a state in between.

    ## Why is this bad?
    FSDP shards and reduces parameters, not buffers. Each rank updates the running statistics with its own batches, and
    unlike DDP, FSDP does not broadcast those of rank 0. There is no error: each rank evaluates another model, and a
    checkpoint has the statistics of one rank. Two ranks print the running mean after training:

        mean 1.1 on rank 0, 2.1 on rank 1

    Convert the model with `nn.SyncBatchNorm.convert_sync_batchnorm` before it is sharded, or average the buffers over
    the ranks before the evaluation.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html
    - https://docs.pytorch.org/docs/stable/fsdp.html (buffers are not sharded)
    """

    code = "FSDP151"
    name = "statistics-of-each-rank"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete or any(map(_may_reduce_buffers, trace.of(Collective))):
            return
        trained: dict[str, Called] = {}
        seen = set()
        for event in trace.of(Called, StateLoaded, WeightsSet):
            if not isinstance(event, Called):
                trained.clear()
                continue
            if event.inside is not None or event.module in seen:
                continue
            if event.statistics and event.in_loop and _is_trained(trace, event):
                trained[event.module] = event
            elif event.training is False and event.module in trained:
                layer = trained[event.module].statistics
                if not _is_seen(trace, event.module):
                    continue
                seen.add(event.module)
                yield self.finding(
                    event,
                    f"`{class_name(trace, layer)}` in `{class_name(trace, event.module)}` has the statistics of each "
                    "rank's own batches, so each rank evaluates another model",
                    help="Use `nn.SyncBatchNorm.convert_sync_batchnorm`, or average the buffers over the ranks.",
                    because=[
                        (trained[event.module], "trained here"),
                        *sharded_here(trace, event.module, event),
                    ],
                )


def _may_reduce_buffers(event: Collective) -> bool:
    """Whether a collective may get the buffers of a model."""
    if "barrier" in event.api or "object" in event.api or event.api == "new_group":
        return False
    known = event.few_elements or event.of_output or event.gradient_of or event.parameters_of
    return not known


def _is_trained(trace: Trace, event: Called) -> bool:
    backward = next(iter(trace.after(event, BackwardRun)), None)
    return event.grad is not GradMode.OFF and backward is not None


def _is_seen(trace: Trace, module: str) -> bool:
    """Whether a module is sharded, and no code out of sight may have changed its buffers."""
    if trace.sharded_within(module) is None:
        return False
    return not any(trace.module(part).escaped for part in trace.submodules(module))
