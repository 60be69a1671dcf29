"""Programs that shard a model with FSDP1 and FSDP2."""

from __future__ import annotations

from pathlib import Path

from fsdplint.comparison.unit_tree import Layout
from fsdplint.engine.planning import plans

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy, ShardingStrategy
from torch.distributed.fsdp import CPUOffload, CPUOffloadPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.down(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))
        self.stem = nn.Linear(8, 8)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8))

    def forward(self, x):
        x = self.stem(x * self.scale)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


dist.init_process_group("gloo")
CPU = torch.device("cpu")
model = Net()
"""

RUN = """
model(torch.randn(2, 8)).sum().backward()
"""

FSDP2 = {
    "blocks and model": """
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
""",
    "the root alone": "fully_shard(model)\n",
    "blocks without the model": "for block in model.blocks:\n    fully_shard(block)\n",
    "parts of parts": """
for block in model.blocks:
    fully_shard(block.up, reshard_after_forward=False)
    fully_shard(block)
fully_shard(model.head[1])
fully_shard(model, reshard_after_forward=True)
""",
    "copies of shards": """
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "parts"))
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
""",
    "ignored parameters": """
ignored = set(model.head.parameters())
for block in model.blocks:
    fully_shard(block)
fully_shard(model, ignored_params=ignored)
""",
}

FSDP1 = {
    "a policy": "model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True, device_id=CPU)\n",
    "the model alone": "model = FSDP(model, device_id=CPU)\n",
    "by hand": """
for i, block in enumerate(model.blocks):
    model.blocks[i] = FSDP(block, device_id=CPU)
model.stem = FSDP(model.stem, device_id=CPU)
model = FSDP(model, device_id=CPU)
""",
    "an ignored module": """
model = FSDP(
    model,
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    ignored_modules=[model.head],
    device_id=CPU,
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
)
""",
}


def layouts_of(program: str, folder: Path) -> list[Layout]:
    file = folder / "train.py"
    file.write_text(program, encoding="utf-8")
    return plans([file]).programs[0].layouts
