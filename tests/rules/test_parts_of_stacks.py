"""FSDP104 on parts of a model of Transformers, where the model itself stays plain."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("x")
{sharding}
optimizer = torch.optim.AdamW(model.parameters())
model(x).logits.mean().backward()
optimizer.step()
"""
BLOCKS = "for layer in model.model.layers:\n    fully_shard(layer)\n"


@pytest.mark.parametrize(
    "part", ["fully_shard(model.lm_head)\n", "fully_shard(model.model.embed_tokens)\n"]
)
def test_a_part_that_holds_no_blocks_is_no_root(tmp_path: Path, part: str) -> None:
    sharding = f"{BLOCKS}{part}fully_shard(model.model)"
    assert not findings(program(tmp_path, PROGRAM.format(sharding=sharding)), "FSDP104")


def test_the_model_alone_is_a_root(tmp_path: Path) -> None:
    assert findings(program(tmp_path, PROGRAM.format(sharding="fully_shard(model)")), "FSDP104")
