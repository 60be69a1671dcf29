"""FSDP707: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import names
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Refused, Trace
from fsdplint.trace.queries.common import class_name


class UnshardableParameter(Rule):
    """A parameter has no dimension to be sharded by, or is not contiguous.

    ## What it does
    Finds the `fully_shard` call that was refused because of a scalar parameter (0 dimensions) or of
    parameters that are not contiguous, such as transposed ones and convolutions in
    `channels_last`, and names all of them.

    ## Why is this bad?
    `fully_shard` cuts each parameter along its first dimension. It raises "ValueError: fully_shard
    doesn't support scalar parameters. Change scale to a 1D tensor with numel equal to 1." or
    "NotImplementedError: FSDP does not support non-contiguous parameters yet", which names the shape and
    not the parameter, and one parameter at a time.

    ## Since
    torch 2.4; parameters that are not contiguous are refused since 2.6.

    ## References
    - pytorch/pytorch#132934 and #137000.
    - pytorch/torchtitan#1180.
    """

    code = "FSDP707"
    name = "unshardable-parameter"
    severity = Severity.ERROR
    runtime_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        for event in trace.of(Refused):
            if event.reason not in ("scalar", "strides"):
                continue
            which = names([name for name, _ in event.parameters], "parameter")
            verb = "is" if len(event.parameters) == 1 else "are"
            module = class_name(trace, event.module)
            if event.reason == "scalar":
                what = "a scalar" if verb == "is" else "scalars"
                text = f"{which} of `{module}` {verb} {what}; there is no dimension to shard"
                help = "Give it one element in one dimension: `nn.Parameter(torch.ones(1))`."
            else:
                how = event.parameters[0][1]
                text = f"{which} of `{module}` {verb} not contiguous ({how})"
                help = (
                    "Make it contiguous before sharding: build the parameter from "
                    "`tensor.contiguous()`, and ask for `channels_last` of the inputs only."
                )
            yield self.finding(event, text, help=help)

    bad = (
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Scaled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        return x + self.scale * self.linear(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Scaled(8), Scaled(8))
for block in model:
    fully_shard(block)  # <- FSDP707
fully_shard(model)
model(torch.randn(4, 8)).pow(2).mean().backward()
dist.destroy_process_group()
""",
            symptom=Symptom(
                raises="fully_shard doesn't support scalar parameters. Change scale to"
            ),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, kernel_size=3)
        self.head = nn.Linear(8, 2)

    def forward(self, images):
        return self.head(self.conv(images).mean(dim=(2, 3)))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Vision().to(memory_format=torch.channels_last)
    fully_shard(model)  # <- FSDP707
    images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    model(images).sum().backward()
    dist.destroy_process_group()


main()
""",
            symptom=Symptom(raises="FSDP does not support non-contiguous parameters yet"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Projection(nn.Module):
    def __init__(self, matrix):
        super().__init__()
        self.weight = nn.Parameter(matrix.t())

    def forward(self, x):
        return x @ self.weight


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Projection(torch.randn(6, 4)), nn.Linear(6, 1))
fully_shard(model[0])  # <- FSDP707
fully_shard(model)
model(torch.randn(2, 4)).sum().backward()
dist.destroy_process_group()
""",
            symptom=Symptom(raises="FSDP does not support non-contiguous parameters yet"),
        ),
    )

    good = (
        Good(
            why="one element in one dimension; fewer elements than ranks",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Scaled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x + self.scale * self.linear(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Scaled(8), Scaled(8))
for block in model:
    fully_shard(block)
fully_shard(model)
model(torch.randn(4, 8)).pow(2).mean().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="only the images are in channels_last; a scalar buffer",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, kernel_size=3), nn.Flatten(), nn.Linear(288, 1))
model.register_buffer("steps", torch.tensor(0))
fully_shard(model)
images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
model(images).sum().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the scalar is ignored by FSDP",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)

    def forward(self, x):
        return self.scale * self.linear(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Scaled()
fully_shard(model, ignored_params={model.scale})
model(torch.randn(4, 4)).sum().backward()
dist.destroy_process_group()
""",
        ),
    )
