"""FSDP301 where a process group has one rank, so that its part of a tensor is the whole tensor."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

CONVERSION = """
def setup(rank, world_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def convert(path):
    model = fully_shard(Net())
    state = {{}}
    for name, tensor in model.state_dict().items():
        state[name] = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    torch.save(state, path)


setup({arguments})
convert("model.pt")
"""


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("0, 1", False),
        ("0, 2", True),
        ('int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])', True),
    ],
)
def test_the_part_of_a_single_rank_is_whole(tmp_path: Path, arguments: str, found: bool) -> None:
    code = "import os\n" + CONVERSION.format(arguments=arguments)
    codes = {one.rule.code for one in findings(program(tmp_path, code), "FSDP301")}
    assert codes == ({"FSDP301"} if found else set())
