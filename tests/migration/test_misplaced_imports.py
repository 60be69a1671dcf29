"""Imports of FSDP1's names from modules of its package that do not have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import HEAD, plan

BODY = """
policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
model = FSDP(
    Net(),
    auto_wrap_policy=policy,
    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
)
"""
IMPORTS = [
    "from torch.distributed.fsdp.mixed_precision import MixedPrecision\n"
    "from torch.distributed.fsdp.sharding import ShardingStrategy\n"
    "from torch.distributed.fsdp.auto_wrap import transformer_auto_wrap_policy\n",
    "from torch.distributed.fsdp.wrap import MixedPrecision, ShardingStrategy\n"
    "from torch.distributed.fsdp import transformer_auto_wrap_policy\n",
]
NOTE = "imports that raise ImportError are read as they are meant"


@pytest.mark.parametrize("imports", IMPORTS)
def test_a_name_counts_in_any_public_module(tmp_path: Path, imports: str) -> None:
    found, text = plan(tmp_path, imports + BODY)
    assert [one.reason for one in found.blockers] == []
    assert NOTE in [note.text for note in found.notes]
    assert (
        "fsdp.sharding" not in text and "fsdp.mixed_precision" not in text and "_wrap" not in text
    )
    assert "MixedPrecisionPolicy(param_dtype=torch.bfloat16" in text
    assert "reshard_after_forward" in text and "isinstance(module, Block)" in text


def test_imports_that_torch_has_have_no_note(tmp_path: Path) -> None:
    found, text = plan(tmp_path, BODY)
    assert text
    assert NOTE not in [note.text for note in found.notes]


def test_names_of_private_modules_stay_blockers(tmp_path: Path) -> None:
    other = HEAD.replace("StateDictType, ShardedStateDictConfig", "ShardedStateDictConfig")
    body = "from torch.distributed.fsdp._own import StateDictType\nprint(StateDictType)\n"
    found, _ = plan(tmp_path, "model = FSDP(Net())\n" + body, head=other)
    assert any("internal to FSDP1" in one.reason for one in found.blockers)
