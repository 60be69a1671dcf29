"""FSDP148: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.several_meshes import several_meshes


class ClippingOverMeshes(Rule):
    """Gradients are clipped together that tensor parallelism and FSDP2 have put on several meshes.

    ## What it does
    Finds `torch.nn.utils.clip_grad_norm_` with all parameters of a model, in which a plan for `parallelize_module`
    distributes the parameters of some layers, and `fully_shard` alone shards those of others, such as norms that the
    plan leaves out.

    A program that makes DTensors itself (`distribute_tensor`, `distribute_module`, `DTensor.from_local`) and a plan
    that is not known are not reported.

    ## Why is this bad?
    The layers in the plan have gradients on the mesh of both dimensions, the others on that of `fully_shard`. The
    clipping stacks their norms and raises an error in the first step: "RuntimeError: All operands in
    aten.stack.default must have the same mesh". The optimizer alone raises none.

    Put each layer with parameters into the plan, such as norms with `SequenceParallel()`. Or compute the norm of each
    group with `get_total_norm`, make one norm of their `full_tensor()`, and pass it to `clip_grads_with_norm_` for
    each group.

    ## Since
    torch 2.4, the first with FSDP2 (seen with torch 2.13).

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/TP_tutorial.html (norms with `SequenceParallel`)
    - pytorch/torchtitan, `clip_grad_norm_` of its own for parameters on several meshes
    """

    code = "FSDP148"
    name = "clipping-over-meshes"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for found in several_meshes(trace):
            if found.clipped.site in seen:
                continue
            seen.add(found.clipped.site)
            part, other = (class_name(trace, one) for one in (found.part, found.other))
            yield self.finding(
                found.clipped,
                f"gradients of `{other}` are on the mesh of `fully_shard`, and those of `{part}` on that of tensor "
                "parallelism, too: their norms cannot be stacked",
                help="Put all layers with parameters into the plan, such as norms with `SequenceParallel()`.",
                because=[(found.parallel, "the plan distributes only some of the parameters")],
            )
