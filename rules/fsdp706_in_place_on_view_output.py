"""FSDP706: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Site, Trace
from fsdplint.trace.queries.common import class_name, sharded_here


class InPlaceOnViewOutput(Rule):
    """A view that a sharded module returns is changed in place, and the backward fails.

    ## What it does
    Finds calls of a module sharded with `fully_shard` that return a view (`.view`, `.transpose`, a slice)
    on which the program then works in place (`hidden += x`, `relu_`), where the backward did not
    find the module's parameters gathered.

    Working in place on a view is not reported where the backward ran: with
    `reshard_after_forward=False` the parameters are still there.

    ## Why is this bad?
    The hook that gathers the module's parameters for the backward hangs on the tensor that the module
    returns. An operation in place on a view takes it off, the parameters stay freed, and the backward
    raises "RuntimeError: setStorage: sizes [8, 8], strides [8, 1], storage offset 0, and itemsize 4
    requiring a storage size of 256 are out of bounds for storage of size 0", which names neither the
    module nor the line.

    ## Since
    torch 2.4; torch 2.13 and later warn that a module returns a view.

    ## References
    - pytorch/pytorch#181832 and #181850.
    """

    code = "FSDP706"
    name = "in-place-on-view-output"
    severity = Severity.ERROR
    runtime_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen: set[Site] = set()
        for event in trace.of(Called):
            if not event.view_changed or event.site in seen:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"`{class_name(trace, event.module)}` returns a view, which is changed in place after "
                "this; the backward then finds its parameters freed",
                help="Work out of place on what the module returns (`out = out + y`, not `out += y`), "
                "or return `.clone()` of the view.",
                because=sharded_here(trace, event.module, event),
            )

    bad = (
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        return self.mix(x.flatten(0, 1)).view(x.shape)


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Linear(width, width)
        self.attention = Attention(width)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.stem(x)
        hidden = self.attention(x)  # <- FSDP706
        hidden += x
        return self.head(hidden)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net(8)
fully_shard(model.attention)
fully_shard(model)
model(torch.randn(2, 4, 8)).pow(2).mean().backward()
dist.destroy_process_group()
""",
            symptom=Symptom(raises="setStorage: .* out of bounds for storage of size 0"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 2 * width)

    def forward(self, x):
        return self.linear(x)[:, : x.shape[1]]


class Stack(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu_(layer(x))  # <- FSDP706
        return x


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Stack(8, depth=3)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    train(model, steps=2)
    dist.destroy_process_group()
""",
            symptom=Symptom(raises="setStorage: .* out of bounds for storage of size 0"),
        ),
    )

    good = (
        Good(
            why="a view is returned, and the program works out of place",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 2 * width)

    def forward(self, x):
        return self.linear(x)[:, : x.shape[1]]


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Layer(8), nn.ReLU(), Layer(8), nn.Linear(8, 1))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the parameters are still there for the backward",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 2 * width)

    def forward(self, x):
        return self.linear(x)[:, : x.shape[1]]


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Layer(8), nn.ReLU(inplace=True), Layer(8), nn.Linear(8, 1))
for layer in (model[0], model[2]):
    fully_shard(layer, reshard_after_forward=False)
fully_shard(model)
model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="what is changed in place is no view",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.Linear(8, 1))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
for step in range(2):
    model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
""",
        ),
    )
