"""FSDP503: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import MeshBuilt, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

FLAT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = init_device_mesh("cpu:0", (dist.get_world_size(),))  # <- FSDP503
model = nn.Linear(4, 4)
fully_shard(model, mesh=mesh)
loss = model(torch.randn(2, 4)).sum()
loss.backward()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""

BY_RANK = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model):
        local_rank = int(os.environ["LOCAL_RANK"])
        self.device = f"cpu:{local_rank}"
        mesh = init_device_mesh(  # <- FSDP503
            device_type=self.device,
            mesh_shape=(dist.get_world_size(),),
            mesh_dim_names=("dp",),
        )
        self.model = fully_shard(model, mesh=mesh)

    def step(self, x):
        loss = self.model(x).pow(2).mean()
        loss.backward()
        return loss


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    print(f"loss {Trainer(nn.Linear(4, 4)).step(torch.randn(2, 4)).item():.4f}")
    dist.destroy_process_group()


main()
"""

PLAIN = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
device = torch.device("cpu:0")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = nn.Linear(4, 4).to("cpu:0")
fully_shard(model, mesh=mesh)
model(torch.randn(2, 4, device=device)).sum().backward()
dist.destroy_process_group()
"""

TYPE_OF_DEVICE = """\
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
device = torch.device(f"cpu:{os.environ['LOCAL_RANK']}")
mesh = init_device_mesh(device.type, (dist.get_world_size(),))
model = nn.Linear(4, 4)
fully_shard(model, mesh=mesh)
model(torch.randn(2, 4)).sum().backward()
dist.destroy_process_group()
"""


CUT_OFF = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def mesh_on(device):
    return init_device_mesh(device.split(":")[0], (dist.get_world_size(),))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(8, 8)
fully_shard(model, mesh=mesh_on("cpu:0"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
"""


class IndexedMeshDevice(Rule):
    """`init_device_mesh` gets a device with an index.

    ## What it does
    Finds `init_device_mesh("cuda:0", ...)` and `init_device_mesh(f"cuda:{local_rank}", ...)`.

    ## Why is this bad?
    A mesh spans the devices of all ranks; which of them is this rank's is what
    `torch.cuda.set_device` says. An index is refused:

        RuntimeError: Device type with index is not supported but got cpu:0.

    ## Fix safety
    Safe: only the device's type is left.

    ## Since
    torch 2.2, where `init_device_mesh` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html (`init_device_mesh`)
    """

    code = "FSDP503"
    name = "indexed-mesh-device"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    bad = (
        Bad(
            FLAT,
            symptom=Symptom(raises="Device type with index is not supported but got cpu:0"),
            changes=(('init_device_mesh("cpu:0", ', 'init_device_mesh("cpu", '),),
            healthy=r"loss -?\d",
        ),
        Bad(
            BY_RANK,
            symptom=Symptom(raises=r"Device type with index is not supported but got cpu:[01]"),
            changes=(("device_type=self.device,", 'device_type="cpu",'),),
            healthy=r"loss \d",
        ),
    )
    good = (
        Good(PLAIN, why="tensors and modules may be put on a device with an index"),
        Good(TYPE_OF_DEVICE, why="`.type` has no index"),
        Good(CUT_OFF, why="the index is cut off"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(MeshBuilt):
            kind, colon, _ = (event.device_type or "").partition(":")
            if colon:
                yield self.finding(
                    event,
                    f"`init_device_mesh` gets a `{kind}` device with an index and takes a type only",
                    help=f'Pass "{kind}"; `torch.cuda.set_device` says which device is this rank\'s.',
                )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import argument, call_at

        found, event = call_at(finding.site), finding.events[0]
        if found is None or not isinstance(event, MeshBuilt):
            return None
        source, call = found
        device = argument(call, 0, "device_type")
        if device is None:
            return None
        kind = (event.device_type or "").partition(":")[0]
        rewrite = Rewrite()
        rewrite.replace(source, device.value, f'"{kind}"')
        return rewrite.fix("Drop the index", Safety.SAFE)
