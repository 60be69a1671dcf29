"""FSDP508: what parameters on the CPU are reduced or gathered."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

dist.init_process_group("nccl")
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
FREEZE
fully_shard(model, offload_policy=CPUOffloadPolicy())
model(torch.randn(2, 4)).sum().backward()
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
"""


@pytest.mark.parametrize(
    "freeze, count",
    [
        ("", 1),
        ("model[0].requires_grad_(False)", 1),
        ("model.requires_grad_(False)", 0),
        (
            "model.requires_grad_(False)\n"
            "for part in (model[0], model[2]):\n"
            "    fully_shard(part, offload_policy=CPUOffloadPolicy())",
            0,
        ),
    ],
)
def test_frozen_parameters(tmp_path: Path, freeze: str, count: int) -> None:
    assert found(tmp_path, PROGRAM.replace("FREEZE", freeze)) == count


GATHERED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

dist.init_process_group("nccl")
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
OFFLOADED
model(torch.randn(2, 4)).sum().backward()
GATHER
"""
WHOLE = "fully_shard(model, offload_policy=CPUOffloadPolicy())"
FIRST = "fully_shard(model[0], offload_policy=CPUOffloadPolicy())\nfully_shard(model)"


@pytest.mark.parametrize(
    "offloaded, gather, count",
    [
        (WHOLE, "norms = [p.full_tensor().norm() for p in model.parameters()]", 1),
        (WHOLE, "print(model[0].weight.full_tensor())", 1),
        (WHOLE, "print(model[0].weight.grad.full_tensor())", 1),
        ("model.requires_grad_(False)\n" + WHOLE, "model[2].bias.full_tensor()", 1),
        (FIRST, "print(model[0].weight.full_tensor())", 1),
        (FIRST, "print(model[2].weight.full_tensor())", 0),
        (FIRST, "norms = [p.full_tensor().norm() for p in model.parameters()]", 0),
        (WHOLE, "print(model[0].weight.to_local())", 0),
        (WHOLE, "print(model[0].weight.to('cuda').full_tensor())", 0),
        (WHOLE, "print(model[0].weight.cuda().detach().full_tensor())", 0),
        (WHOLE, "print(model[0].weight.grad.cuda().full_tensor())", 0),
        (WHOLE, "print(model[0].weight.grad.to('cuda').full_tensor())", 0),
        (WHOLE, "print(model[0].weight.detach().cpu().full_tensor())", 1),
        ("fully_shard(model, offload_policy=OffloadPolicy())", "model[0].weight.full_tensor()", 0),
        ("fully_shard(model)", "model[0].weight.full_tensor()", 0),
    ],
)
def test_whole_parameters(tmp_path: Path, offloaded: str, gather: str, count: int) -> None:
    program = GATHERED.replace("OFFLOADED", offloaded).replace("GATHER", gather)
    assert found(tmp_path, program) == count
    assert found(tmp_path, program.replace('"nccl"', '"cpu:gloo,cuda:nccl"')) == 0


def found(tmp_path: Path, program: str) -> int:
    path = tmp_path / "program.py"
    path.write_text(program)
    rule = rule_by_code("FSDP508")()
    return sum(len(list(rule.check(trace))) for trace in load([path]).traces)


REDUCED = """\
import math, time
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
model = nn.Linear(4, 4).cuda()
fully_shard(model)
begin, total, seen = time.time(), 0.0, 0
for batch in batches:
    loss = model(batch.cuda()).sum()
    loss.backward()
    total += loss.item()
    seen += len(batch)
values = TENSOR
dist.all_reduce(values)
"""


@pytest.mark.parametrize(
    "tensor, count",
    [
        ("torch.tensor(loss.item())", 1),
        ("torch.tensor(total / seen)", 1),
        ("torch.tensor(float(loss))", 1),
        ("torch.tensor(time.time() - begin)", 1),
        ("torch.tensor(max(math.exp(total), seen))", 1),
        ("torch.tensor(dist.get_rank())", 1),
        ("torch.tensor(total / seen, device='cuda')", 0),
        ("torch.tensor(total / seen).cuda()", 0),
        ("torch.tensor(loss)", 0),
        ("torch.tensor(loss / seen)", 0),
        ("torch.tensor(unknown())", 0),
        ("torch.tensor(max(loss, seen))", 0),
    ],
)
def test_tensors_of_numbers(tmp_path: Path, tensor: str, count: int) -> None:
    assert found(tmp_path, REDUCED.replace("TENSOR", tensor)) == count


BOTH = '"cpu:gloo,cuda:nccl"'


@pytest.mark.parametrize(
    "begin, after",
    [
        ('dist.init_process_group("nccl")', f"dist.init_process_group({BOTH})"),
        (
            'dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
            f'dist.init_process_group({BOTH} if torch.cuda.is_available() else "gloo")',
        ),
        (
            'backend = "nccl" if torch.cuda.is_available() else "gloo"\n'
            "dist.init_process_group(backend)",
            'backend = "nccl" if torch.cuda.is_available() else "gloo"\n'
            f'dist.init_process_group({BOTH} if backend == "nccl" else backend)',
        ),
    ],
)
def test_the_fix(tmp_path: Path, begin: str, after: str) -> None:
    text = GATHERED.replace("OFFLOADED", WHOLE).replace("GATHER", "model[0].weight.full_tensor()")
    path = tmp_path / "program.py"
    path.write_text(text.replace('dist.init_process_group("nccl")', begin))
    result = fix(Workspace([path]), [rule_by_code("FSDP508")()])
    assert result.texts[path].count(after) == 1
