"""FSDP508: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Clipped, ProcessGroupInit, Sharded, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class OffloadWithoutCpuGroup(Rule):
    """Gradients on the CPU are clipped, but the process group has no CPU backend.

    ## What it does
    Finds `init_process_group("nccl")` in a program whose `fully_shard` has a `CPUOffloadPolicy` and that
    clips with `torch.nn.utils.clip_grad_norm_`.

    ## Why is this bad?
    With CPU offloading, the sharded gradients are on the CPU. The reduction of their norm over the ranks
    runs there too, which NCCL does not support:

        RuntimeError: No backend type associated with device type cpu

    Every collective on a CPU tensor raises this error if the group has no CPU backend. The examples below
    need a GPU; `tests/gpu` runs them.

    ## Fix safety
    Safe: the backend becomes `"cpu:gloo,cuda:nccl"`. CUDA tensors still go through NCCL.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - pytorch/pytorch#148532
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    """

    code = "FSDP508"
    name = "offload-without-cpu-group"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        begun: ProcessGroupInit | None = None
        offloaded: dict[str, Sharded] = {}
        for event in trace:
            if isinstance(event, ProcessGroupInit):
                begun = event
            elif isinstance(event, Sharded):
                policy = str(event.options.get("offload_policy", ""))
                if policy.startswith("torch.distributed.fsdp.CPUOffloadPolicy"):
                    offloaded |= {module: event for module in (event.module, *event.group)}
            elif isinstance(event, Clipped) and event.api == "utils" and event.collective:
                held = [
                    offloaded[part]
                    for module in event.modules
                    for part in trace.submodules(module)
                    if part in offloaded
                ]
                if held and begun is not None and begun.backend == "nccl":
                    yield self.finding(
                        begun,
                        "this process group has no CPU backend, but gradients are clipped on the CPU",
                        help='Pass the backend "cpu:gloo,cuda:nccl".',
                        because=[(held[0], "offloaded to the CPU"), (event, "clipped here")],
                    )
                    return

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.fixes.backend import with_cpu_backend

        return with_cpu_backend(finding, program)
