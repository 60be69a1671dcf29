"""FSDP113 where PEFT puts adapters into a model that is sharded already."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
import torch.distributed as dist
from diffusers import UNet2DConditionModel
from peft import LoraConfig, get_peft_model, inject_adapter_in_model
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from transformers import AutoModelForCausalLM

dist.init_process_group("nccl")
model = AutoModelForCausalLM.from_pretrained("small")
"""
SHARD = "for layer in model.model.layers:\n    fully_shard(layer)\nfully_shard(model)\n"
WRAP = "model = FSDP(model, use_orig_params=True)\n"
TAIL = """\
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
for step in range(3):
    model(input_ids=torch.zeros(1, 4, dtype=torch.long)).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
ADAPTERS = [
    "model.add_adapter(LoraConfig(r=8))\n",
    'model.add_adapter(LoraConfig(r=8), adapter_name="second")\n',
    "model = get_peft_model(model, LoraConfig(r=8))\n",
    "model = inject_adapter_in_model(LoraConfig(r=8), model)\n",
    'model.load_adapter("adapter", adapter_name="second")\n',
    'model.load_lora_adapter("adapter", prefix=None, hotswap=False)\n',
    "inject_adapter_in_model(peft_config=LoraConfig(r=8), model=model)\n",
]


def late(tmp_path: Path, body: str) -> int:
    """The number of findings."""
    file = tmp_path / "main.py"
    file.write_text(HEAD + body + TAIL)
    rule = rule_by_code("FSDP113")
    assert rule is not None
    return len(check(load([file]), [rule()]))


@pytest.mark.parametrize("shard", [SHARD, WRAP])
@pytest.mark.parametrize("add", ADAPTERS)
def test_adapters_after_sharding(tmp_path: Path, add: str, shard: str) -> None:
    assert late(tmp_path, shard + add) == 1


@pytest.mark.parametrize("shard", [SHARD, WRAP])
@pytest.mark.parametrize("add", ADAPTERS)
def test_adapters_before_sharding(tmp_path: Path, add: str, shard: str) -> None:
    if "get_peft_model" in add:
        shard = shard.replace("model.model.layers", "model.base_model.model.model.layers")
    assert late(tmp_path, add + shard) == 0


def test_adapters_of_another_model(tmp_path: Path) -> None:
    body = (
        SHARD
        + 'other = UNet2DConditionModel.from_pretrained("x")\nother.add_adapter(LoraConfig())\n'
    )
    assert late(tmp_path, body) == 0


def test_a_method_of_the_program(tmp_path: Path) -> None:
    body = """\
class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def add_adapter(self, config):
        self.config = config

    def forward(self, x):
        return self.inner(x)


model = Own()
fully_shard(model)
model.add_adapter(None)
"""
    assert late(tmp_path, body) == 0


def test_weights_of_an_adapter_that_the_model_has(tmp_path: Path) -> None:
    load = 'model.load_lora_adapter("adapter", adapter_name="first", hotswap=True)\n'
    assert late(tmp_path, ADAPTERS[0] + SHARD + load) == 0
