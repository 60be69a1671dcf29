"""FSDP307: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import TensorsMixed, Trace
from fsdplint.trace.queries.common import class_name, only_fsdp2, sharded_here


class EmaOfPlainCopy(Rule):
    """An average of the weights is kept in plain tensors and updated with sharded parameters.

    ## What it does
    Finds `lerp_`, `add_`, `copy_`, arithmetic and `torch._foreach_...` between the sharded parameters of a
    model and plain tensors that were copied before `fully_shard`: a deep copy that is not sharded, or a
    dict of clones.

    ## Why is this bad?
    The parameters are DTensors once the model is sharded, but the copies are not. The first update ends with

        RuntimeError: aten.lerp_.Scalar got mixed torch.Tensor and DTensor, need to convert all
        torch.Tensor to DTensor before calling distributed operators!

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - pytorch/pytorch#82070: copy the model first, then shard both
    - https://docs.pytorch.org/docs/stable/distributed.tensor.html
    """

    code = "FSDP307"
    name = "ema-of-plain-copy"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(TensorsMixed):
            modules = {*event.plain_modules, *event.sharded_modules}
            if any(trace.family_escaped(module) for module in modules):
                continue
            if any(guard.of_tensor for guard in event.guards):
                continue
            if all(only_fsdp2(trace, module, event) for module in event.sharded_modules):
                yield self._finding(trace, event)

    def _finding(self, trace: Trace, event: TensorsMixed) -> Finding:
        module = event.sharded_modules[0] if event.sharded_modules else None
        operation = event.api.removeprefix("torch.")
        text = f"`{operation}` mixes sharded parameters with plain tensors"
        if module is not None:
            text = (
                f"`{operation}` mixes sharded parameters of `{class_name(trace, module)}` with plain "
                f"tensors that were copied before sharding"
            )
        return self.finding(
            event,
            text,
            help="Make both DTensors: copy the model first and apply `fully_shard` to both, or clone the "
            "parameters after `fully_shard`.",
            because=sharded_here(trace, module, event) if module is not None else (),
        )
