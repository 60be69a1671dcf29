"""FSDP709: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import names
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import OptimizerBuilt, ParametersMissed, Trace
from fsdplint.trace.groups import shard_events, sharded_by
from fsdplint.trace.queries.common import class_name, optimizer_of


class OptimizerMissesParameters(Rule):
    """Trainable parameters of a sharded model are in no optimizer.

    ## What it does
    Finds parameters of a sharded model that get gradients in training while no optimizer of the program
    holds them, though one holds others of the same model.

    Parameters that do not require gradients, that a second optimizer holds, or that the program
    updates itself are not reported; neither is a model whose optimizer holds parameters that have been
    replaced since (FSDP103 and its like say that).

    ## Why is this bad?
    There is no error: these parameters keep their first values to the last digit while the others
    learn. Their gradients are computed and reduced over the ranks at every step, and grow from step to
    step where `optimizer.zero_grad()` is called, which does not reach them. Parameter groups
    that are selected by name or shape and a module that is added after the optimizer are how this
    comes about.

    ## Since
    Always.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`, user contract: the optimizer has to be
      initialised with the DTensor parameters.
    - https://docs.pytorch.org/docs/stable/optim.html (per-parameter options)
    """

    code = "FSDP709"
    name = "optimizer-misses-parameters"
    severity = Severity.ERROR
    runtime_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen: set[str] = set()
        for event in trace.of(ParametersMissed):
            built = optimizer_of(trace, event.optimizer)
            if event.module in seen or _sharded_later(trace, event, built):
                continue
            seen.add(event.module)
            count = len(event.parameters)
            model = class_name(trace, event.module)
            yield self.finding(
                built or event,
                f"{names(event.parameters, 'parameter')} of `{model}` "
                f"{'gets' if count == 1 else 'get'} gradients but {'is' if count == 1 else 'are'} in "
                f"no optimizer; this one has {event.trained} others of it",
                help="Give them to the optimizer as well. If they are not to be trained, switch their "
                "`requires_grad` off before sharding, which also saves reducing their gradients.",
                because=[(event, "stepped here")] if built is not None else [],
            )

    bad = (
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x + self.scale * torch.relu(self.linear(x))


def param_groups(model):
    decay = [p for name, p in model.named_parameters() if name.endswith("weight")]
    rest = [p for name, p in model.named_parameters() if name.endswith("bias")]
    return [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Block(8), Block(8), nn.Linear(8, 1))
for block in model:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(param_groups(model), lr=1e-2)  # <- FSDP709
inputs, targets = torch.randn(16, 8), torch.randn(16, 1)
for step in range(3):
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
scale = model[0].scale
print("scale learned:", not torch.all(scale.full_tensor() == 1).item())
print("gradient left behind:", scale.grad is not None)
dist.destroy_process_group()
""",
            symptom=Symptom(prints="scale learned: False\ngradient left behind: True"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.body = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 2)

    def forward(self, tokens):
        return self.head(self.norm(torch.relu(self.body(self.embed(tokens)))))


class Trainer:
    def __init__(self, model):
        self.model = model
        hidden = [p for p in model.body.parameters() if p.ndim == 2]
        vectors = [p for p in model.parameters() if p.ndim == 1]
        # the matrices of the body by one optimizer, all vectors and the head by another
        self.optimizers = [
            torch.optim.SGD(hidden, lr=0.1, momentum=0.9),  # <- FSDP709
            torch.optim.AdamW([*vectors, model.head.weight], lr=1e-2),
        ]

    def fit(self, tokens, labels, steps):
        for _ in range(steps):
            loss = nn.functional.cross_entropy(self.model(tokens), labels)
            self.model.zero_grad()
            loss.backward()
            for optimizer in self.optimizers:
                optimizer.step()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Net()
    fully_shard(model.body)
    fully_shard(model)
    before = {name: p.full_tensor().clone() for name, p in model.named_parameters()}
    Trainer(model).fit(torch.randint(16, (32,)), torch.randint(2, (32,)), steps=4)
    model.reshard()
    after = {name: p.full_tensor() for name, p in model.named_parameters()}
    print("unchanged:", [name for name in before if torch.equal(before[name], after[name])])
    dist.destroy_process_group()


main()
""",
            symptom=Symptom(prints=r"unchanged: \['embed.weight'\]"),
        ),
    )

    good = (
        Good(
            why="the rest of the model is frozen",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
model[0].requires_grad_(False)
fully_shard(model[0])
fully_shard(model)
optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
for step in range(3):
    model(torch.randn(16, 4)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
""",
        ),
        Good(
            why="a second optimizer has the others and steps at every other step only; warm-up from 0",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
fully_shard(model[0])
fully_shard(model)
body = torch.optim.AdamW(model[0].parameters(), lr=0.1)
head = torch.optim.SGD(model[2].parameters(), lr=0.1)
warmup = torch.optim.lr_scheduler.LinearLR(body, start_factor=0.001, total_iters=5)
for step in range(4):
    model(torch.randn(16, 4)).pow(2).mean().backward()
    body.step()
    warmup.step()
    body.zero_grad()
    if step % 2 == 1:
        head.step()
        head.zero_grad()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the program updates one parameter by itself",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.linear(x) * self.scale.sum()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Scaled()
fully_shard(model)
optimizer = torch.optim.SGD(model.linear.parameters(), lr=0.1)
for step in range(3):
    model(torch.randn(16, 4)).pow(2).mean().backward()
    optimizer.step()
    model.scale.data.add_(model.scale.grad, alpha=-0.01)
    model.zero_grad()
dist.destroy_process_group()
""",
        ),
        Good(
            why="gradients flow through a critic that this phase does not train",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
fully_shard(generator)
fully_shard(critic)
optimizer = torch.optim.Adam(generator.parameters(), lr=1e-2)
for step in range(3):
    critic(generator(torch.randn(16, 4))).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    critic.zero_grad()
dist.destroy_process_group()
""",
        ),
    )


def _sharded_later(trace: Trace, event: ParametersMissed, built: OptimizerBuilt | None) -> bool:
    """Whether the model was sharded after the optimizer was built: that is why it misses them."""
    if built is None:
        return False
    return any(
        trace.related(module, event.module)
        for shard in shard_events(trace, after=built, before=event)
        for module in sharded_by(shard)
    )
