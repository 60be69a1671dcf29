"""FSDP116: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Trace
from fsdplint.trace.queries.common import class_name, sharded_here


class MetaNeverMaterialized(Rule):
    """A sharded model is called while its parameters are still on the meta device.

    ## What it does
    Finds models that are built on the meta device, sharded by `fully_shard` and then called, although
    nothing has given their parameters memory.

    `to_empty`, `load_state_dict(..., assign=True)` and `set_model_state_dict` of a full state dict
    give them memory. `reset_parameters` and the functions of `torch.nn.init` do not, nor does
    `load_state_dict` without `assign`: on meta they run and do nothing.

    ## Why is this bad?
    The first call ends with `RuntimeError: FSDP parameters should be materialized from meta device
    before training, but the following were still on meta device: ['2.weight', '2.bias']`.

    ## Since
    torch 2.4.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`, and "Meta device" (`to_empty`).
    """

    code = "FSDP116"
    name = "meta-never-materialized"
    severity = Severity.ERROR
    unanimous = True  # what one configuration leaves out may be what is always asked for

    def check(self, trace: Trace) -> Iterator[Finding]:
        told: set[str] = set()
        for call in trace.of(Called):
            if not call.on_meta or call.module in told:
                continue
            told.update({call.module, *trace.ancestors(call.module)})
            told.update(trace.submodules(call.module))
            yield self.finding(
                call,
                f"parameters of `{class_name(trace, call.module)}` are still on the meta device: "
                f"its first call will fail",
                help="After `fully_shard`, call `to_empty(device=...)` on the model and then "
                "initialise its parameters and buffers, or load a whole checkpoint with "
                "`set_model_state_dict` and `full_state_dict=True`.",
                because=sharded_here(trace, call.module, call),
            )

    bad = (
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
fully_shard(model[0])
fully_shard(model)
for module in model.modules():
    if isinstance(module, nn.Linear):
        module.reset_parameters()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(3):
    loss = model(torch.randn(16, 4)).pow(2).mean()  # <- FSDP116
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
""",
            symptom=Symptom(
                raises="FSDP parameters should be materialized from meta device before training"
            ),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + self.linear(self.norm(x))


class Net(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def init_weights(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)


class Trainer:
    def __init__(self):
        with torch.device("meta"):
            self.model = Net()
        for block in self.model.blocks:
            fully_shard(block)
        fully_shard(self.model)
        self.model.apply(init_weights)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x):
        self.model(x).pow(2).mean().backward()  # <- FSDP116
        self.optimizer.step()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer().step(torch.randn(4, 8))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
            symptom=Symptom(raises=r"still on meta device: \['head.weight', 'head.bias'\]"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def build(device):
    return nn.Sequential(nn.Linear(4, 8, device=device), nn.Linear(8, 1, device=device))


def load(model, trained):
    model.load_state_dict(trained.state_dict())
    return model


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = load(build("meta"), build("cpu"))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    with torch.no_grad():
        print(model(torch.randn(2, 4)).shape)  # <- FSDP116
    dist.destroy_process_group()


main()
""",
            symptom=Symptom(raises="FSDP parameters should be materialized from meta device"),
        ),
    )

    good = (
        Good(
            why="`to_empty` gives memory and a function initialises each module",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def init_weights(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)


dist.init_process_group("gloo")
torch.manual_seed(0)
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
fully_shard(model[0])
fully_shard(model)
model.to_empty(device="cpu")
model.apply(init_weights)
model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the state dict's tensors take the parameters' place",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


dist.init_process_group("gloo")
torch.manual_seed(0)
trained = build()
with torch.device("meta"):
    model = build()
model.load_state_dict(trained.state_dict(), assign=True)
fully_shard(model[0])
fully_shard(model)
model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="rank 0 has the weights and sends them to the ranks with a model on meta",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard


def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    state = {}
    if dist.get_rank() == 0:
        state = build().state_dict()
    with torch.device("meta"):
        model = build()
    fully_shard(model[0])
    fully_shard(model)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, state, options=options)
    model(torch.randn(16, 4)).pow(2).mean().backward()
    dist.destroy_process_group()


main()
""",
        ),
        Good(
            why="a function that each module is given to gives it memory",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def materialize(module):
    module.to_empty(device="cpu", recurse=False)
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(torch.relu(self.stem(x)))


dist.init_process_group("gloo")
torch.manual_seed(0)
with torch.device("meta"):
    model = Net()
fully_shard(model.stem)
fully_shard(model)
model.apply(materialize)
model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="every parameter is replaced before the model is sharded",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def materialize(root):
    for module in root.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            fresh = nn.Parameter(torch.randn(parameter.shape) * 0.02)
            setattr(module, name, fresh)


dist.init_process_group("gloo")
torch.manual_seed(0)
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
materialize(model)
fully_shard(model[0])
fully_shard(model)
model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the layers name another device than the one around them",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
device = "cpu" if dist.get_rank() >= 0 else "meta"
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(4, 8, device=device), nn.ReLU())
    with torch.device("cpu"):
        model.append(nn.Linear(8, 1))
fully_shard(model[0])
fully_shard(model)
model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
""",
        ),
    )
