"""FSDP405 on the gradients of models whose parts are not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM

dist.init_process_group("gloo")
model = AutoModelForCausalLM.from_pretrained("gpt2")
{shard}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in range(4):
    model(input_ids=batch, labels=batch).loss.backward()
    grads = {grads}
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
    {reduce}
    torch._foreach_mul_(grads, torch.clamp(1.0 / (norm + 1e-6), max=1.0))
    optimizer.step()
    optimizer.zero_grad()
"""
ROOT = "for layer in model.transformer.h:\n    fully_shard(layer)\nfully_shard(model)"
LOCAL = "[p.grad.to_local() for p in model.parameters() if p.grad is not None]"
REDUCE = "norm = norm.square()\n    dist.all_reduce(norm)\n    norm = norm.sqrt()"


def found(tmp_path: Path, shard: str = ROOT, grads: str = LOCAL, reduce: str = "pass") -> int:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(shard=shard, grads=grads, reduce=reduce))
    rule = rule_by_code("FSDP405")
    assert rule is not None
    return len(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    "grads",
    [
        LOCAL,
        "[p.grad._local_tensor for p in model.parameters()]",
        "[p.grad.to_local() for _, p in model.named_parameters() if p.requires_grad]",
    ],
)
@pytest.mark.parametrize("shard", [ROOT, "fully_shard(model)"])
def test_each_rank_scales_by_its_own_norm(tmp_path: Path, shard: str, grads: str) -> None:
    assert found(tmp_path, shard, grads) == 1


@pytest.mark.parametrize("unseen", ["optimizer = build(model)", "prepare(model)"])
def test_code_out_of_sight_had_the_model_before(tmp_path: Path, unseen: str) -> None:
    assert found(tmp_path, f"{ROOT}\n{unseen}") == 1


def test_the_norm_is_that_of_all_ranks(tmp_path: Path) -> None:
    assert found(tmp_path, reduce=REDUCE) == 0


@pytest.mark.parametrize(
    ("shard", "grads"),
    [
        ("pass", LOCAL),
        ("fully_shard(model.transformer)", LOCAL),
        (ROOT, f"change(model) or {LOCAL}"),
        (ROOT, "[p.grad for p in model.parameters()]"),
        (ROOT, "[p.grad.full_tensor() for p in model.parameters()]"),
    ],
)
def test_the_gradients_may_be_whole(tmp_path: Path, shard: str, grads: str) -> None:
    assert found(tmp_path, shard, grads) == 0
