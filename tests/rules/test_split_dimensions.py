"""FSDP511: samplers that split over one of the dimensions that FSDP2 shards over."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_refused_parameters import found

PROGRAM = """\
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

mesh = init_device_mesh("cuda", {shape}, mesh_dim_names={names})
model = fully_shard(nn.Linear(4, 1), mesh={given})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 4))
{before}
sampler = DistributedSampler(data, {count}, {rank})
for x, in DataLoader(data, batch_size=4, sampler=sampler):
    model(x).sum().backward()
    optimizer.step()
"""
USUAL = {
    "shape": "(2, 4)",
    "names": '("replicate", "shard")',
    "given": "mesh",
    "before": "pass",
    "count": "mesh['replicate'].size()",
    "rank": "mesh['replicate'].get_local_rank()",
}


def messages(folder: Path, **parts: str) -> list[str]:
    return found(folder, "FSDP511", PROGRAM.format(**{**USUAL, **parts}))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"rank": "mesh.get_local_rank('replicate')", "count": "mesh.size(0)"},
        {"before": "rank = mesh['replicate'].get_local_rank()", "rank": "rank=rank"},
        {"names": '("dp_replicate", "dp_shard")', "rank": "mesh['dp_shard'].get_local_rank()"},
        {"shape": "(dist.get_world_size() // 8, 8)"},
        {"given": "mesh['replicate', 'shard']"},
    ],
)
def test_one_of_two_dimensions(tmp_path: Path, parts: dict[str, str]) -> None:
    (message,) = messages(tmp_path, **parts)
    assert "train on the same batches" in message


@pytest.mark.parametrize(
    "parts",
    [
        {"count": "dist.get_world_size()", "rank": "dist.get_rank()"},
        {"count": "None", "rank": "None"},
        {"given": "mesh['replicate']"},
        {"names": '("dp", "tp")', "rank": "mesh['dp'].get_local_rank()"},
        {
            "names": '("dp_replicate", "dp_shard_cp")',
            "rank": "mesh['dp_replicate'].get_local_rank()",
        },
        {"shape": "(8, 1)"},
        {"before": "dist.new_group([0, 1])"},
    ],
)
def test_programs_that_may_be_right(tmp_path: Path, parts: dict[str, str]) -> None:
    assert messages(tmp_path, **parts) == []
