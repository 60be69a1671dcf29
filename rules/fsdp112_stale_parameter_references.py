"""FSDP112: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, Clipped, Site, Trace, Wrapped, first
from fsdplint.trace.groups import Groups, shard_events


class StaleParameterReferences(Rule):
    """Gradients are clipped of parameters that sharding has replaced.

    ## What it does
    Finds `clip_grad_norm_` and `clip_grad_value_` of `torch.nn.utils` on parameters that were taken
    from a model (into a list, a tuple, a dict) before `fully_shard` or FSDP1 without
    `use_orig_params=True` was applied to it.

    A generator such as `model.parameters()` is fine: it gives the parameters that the model has when
    it is used. For optimizers see FSDP103.

    ## Why is this bad?
    Sharding puts new parameters into the module. Those in the list never get a gradient: the norm is
    0.0 (the real one was 66.99) and nothing is clipped, without an error.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - torch docs, `FullyShardedDataParallel`: references to parameters that are saved before wrapping
      are stale afterwards.
    """

    code = "FSDP112"
    name = "stale-parameter-references"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for event in trace.of(Clipped):
            if not event.stale or event.site in seen or event.ranks.partial:
                continue
            if first(trace.before(event, BackwardRun)) is None:
                continue
            shards = [
                shard
                for shard in shard_events(trace, before=event)
                if any(trace.related(shard.module, module) for module in event.stale)
            ]
            if not shards:
                continue
            seen.add(event.site)
            how = "FSDP" if isinstance(shards[-1], Wrapped) else "fully_shard"
            yield self.finding(
                event,
                f"these parameters of {groups.name(event.stale[0])} were taken before `{how}` replaced "
                f"them: they have no gradients, and nothing is clipped",
                help="Pass `model.parameters()`, or take the list after the last sharding.",
                because=[(shards[-1], "parameters replaced here")],
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
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
params = list(model.parameters())
fully_shard(model[0])
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = 100 * model(torch.randn(16, 4)).pow(2).mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(params, max_norm=1.0)  # <- FSDP112
    print(f"gradient norm {norm.item():.2f}")
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
""",
            symptom=Symptom(prints=r"gradient norm 0\.00"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model, clip=0.5):
        self.model = model
        self.trainable = [p for n, p in model.named_parameters() if "bias" not in n]
        self.clip = clip
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def step(self, inputs):
        (100 * self.model(inputs).pow(2).mean()).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.trainable, self.clip)  # <- FSDP112
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(nn.Linear(4, 1))
    print("norm", trainer.step(torch.randn(16, 4)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
            symptom=Symptom(prints=r"norm 0\.0$"),
        ),
    )

    good = (
        Good(
            why="taken after sharding, or a generator that gives the parameters when it is used",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
lazy = model.parameters()
fully_shard(model[0])
fully_shard(model)
params = list(model.parameters())
optimizer = torch.optim.SGD(params, lr=0.1)
(100 * model(torch.randn(16, 4)).pow(2).mean()).backward()
assert torch.nn.utils.clip_grad_norm_(params, 100.0).item() > 0
assert torch.nn.utils.clip_grad_norm_(lazy, 1.0).item() > 0
optimizer.step()
dist.destroy_process_group()
""",
        ),
        Good(
            why="counted before sharding; what is clipped are the model's parameters of now",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def trainable(model):
    return [p for p in model.parameters() if p.requires_grad]


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(4, 1)
print("parameters", sum(p.numel() for p in trainable(model)))
fully_shard(model)
optimizer = torch.optim.SGD(trainable(model), lr=0.1)
for step in range(2):
    (100 * model(torch.randn(16, 4)).pow(2).mean()).backward()
    assert torch.nn.utils.clip_grad_norm_(trainable(model), 1.0).item() > 0
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
""",
        ),
        Good(
            why="FSDP1 with use_orig_params=True keeps the parameter objects; the norm is of the shards",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(4, 1)
weights = list(model.parameters())
model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
(100 * model(torch.randn(16, 4)).pow(2).mean()).backward()
torch.nn.utils.clip_grad_value_(weights, 1e-3)
assert all(p.grad is None or p.grad.abs().max() <= 1e-3 for p in weights if p.numel())
optimizer.step()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the other model was sharded, this one is not",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
teacher, student = nn.Linear(4, 1), nn.Linear(4, 1)
params = list(student.parameters())
teacher.requires_grad_(False)
fully_shard(teacher)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
inputs = torch.randn(16, 4)
nn.functional.mse_loss(student(inputs), teacher(inputs)).backward()
assert torch.nn.utils.clip_grad_norm_(params, 1.0).item() > 0
optimizer.step()
dist.destroy_process_group()
""",
        ),
    )
