"""FSDP501: collectives of all ranks under a test of the position in a group."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_refused_parameters import found

PROGRAM = """\
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
tp_rank = mesh["tp"].get_local_rank()
rank = dist.get_rank()
model = nn.Linear(8, 8)
fully_shard(model, mesh=mesh["dp"])
shown = model(torch.ones(2, 8)).mean().detach()
{code}
"""


@pytest.mark.parametrize(
    "code",
    [
        'if mesh["tp"].get_local_rank() == 0:\n    dist.all_reduce(shown)',
        'if mesh.get_local_rank("tp") == 1:\n    dist.barrier()',
        "if tp_rank == 0:\n    dist.all_reduce(shown)",
        'if dist.get_rank(mesh["tp"].get_group()) == 0:\n    dist.all_reduce(shown)',
        "if rank % 2 == 0:\n    dist.all_reduce(shown)",
        "if tp_rank == 0:\n    dcp.save({'model': model.state_dict()}, checkpoint_id='a')",
        "if tp_rank == 0:\n    dcp.load({'model': model.state_dict()}, checkpoint_id='a')",
        "def wait():\n    dist.barrier()\nif tp_rank == 0:\n    wait()",
    ],
)
def test_a_collective_of_all_ranks(tmp_path: Path, code: str) -> None:
    assert len(found(tmp_path, "FSDP501", PROGRAM.format(code=code))) == 1


@pytest.mark.parametrize(
    "code",
    [
        'if tp_rank == 0:\n    dist.all_reduce(shown, group=mesh["dp"].get_group())',
        "if tp_rank == 0:\n    dist.all_reduce(shown)\nelse:\n    dist.all_reduce(shown)",
        "if tp_rank >= 0:\n    dist.all_reduce(shown)",
        "if tp_rank == 0:\n    print(shown)\ndist.all_reduce(shown)",
        "if tp_rank == 0:\n    model(torch.ones(2, 8))",
        "if tp_rank == 0:\n    dcp.save({'model': model.state_dict()}, checkpoint_id='a',\n"
        "             process_group=mesh['dp'].get_group())",
        "if tp_rank == 0:\n    dcp.save({'model': 1}, checkpoint_id='a', no_dist=True)",
        "if tp_rank == 0:\n    torch.save({'step': 1}, 'a')",
    ],
)
def test_what_may_be_right(tmp_path: Path, code: str) -> None:
    assert not found(tmp_path, "FSDP501", PROGRAM.format(code=code))
