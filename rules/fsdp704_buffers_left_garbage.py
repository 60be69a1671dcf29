"""FSDP704: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import names
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import ModuleMoved, Trace
from fsdplint.trace.queries.common import class_name


class BuffersLeftGarbage(Rule):
    """Buffers of a model that was built on meta are never given their values.

    ## What it does
    Finds buffers that `to_empty()` made and that nothing has written to when the first forward has
    ended: frequencies of rotary embeddings, masks, running statistics.

    Buffers that are loaded, set again by the program, or made by the forward itself are not reported.

    ## Why is this bad?
    `to_empty()` allocates memory and writes nothing to it. `reset_parameters()` sets parameters,
    and a checkpoint has no buffers that were registered with `persistent=False`. So the forward computes
    with whatever was in the memory before: here -1.6e-18, 3.1e-41 and the like instead of
    frequencies between 0 and 1, elsewhere NaN, and other values on each rank and in each run. There is
    no error.

    ## Since
    Always (`to_empty`: torch 1.13).

    ## References
    - https://docs.pytorch.org/docs/stable/meta.html (`to_empty`)
    - huggingface/transformers#45902.
    """

    code = "FSDP704"
    name = "buffers-left-garbage"
    severity = Severity.ERROR
    runtime_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        for event in trace.of(ModuleMoved):
            if not event.untouched:
                continue
            which = names(event.untouched, "buffer")
            verb = "was" if len(event.untouched) == 1 else "were"
            yield self.finding(
                event,
                f"{which} of `{class_name(trace, event.module)}` {verb} never written to after "
                "`to_empty`, and the model computes with what was in the memory",
                help="Compute them again after `to_empty`, for instance in the module's "
                "`reset_parameters`, or copy them from a model that was not built on meta. Loading a "
                "checkpoint does not set buffers that are not persistent.",
            )

    bad = (
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Rotary(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("frequencies", self.compute(width), persistent=False)

    @staticmethod
    def compute(width):
        return 100.0 ** (-torch.arange(0, width, 2) / width)

    def forward(self, x):
        angles = torch.outer(torch.arange(x.shape[0], dtype=torch.float32), self.frequencies)
        return x * torch.cat([angles.cos(), angles.sin()], dim=-1)


dist.init_process_group("gloo")
torch.manual_seed(0)
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(8, 8), Rotary(8), nn.Linear(8, 1))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
model.to_empty(device="cpu")  # <- FSDP704
for module in model.modules():
    if isinstance(module, nn.Linear):
        module.reset_parameters()
model(torch.randn(4, 8)).sum().backward()
print("frequencies:", torch.equal(model[1].frequencies, Rotary.compute(8)))
dist.destroy_process_group()
""",
            symptom=Symptom(prints="frequencies: False"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard


class Mixer(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.value = nn.Linear(width, width)
        self.register_buffer("decay", 0.5 ** torch.arange(1, length + 1), persistent=False)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return self.value(x).cumsum(0) * self.decay[:, None] * self.scale


def load(checkpoint):
    with torch.device("meta"):
        model = Mixer(4, 8)
    fully_shard(model)
    model.to_empty(device="cpu")  # <- FSDP704
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, checkpoint, options=options)
    return model


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    original = Mixer(4, 8)
    x = torch.randn(4, 8)
    wanted = original(x)
    model = load(original.state_dict() if dist.get_rank() == 0 else {})
    print("same as before:", torch.allclose(model(x), wanted, atol=1e-5))
    dist.destroy_process_group()


main()
""",
            symptom=Symptom(prints="same as before: False"),
        ),
    )

    good = (
        Good(
            why="each module sets its parameters and buffers",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Rotary(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.register_buffer("frequencies", torch.empty(width // 2), persistent=False)
        self.reset_parameters()

    def reset_parameters(self):
        exponents = torch.arange(0, self.width, 2) / self.width
        self.frequencies.data = 100.0**-exponents.to(self.frequencies.device)

    def forward(self, x):
        angles = torch.outer(torch.arange(x.shape[0], dtype=torch.float32), self.frequencies)
        return x * torch.cat([angles.cos(), angles.sin()], dim=-1)


dist.init_process_group("gloo")
torch.manual_seed(0)
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(8, 8), Rotary(8), nn.BatchNorm1d(8), nn.Linear(8, 1))
fully_shard(model)
model.to_empty(device="cpu")
for module in model.modules():
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()
model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the first forward makes the buffer",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Positions(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("table", torch.zeros(1, width), persistent=False)
        self.ready = False

    def forward(self, x):
        if not self.ready:
            steps = torch.arange(len(x), dtype=torch.float32)[:, None]
            self.table = torch.sin(steps * torch.arange(1.0, x.shape[1] + 1))
            self.ready = True
        return self.linear(x + self.table)


dist.init_process_group("gloo")
torch.manual_seed(0)
with torch.device("meta"):
    model = Positions(8)
fully_shard(model)
model.to_empty(device="cpu")
model.linear.reset_parameters()
for step in range(2):
    model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the buffers are in the checkpoint",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("decay", 0.5 ** torch.arange(1, 9))

    def forward(self, x):
        return self.norm(self.value(x)) * self.decay


dist.init_process_group("gloo")
torch.manual_seed(0)
original = Mixer().eval()
x = torch.randn(4, 8)
wanted = original(x)
with torch.device("meta"):
    model = Mixer().eval()
fully_shard(model)
model.to_empty(device="cpu")
options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
state = original.state_dict() if dist.get_rank() == 0 else {}
set_model_state_dict(model, state, options=options)
assert torch.allclose(model(x), wanted, atol=1e-5)
dist.destroy_process_group()
""",
        ),
        Good(
            why="only the layers were built on meta",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8, device="meta")
        self.register_buffer("scale", torch.full((1,), 0.5))

    def forward(self, x):
        return self.linear(x) * self.scale


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Scaled()
fully_shard(model)
model.linear.to_empty(device="cpu")
model.linear.reset_parameters()
model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
""",
        ),
    )
