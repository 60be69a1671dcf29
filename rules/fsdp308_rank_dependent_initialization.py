"""FSDP308: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.fixes.seeding import seed_after_sharding
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.initial_weights import own_weights

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

MIXED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def build():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))


dist.init_process_group("gloo")
rank = dist.get_rank()
seed = 1234
torch.manual_seed(seed + rank)  # <- FSDP308
model = build()
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

weight = model[0].weight.full_tensor().detach()
for step in range(2):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.manual_seed(seed)
expected = build()[0].weight
same = torch.isclose(weight, expected).all(dim=1).sum().item()
print(f"{same} of 32 rows are those of seed {seed}")
dist.destroy_process_group()
"""

ORTHOGONAL = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Mixer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rotate = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width)
        nn.init.orthogonal_(self.rotate.weight)

    def forward(self, x):
        return self.out(torch.relu(self.rotate(x)))


def set_seed(seed):
    torch.manual_seed(seed)  # <- FSDP308


class Trainer:
    def __init__(self, seed):
        set_seed(seed + dist.get_rank())
        self.model = Mixer(8)
        for layer in (self.model.rotate, self.model.out):
            fully_shard(layer)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def step(self, batch):
        self.model(batch).pow(2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    trainer = Trainer(1234)
    weight = trainer.model.rotate.weight.full_tensor().detach()
    apart = (weight.T @ weight - torch.eye(8)).abs().max().item()
    print("orthogonal" if apart < 1e-3 else f"not orthogonal: off by {apart:.1f}")
    trainer.step(torch.randn(4, 8))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

AFTER_BUILDING = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def set_seed(seed):
    torch.manual_seed(seed)


dist.init_process_group("gloo")
rank = dist.get_rank()
# Not for the model: what is drawn before it is.
torch.manual_seed(99 + rank)
jitter = torch.rand(1).item()
set_seed(1234)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
set_seed(1234 + rank)
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
for step in range(2):
    torch.manual_seed(1234 + rank * 1000 + step)
    model(torch.randn(4, 8) + jitter).pow(2).mean().backward()
dist.destroy_process_group()
"""

BROADCAST = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(1234 + dist.get_rank())
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for parameter in model.parameters():
    dist.broadcast(parameter.data, src=0, group=dist.group.WORLD)
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).pow(2).mean().backward()
dist.destroy_process_group()
"""

ON_META = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(1234 + dist.get_rank())
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model.to_empty(device="cpu")
for layer in (model[0], model[2]):
    layer.reset_parameters()
model(torch.randn(4, 8)).pow(2).mean().backward()
dist.destroy_process_group()
"""

LOADED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard


def build():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1234 + rank)
model = build()
state = model.state_dict() if rank == 0 else {}
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
set_model_state_dict(model, build().state_dict() if rank == 0 else {}, options=options)
generator = torch.Generator()
generator.manual_seed(1234 + rank)
model(torch.randn(4, 8, generator=generator)).pow(2).mean().backward()
dist.destroy_process_group()
"""


class RankDependentInitialization(Rule):
    """A model is initialised with another seed on every rank, and then sharded.

    ## What it does
    Finds `torch.manual_seed(seed + rank)` ahead of building a model that is then sharded by `fully_shard`
    or FSDP1, where nothing brings the weights of the ranks together: no checkpoint is loaded, no
    weights are broadcast, FSDP1 has no `sync_module_states=True`. A model that is initialised after it
    was sharded (on the meta device first) is fine, and so is a seed per rank once the model is built.
    Where ranks hold copies of each other's shards (HSDP) it is FSDP309.

    ## Why is this bad?
    Every rank keeps its part of its own random weights and drops the rest. DDP sends rank 0's weights to
    all ranks when it is built; sharding sends nothing. The model that is trained is then that of no
    seed: on two ranks 16 of 32 rows of a weight were those of the seed, the rest of another one, and an
    orthogonal weight was not orthogonal (off by 0.7). Runs on other numbers of ranks start elsewhere,
    and whatever was initialised as a whole or relates one weight to another is broken.

    ## Fix safety
    Unsafe: the model is built from the same seed on all ranks, and the seed of each rank follows once it
    is sharded. Weights are others than before, and so are random numbers drawn between the two. There
    is a fix where the seed is a sum with the rank in it.

    ## Since
    torch 2.4, where `fully_shard` came; FSDP1 always.

    ## References
    - pytorch/torchtitan#670 ("Users need to handle it manually") and #1777
    - https://docs.pytorch.org/docs/stable/fsdp.html (`sync_module_states`)
    """

    code = "FSDP308"
    name = "rank-dependent-initialization"
    severity = Severity.WARNING
    fixable = Safety.UNSAFE
    blends = True
    bad = (
        Bad(
            MIXED,
            symptom=Symptom(prints=r"16 of 32 rows are those of seed 1234"),
            changes=(
                ("torch.manual_seed(seed + rank)\n", "torch.manual_seed(seed)\n"),
                (
                    "fully_shard(model)\n",
                    "fully_shard(model)\ntorch.manual_seed(seed + rank)\n",
                ),
            ),
            healthy=r"32 of 32 rows",
        ),
        Bad(ORTHOGONAL, symptom=Symptom(prints=r"not orthogonal: off by \d")),
    )
    good = (
        Good(AFTER_BUILDING, why="the last seed before the model is the same on all ranks"),
        Good(BROADCAST, why="rank 0 sends its weights to all"),
        Good(ON_META, why="the parts are initialised after the sharding"),
        Good(LOADED, why="the weights are loaded from rank 0"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        for found in own_weights(trace):
            if found.replicated:
                continue
            name = class_name(trace, found.module)
            yield self.finding(
                found.seed,
                f"every rank initialises `{name}` with a seed of its own and keeps its part of it: the "
                f"sharded model is a mixture of the ranks' weights",
                help="Use the same seed on all ranks until the model is built, and one per rank only "
                "after that; or load the weights of one rank into the sharded model with "
                "`set_model_state_dict` and `StateDictOptions(full_state_dict=True, "
                "broadcast_from_rank0=True)`.",
                because=[(found.built, "built here"), (found.sharded, "sharded here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        return seed_after_sharding(finding)
