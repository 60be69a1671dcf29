"""Containers of tensors that `tree_map` and similar functions change leaf by leaf."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEAD = """\
import torch
import torch.distributed as dist
import torch.utils._pytree as pytree
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.utils._pytree import tree_map, tree_map_only

dist.init_process_group("gloo")
model = nn.Linear(4, 1)
fully_shard(model)

def cast(value):
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(torch.bfloat16)
    return value
"""
MAPS = [
    "tree_map(cast, state)",
    "pytree.tree_map(lambda value: cast(value), state)",
    "tree_map_only(torch.Tensor, cast, state)",
]


@pytest.mark.parametrize("mapped", MAPS)
@pytest.mark.parametrize(("test", "found"), [("dist.get_rank() == 0", True), ("True", False)])
def test_a_state_of_one_rank(tmp_path: Path, mapped: str, test: str, found: bool) -> None:
    code = f"state = {{}}\nif {test}:\n    state = torch.load('model.pt')\nstate = {mapped}\n"
    code += "set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))\n"
    codes = [one.rule.code for one in findings(program(tmp_path, code, header=HEAD), "FSDP310")]
    assert codes == ["FSDP310"] * found


@pytest.mark.parametrize("mapped", MAPS)
@pytest.mark.parametrize(
    ("held", "found"),
    [
        ("model.state_dict()", True),
        ("{'model': model.state_dict(), 'step': 1}", True),
        ("[model.state_dict()]", True),
        ("{'step': 1}", False),
    ],
)
def test_a_sharded_state(tmp_path: Path, mapped: str, held: str, found: bool) -> None:
    code = f"state = {held}\nstate = {mapped}\ntorch.save(state, 'model.pt')\n"
    codes = [one.rule.code for one in findings(program(tmp_path, code, header=HEAD), "FSDP301")]
    assert codes == ["FSDP301"] * found
