"""FSDP306: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Layout, RawRead, Trace
from fsdplint.trace.queries.common import (
    class_name,
    perhaps_one_rank,
    sharded_by_fsdp2,
    sharded_here,
)

if TYPE_CHECKING:
    import libcst as cst

    from fsdplint.interpreter import Program


class RawShardedTensors(Rule):
    """The memory of a sharded tensor is read as if it were a plain tensor.

    ## What it does
    Finds `numpy()`, `tolist()`, `numpy.asarray(...)`, `data_ptr()` and `untyped_storage()` on parameters,
    gradients and state dicts that `fully_shard` shards, also after `detach()`, `cpu()`, `clone()`. Tensors
    from `full_tensor()` and `to_local()` are fine, and so are parameters that a forward or `unshard()`
    may have gathered.

    ## Why is this bad?
    These tensors are DTensors, which have no memory of their own. `numpy()` and `tolist()` end with

        RuntimeError: .numpy() is not supported for tensor subclasses.

    `untyped_storage()` ends with "its data is not allocated yet". `data_ptr()` returns 0 without an error.

    ## Fix safety
    Unsafe: `full_tensor()` gathers the parameter on all ranks first, which costs communication and
    memory for the whole tensor. There is no fix under a test of the rank, because all ranks have to take
    part, or for a state dict, because it may hold buffers, which are plain tensors.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.tensor.html (`DTensor.full_tensor`, `to_local`)
    - kvcache-ai/ktransformers#2147: the weights of a fine-tuning were lost
    """

    code = "FSDP306"
    name = "raw-sharded-tensors"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(RawRead):
            if event.layout is not Layout.SHARDED or any(guard.of_tensor for guard in event.guards):
                continue
            if event.of is not None and (
                not sharded_by_fsdp2(trace, event.of, event) or trace.escaped(event.of, event)
            ):
                continue
            yield self._finding(trace, event)

    def _finding(self, trace: Trace, event: RawRead) -> Finding:
        whose = f" of `{class_name(trace, event.of)}`" if event.of is not None else ""
        what = "gives 0 for" if event.api == "data_ptr" else "fails on"
        return self.finding(
            event,
            f"`{event.api}` {what} a sharded tensor{whose}: it is a DTensor, which has no memory of "
            f"its own",
            help="Gather it with `full_tensor()` on all ranks first, or take this rank's part with "
            "`to_local()`.",
            because=sharded_here(trace, event.of, event) if event.of is not None else (),
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.interpreter.torch_values import ParametersOf

        event = finding.events[0]
        found = call_at(finding.site)
        if found is None or perhaps_one_rank(event) or not isinstance(event, RawRead):
            return None
        source, call = found
        base = _base(call) if event.api in ("numpy", "tolist") else None
        values = program.values(base) if base is not None else []
        if base is None or not values:
            return None
        if not all(isinstance(value, ParametersOf) and value.element for value in values):
            return None
        rewrite = Rewrite()
        rewrite.insert(source, source.span(base)[1], ".full_tensor()")
        return rewrite.fix("Gather the parameter first", Safety.UNSAFE)


def _base(call: cst.Call) -> cst.BaseExpression | None:
    """The name that a chain such as `p.detach().cpu().numpy()` starts with."""
    import libcst as cst

    node: cst.BaseExpression = call
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and not node.args:
        node = node.func.value
    return node if isinstance(node, cst.Name) else None
