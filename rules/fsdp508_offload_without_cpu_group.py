"""FSDP508: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Clipped, ProcessGroupInit, Sharded, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

FLAT = """\
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")  # <- FSDP508
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer, offload_policy=CPUOffloadPolicy())
fully_shard(model, offload_policy=CPUOffloadPolicy())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(2):
    loss = model(torch.randn(4, 8, device="cuda")).pow(2).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""

TRAINER = """\
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.nn.utils import clip_grad_norm_


class Trainer:
    def __init__(self, model, lr):
        policy = CPUOffloadPolicy(pin_memory=False)
        for layer in model:
            fully_shard(layer, offload_policy=policy)
        self.model = fully_shard(model, offload_policy=policy)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)

    def step(self, x):
        loss = self.model(x).pow(2).mean()
        loss.backward()
        clip_grad_norm_(self.model.parameters(), max_norm=1.0)
        self.optimizer.step()
        return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl", device_id=torch.device("cuda", local_rank))  # <- FSDP508
    trainer = Trainer(nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8)), args.lr)
    print(f"loss {trainer.step(torch.randn(4, 8, device='cuda')).item():.4f}")
    dist.destroy_process_group()


main()
"""

BOTH_BACKENDS = FLAT.replace('"nccl")  # <- FSDP508', '"cpu:gloo,cuda:nccl")')
DEFAULT = FLAT.replace('"nccl")  # <- FSDP508', ")")
NO_CLIPPING = FLAT.replace("  # <- FSDP508", "").replace(
    "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", ""
)
NO_OFFLOADING = (
    FLAT.replace("  # <- FSDP508", "")
    .replace(", offload_policy=CPUOffloadPolicy()", "")
    .replace("CPUOffloadPolicy, ", "")
)


class OffloadWithoutCpuGroup(Rule):
    """Gradients that are offloaded to the CPU are clipped, and the group has no backend for the CPU.

    ## What it does
    Finds `init_process_group("nccl")` in a program whose `fully_shard` has a `CPUOffloadPolicy` and that
    clips with `torch.nn.utils.clip_grad_norm_`.

    ## Why is this bad?
    With CPU offloading the sharded gradients lie on the CPU. Their norm is added up over the ranks
    there, which NCCL can't do:

        RuntimeError: No backend type associated with device type cpu

    This is what any collective on a CPU tensor ends with in a group that has no backend for the CPU;
    the examples below run under `tests/gpu`.

    ## Fix safety
    Safe: the backend becomes `"cpu:gloo,cuda:nccl"`. CUDA tensors still go through NCCL.

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - pytorch/pytorch#148532
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (migration guide)
    """

    code = "FSDP508"
    name = "offload-without-cpu-group"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    bad = (
        Bad(
            FLAT,
            symptom=Symptom(raises="No backend type associated with device type cpu"),
            changes=(('init_process_group("nccl")', 'init_process_group("cpu:gloo,cuda:nccl")'),),
            healthy=r"loss \d",
            runs=False,
            why_not="needs a GPU",
        ),
        Bad(
            TRAINER,
            symptom=Symptom(raises="No backend type associated with device type cpu"),
            changes=(('backend="nccl"', 'backend="cpu:gloo,cuda:nccl"'),),
            healthy=r"loss \d",
            runs=False,
            why_not="needs a GPU",
        ),
    )
    good = (
        Good(BOTH_BACKENDS, why="gloo is there for the CPU", runs=False),
        Good(DEFAULT, why="without a name the group has a backend for each kind", runs=False),
        Good(NO_CLIPPING, why="nothing is added up on the CPU", runs=False),
        Good(NO_OFFLOADING, why="the gradients lie on the GPU", runs=False),
    )

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
                        "the group has no backend for the CPU, on which gradients are clipped",
                        help='Initialize it with "cpu:gloo,cuda:nccl".',
                        because=[(held[0], "offloaded to the CPU"), (event, "clipped here")],
                    )
                    return

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import argument, call_at

        found = call_at(finding.site)
        backend = argument(found[1], 0, "backend") if found is not None else None
        if found is None or backend is None or not isinstance(backend.value, cst.SimpleString):
            return None
        text = found[0].code(backend.value)
        rewrite = Rewrite()
        rewrite.replace(found[0], backend.value, text.replace("nccl", "cpu:gloo,cuda:nccl"))
        return rewrite.fix("Give the group a backend for the CPU", Safety.SAFE)
