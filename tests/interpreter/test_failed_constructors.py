"""Objects whose constructor an error leaves: what it did not set is not known."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEAD = """
import argparse
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

parser = argparse.ArgumentParser()
parser.add_argument("--kind")
args = parser.parse_args()

class Part(nn.Module):
    def __init__(self, kind):
        super().__init__()
        if kind == "narrow":
            self.inner = nn.Linear(4, 4)
        elif kind == "wide":
            self.inner = nn.Linear(4, 8)
        else:
            raise TypeError(kind)

    def forward(self, x):
        return self.inner(x)

class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.part = {part}
        self.last = nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.part(x))

if args.kind == "none":
    print("none")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
model = Net(args.kind)
parallelize_module(model, mesh["tp"], {{"part.{name}": ColwiseParallel()}})
fully_shard(model, mesh=mesh["dp"])
"""


@pytest.mark.parametrize(("name", "expected"), [("inner", 0), ("outer", 1)])
def test_a_module(tmp_path: Path, name: str, expected: int) -> None:
    found = program(tmp_path, HEAD.format(part="Part(kind)", name=name))
    assert len(findings(found, "FSDP605")) == expected
