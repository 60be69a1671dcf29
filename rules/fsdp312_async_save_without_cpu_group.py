"""FSDP312: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import ProcessGroupDestroyed, ProcessGroupInit, Saved, Trace
from fsdplint.trace.queries.backends import ONLY_ACCELERATORS

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class AsyncSaveWithoutCpuGroup(Rule):
    """A checkpoint is saved asynchronously, but the process group has no CPU backend.

    ## What it does
    Finds `torch.distributed.checkpoint.async_save` without a `process_group` of its own in a program whose
    `init_process_group` names backends for other devices only, such as `"nccl"`.

    ## Why is this bad?
    `async_save` copies the state to the CPU and coordinates the ranks there. The call fails:

        AssertionError: A CPU backend must be enabled for async save; try initializing process group with
        'cpu:gloo,cuda:nccl'

    ## Fix safety
    Safe: the backend `"nccl"` becomes `"cpu:gloo,cuda:nccl"`. CUDA tensors still go through NCCL.

    ## Since
    torch 2.3, the first with `async_save`.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`async_save`)
    - pytorch/pytorch#120241
    """

    code = "FSDP312"
    name = "async-save-without-cpu-group"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        group: ProcessGroupInit | None = None
        for event in trace:
            if isinstance(event, ProcessGroupInit | ProcessGroupDestroyed):
                group = event if isinstance(event, ProcessGroupInit) else None
            elif (
                isinstance(event, Saved) and event.api.endswith(".async_save") and group is not None
            ):
                if event.collective and not event.own_group and not _has_cpu_backend(group):
                    yield self.finding(
                        group,
                        "this process group has no CPU backend, which `async_save` needs",
                        help='Pass the backend "cpu:gloo,cuda:nccl".',
                        because=[(event, "saved here")],
                    )
                    return

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.fixes.backend import with_cpu_backend

        return with_cpu_backend(finding, program)


def _has_cpu_backend(group: ProcessGroupInit) -> bool:
    """Whether the group may have a backend for the CPU."""
    backend = (group.backend or "").lower()
    pairs = [pair.partition(":") for pair in backend.split(",")]
    if all(name for _, _, name in pairs):
        return any(device == "cpu" for device, _, _ in pairs)
    return backend not in ONLY_ACCELERATORS
