"""FSDP508: see the class."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Clipped, Collective, ProcessGroupInit, Sharded, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.backends import ONLY_ACCELERATORS

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class OffloadWithoutCpuGroup(Rule):
    """A tensor on the CPU is reduced over the ranks, but the process group has no CPU backend.

    ## What it does
    Finds `init_process_group("nccl")`, or another backend of accelerators alone, in a program whose
    `fully_shard` has a `CPUOffloadPolicy` and that clips with `torch.nn.utils.clip_grad_norm_`, or
    gathers parameters or gradients with `full_tensor()`. Also finds collectives such as `dist.all_reduce` of a tensor that the program makes with `device="cpu"`, or
    without a device (`torch.tensor([loss_sum, count])`) where it sets no other default device.

    ## Why is this bad?
    With CPU offloading, the sharded parameters and gradients are on the CPU. The reduction of their norm
    over the ranks runs there too, and so does `full_tensor()`. NCCL does not support this:

        RuntimeError: No backend type associated with device type cpu

    Every collective on a CPU tensor raises this error if the group has no CPU backend. The examples below
    need a GPU; `tests/gpu` runs them.

    ## Fix safety
    Safe: the backend `"nccl"` becomes `"cpu:gloo,cuda:nccl"`. CUDA tensors still go through NCCL.

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
        kept: set[str] = set()  # sharded without offloading
        groups = Groups(trace)
        for event in trace:
            if isinstance(event, ProcessGroupInit):
                begun = event
            elif isinstance(event, Sharded):
                policy = str(event.options.get("offload_policy", ""))
                modules = (event.module, *event.group)
                if policy.startswith("torch.distributed.fsdp.CPUOffloadPolicy"):
                    offloaded |= dict.fromkeys(modules, event)
                else:
                    kept.update(modules)
            elif begun is None or begun.backend not in ONLY_ACCELERATORS:
                continue
            elif isinstance(event, Collective) and _is_on_cpu(event):
                yield self._of_tensor(begun, event)
                return
            elif isinstance(event, Collective) and event.parameters_of:
                owners = [groups.owner(one, event) for one in event.parameters_of]
                if all(one and _all_offloaded(trace, one, offloaded, kept) for one in owners):
                    yield self._of_parameters(begun, offloaded[owners[0] or ""], event)
                    return
            elif isinstance(event, Clipped) and event.api == "utils" and event.collective:
                held = [
                    offloaded[part]
                    for module in event.modules
                    for part in trace.submodules(module)
                    if part in offloaded
                    and not offloaded[part].frozen
                    and (_all_offloaded(trace, module, offloaded, kept) or _is_trained(trace, part))
                ]
                if held:
                    yield self._of_gradients(begun, held[0], event)
                    return

    def _of_gradients(self, begun: ProcessGroupInit, shard: Sharded, clipped: Clipped) -> Finding:
        return self.finding(
            begun,
            "this process group has no CPU backend, but gradients are clipped on the CPU",
            help=f"Pass the backend {_with_cpu(begun)}.",
            because=[(shard, "offloaded to the CPU"), (clipped, "clipped here")],
        )

    def _of_parameters(self, begun: ProcessGroupInit, shard: Sharded, event: Collective) -> Finding:
        return self.finding(
            begun,
            "this process group has no CPU backend, but `full_tensor()` gathers tensors on the CPU",
            help=f"Pass the backend {_with_cpu(begun)}.",
            because=[(shard, "offloaded to the CPU"), (event, "gathered here")],
        )

    def _of_tensor(self, begun: ProcessGroupInit, event: Collective) -> Finding:
        return self.finding(
            begun,
            f"this process group has no CPU backend, but `{event.api}` gets a tensor on the CPU",
            help=f"Pass the backend {_with_cpu(begun)}, or move the tensor to the accelerator.",
            why=f"The backend `{begun.backend}` has no collectives for tensors on the CPU: "
            "`RuntimeError: No backend type associated with device type cpu`.",
            because=[(event, "communicated here")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.fixes.backend import with_cpu_backend

        return with_cpu_backend(finding, program)


def _all_offloaded(
    trace: Trace, module: str, offloaded: Container[str], kept: Container[str]
) -> bool:
    """Whether a module is offloaded with all its parts, so that any gradient is on the CPU."""
    return module in offloaded and not any(part in kept for part in trace.submodules(module))


def _is_trained(trace: Trace, module: str) -> bool:
    """Whether some parts of a module have parameters that are certainly not frozen."""
    return not all(trace.modules[part].frozen for part in trace.submodules(module))


def _is_on_cpu(event: Collective) -> bool:
    """Whether a collective of all ranks gets a tensor on the CPU, whatever its device is tested for."""
    tested = any("device" in guard.text or "is_cuda" in guard.text for guard in event.guards)
    return event.on_cpu and event.collective and not tested


def _with_cpu(begun: ProcessGroupInit) -> str:
    """The backend of a group with a CPU backend beside its own."""
    device = ONLY_ACCELERATORS[begun.backend or "nccl"]
    return f'"cpu:gloo,{device}:{begun.backend}"'
