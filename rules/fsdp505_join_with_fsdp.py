"""FSDP505: see the class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import JoinUsed, Sharding, Trace
from fsdplint.trace.queries.common import class_name, optimizer_of, sharded_here

# Optimizers of torch without `join_hook`.
_OPTIMIZERS = {
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam",
    "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam",
}  # fmt: skip


class JoinWithFsdp(Rule):
    """`Join` is used with a sharded model, or with an optimizer that does not support it.

    ## What it does
    Finds `torch.distributed.algorithms.Join([model])` with a model that `fully_shard` or FSDP1 shards, and
    `Join([optimizer])` with an optimizer of `torch.optim`.

    ## Why is this bad?
    `Join` lets ranks with fewer batches join the collectives of the others. DDP and
    `ZeroRedundancyOptimizer` support it; FSDP does not:

        AttributeError: 'FSDPLinear' object has no attribute 'join_hook'
        AttributeError: 'SGD' object has no attribute 'join_hook'

    Give every rank the same number of batches: `drop_last=True` in the sampler, or stop when the
    first rank has no batch left (an `all_reduce` of the counts with `ReduceOp.MIN`).

    ## Since
    torch 1.10, the first with `Join`.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
    """

    code = "FSDP505"
    name = "join-with-fsdp"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(JoinUsed):
            for module in event.modules:
                info = trace.modules.get(module)
                if info is None or info.wrapper == "ddp":
                    continue
                kind = trace.sharding(module, event)
                if kind is None:
                    continue
                how = "FSDP" if kind is Sharding.FSDP1 else "fully_shard"
                yield self.finding(
                    event,
                    f"`{class_name(trace, module)}` is sharded by `{how}`, which `Join` does not "
                    "support",
                    help="Give every rank the same number of batches.",
                    because=sharded_here(trace, module, event),
                )
                break
            else:
                yield from self._optimizers(trace, event)

    def _optimizers(self, trace: Trace, event: JoinUsed) -> Iterator[Finding]:
        for name in event.optimizers:
            built = optimizer_of(trace, name)
            if built is not None and built.class_name in _OPTIMIZERS:
                yield self.finding(
                    event,
                    f"`Join` does not support `{built.class_name}`",
                    help="Pass the model of DDP and a `ZeroRedundancyOptimizer` only.",
                    because=[(built, "built here")],
                )
                return
