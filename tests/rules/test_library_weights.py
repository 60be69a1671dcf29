"""FSDP308 and FSDP309 on models of libraries, whose structure is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import timm
import torch
import torch.distributed as dist
import torchvision
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM
from transformers import PreTrainedModel

dist.init_process_group("gloo")
torch.manual_seed(7 + dist.get_rank())


class Own(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(8, 8)


config = AutoConfig.from_pretrained("gpt2")
"""


def found(tmp_path: Path, code: str, rule: str = "FSDP308") -> bool:
    path = tmp_path / "program.py"
    path.write_text(HEAD + code)
    kind = rule_by_code(rule)
    assert kind is not None
    return bool(check(load([path]), [kind()]))


RANDOM = [
    "torchvision.models.resnet50()",
    "torchvision.models.resnet50(weights=None)",
    "torchvision.models.vit_b_16(pretrained=False, num_classes=8)",
    "timm.create_model('resnet50', pretrained=False)",
    "timm.create_model('resnet50')",
    "AutoModelForCausalLM.from_config(config)",
    "LlamaForCausalLM(config)",
    "Own(config)",
    "Own._from_config(config=config)",
]
NOT_RANDOM = [
    "torchvision.models.resnet50('IMAGENET1K_V1')",
    "torchvision.models.resnet50(weights='DEFAULT')",
    "torchvision.models.resnet50(pretrained=True)",
    "torchvision.models.detection.fasterrcnn_resnet50_fpn()",
    "timm.create_model('resnet50', pretrained=True)",
    "timm.create_model('resnet50', True)",
    "timm.create_model('resnet50', checkpoint_path='a.pt')",
    "AutoModelForCausalLM.from_pretrained('gpt2')",
    "Own.from_pretrained('gpt2')",
]


@pytest.mark.parametrize("model", RANDOM)
def test_each_rank_initialises_its_own_weights(tmp_path: Path, model: str) -> None:
    assert found(tmp_path, f"model = {model}\nfully_shard(model)\n")


@pytest.mark.parametrize("model", NOT_RANDOM)
def test_loaded_weights_are_the_same_on_all_ranks(tmp_path: Path, model: str) -> None:
    assert not found(tmp_path, f"model = {model}\nfully_shard(model)\n")


@pytest.mark.parametrize(
    "rest",
    [
        "FSDP(model, sync_module_states=True)",
        "model.load_state_dict(torch.load('a.pt'))\nfully_shard(model)",
        "from elsewhere import prepare\nprepare(model)\nfully_shard(model)",
        "for p in model.parameters():\n    dist.broadcast(p.data, 0)\nfully_shard(model)",
    ],
)
def test_weights_may_become_equal(tmp_path: Path, rest: str) -> None:
    assert not found(tmp_path, f"model = torchvision.models.resnet50()\n{rest}\n")


def test_replicas_keep_their_own_weights(tmp_path: Path) -> None:
    code = "model = torchvision.models.resnet50()\n"
    code += "FSDP(model, sharding_strategy=ShardingStrategy.HYBRID_SHARD)\n"
    assert found(tmp_path, code, "FSDP309")
