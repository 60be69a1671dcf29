"""FSDP105 on models of Transformers, of which a program shards the blocks alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


def shard(model):
    {shard}


dist.init_process_group("gloo")
model = AutoModelForCausalLM.from_pretrained("gpt2")
{before}
shard(model)
optimizer = torch.optim.SGD({parameters}, lr=0.1)
for batch in range(4):
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SEARCH = "for part in model.modules():\n        if {test}:\n            fully_shard(part)"
BLOCKS = [
    "for layer in model.model.layers:\n        fully_shard(layer)",
    "for block in model.transformer.h:\n        fully_shard(block)",
    "for layer in reversed(model.model.layers):\n        fully_shard(layer)",
    "for number, layer in enumerate(model.model.layers):\n        fully_shard(layer)",
    SEARCH.format(test="isinstance(part, LlamaDecoderLayer)"),
    SEARCH.format(test='type(part).__name__ == "LlamaDecoderLayer"'),
    SEARCH.format(test='type(part).__name__ in ("LlamaDecoderLayer", "GPT2Block")'),
    SEARCH.format(test='part.__class__.__name__ == "LlamaDecoderLayer"'),
    SEARCH.format(test='"DecoderLayer" in type(part).__name__'),
]


def found(
    tmp_path: Path,
    shard: str,
    *,
    before: str = "",
    parameters: str = "model.parameters()",
    code: str = "FSDP105",
) -> int:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(shard=shard, before=before, parameters=parameters))
    rule = rule_by_code(code)
    assert rule is not None
    return len(check(load([path]), [rule()]))


@pytest.mark.parametrize("shard", BLOCKS)
def test_the_rest_of_the_model_is_not_sharded(tmp_path: Path, shard: str) -> None:
    assert found(tmp_path, shard) == 1


@pytest.mark.parametrize("shard", BLOCKS)
def test_the_root_is_sharded(tmp_path: Path, shard: str) -> None:
    assert found(tmp_path, f"{shard}\n    fully_shard(model)") == 0


MORE = [
    "for part in model.children():\n        fully_shard(part)",
    "for layer in model.model.layers:\n        fully_shard(layer)\n"
    "    for part in (model.model.embed_tokens, model.model.norm, model.lm_head):\n"
    "        fully_shard(part)",
    'for name, part in model.named_modules():\n        if "model" in name:\n'
    "            fully_shard(part)",
    SEARCH.format(test="len(list(part.parameters(recurse=False))) > 0"),
    SEARCH.format(test='type(part).__name__ in ("LlamaModel", "Linear")'),
]


@pytest.mark.parametrize("shard", MORE)
def test_other_parts_are_sharded_too(tmp_path: Path, shard: str) -> None:
    assert found(tmp_path, shard) == 0


BODIES = [
    "fully_shard(model.model)",
    "for layer in model.model.layers:\n        fully_shard(layer)\n    fully_shard(model.model)",
    "for layer in model.transformer.h:\n        fully_shard(layer)\n    fully_shard(model.transformer)",
    "inner = model.model\n    for layer in inner.layers:\n        fully_shard(layer)\n    fully_shard(inner)",
    "fully_shard(model.model.embed_tokens)\n    fully_shard(model.model)",
]


@pytest.mark.parametrize("shard", BODIES)
def test_the_head_is_not_sharded(tmp_path: Path, shard: str) -> None:
    assert found(tmp_path, shard) == 1


@pytest.mark.parametrize("shard", BODIES)
def test_the_head_is_sharded(tmp_path: Path, shard: str) -> None:
    assert found(tmp_path, f"{shard}\n    fully_shard(model.lm_head)") == 0
    assert found(tmp_path, f"{shard}\n    fully_shard(model)") == 0


FROZEN = [
    "model.requires_grad_(False)\nadd_adapters(model)",
    "for parameter in model.parameters():\n    parameter.requires_grad = False",
    'for name, parameter in model.named_parameters():\n    parameter.requires_grad = "layers" in name',
    "prepare(model)",
]


@pytest.mark.parametrize("before", FROZEN)
def test_the_rest_may_be_frozen(tmp_path: Path, before: str) -> None:
    assert found(tmp_path, BLOCKS[0], before=before) == 0
    assert found(tmp_path, BODIES[0], before=before) == 0


@pytest.mark.parametrize("shard", BODIES[1:3])
def test_blocks_below_a_sharded_part_are_sharded(tmp_path: Path, shard: str) -> None:
    assert found(tmp_path, shard, code="FSDP104") == 0


PARTS = [
    "model.model.layers.parameters()",
    "[p for name, p in model.named_parameters() if name.startswith('model.layers')]",
]


@pytest.mark.parametrize("parameters", PARTS)
def test_the_optimizer_may_have_the_blocks_alone(tmp_path: Path, parameters: str) -> None:
    assert found(tmp_path, BLOCKS[0], parameters=parameters) == 0
