"""FSDP703: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import names
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Refused, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import class_name


class MixedDtypesInGroup(Rule):
    """A group of `fully_shard` has trainable parameters of several types.

    ## What it does
    Finds the `fully_shard` call whose group holds trainable parameters of more than one type (float32
    norms next to bfloat16 layers, a fresh float32 adapter on a bfloat16 checkpoint), once the first
    forward was refused for it.

    A group is what one call takes: the parameters of the module that no earlier call has taken. Frozen
    parameters may have any type.

    ## Why is this bad?
    The gradients of a group are reduced together, in one type. The first forward raises
    "AssertionError: FSDP expects uniform original parameter dtype but got {torch.bfloat16,
    torch.float32}", and does not say which module or parameters it means.

    ## Since
    torch 2.4.

    ## References
    - pytorch/pytorch#156784.
    - torch docs, `torch.distributed.fsdp.fully_shard` and `MixedPrecisionPolicy`.
    """

    code = "FSDP703"
    name = "mixed-dtypes-in-group"
    severity = Severity.ERROR
    runtime_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        for event in trace.of(Refused):
            if event.reason != "dtypes":
                continue
            shards = groups.shards(event.module)
            at = shards[-1] if shards else event
            by_type: dict[str, list[str]] = {}
            for name, kind in event.parameters:
                by_type.setdefault(kind, []).append(name)
            # The smaller part first: that is usually the one that was not meant to be there.
            kinds = sorted(by_type, key=lambda kind: len(by_type[kind]))
            parts = [
                f"{names(by_type[kind], 'parameter', limit=2)} in {kind.removeprefix('torch.')}"
                for kind in kinds
            ]
            yield self.finding(
                at,
                f"the group of `{class_name(trace, event.module)}` has {' and '.join(parts)}; its "
                "gradients can only be reduced in one type",
                help="Cast the trainable parameters to one type before sharding and let a "
                "`MixedPrecisionPolicy` choose the type to compute in, or shard the modules of the "
                "other type by themselves first.",
                because=[(event, "refused here")],
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
        self.linear = nn.Linear(width, width, dtype=torch.bfloat16)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return x + self.linear(self.norm(x).bfloat16()).float()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Block(8), Block(8), nn.Linear(8, 1))
for block in model:
    fully_shard(block)  # <- FSDP703
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(2):
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
""",
            symptom=Symptom(raises="FSDP expects uniform original parameter dtype but got"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def build():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)).to(torch.bfloat16)
    head = nn.Linear(8, 2)  # new, in full precision
    return nn.ModuleDict({"body": body, "head": head})


class Classifier(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def forward(self, x):
        hidden = self.parts["body"](x.to(torch.bfloat16))
        return self.parts["head"](hidden.float())


def main():
    dist.init_process_group("gloo")
    model = Classifier(build())
    for layer in model.parts["body"]:
        if isinstance(layer, nn.Linear) and layer.in_features == 4:
            fully_shard(layer)
    fully_shard(model)  # <- FSDP703
    loss = nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(2, (8,)))
    loss.backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
            symptom=Symptom(raises="FSDP expects uniform original parameter dtype but got"),
        ),
    )

    good = (
        Good(
            why="the norms are groups of their own",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width, dtype=torch.bfloat16)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return x + self.linear(self.norm(x).bfloat16()).float()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Block(8), Block(8))
for block in model:
    fully_shard(block.norm)
    fully_shard(block)
fully_shard(model)
model(torch.randn(4, 8)).pow(2).mean().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="what has the other type is frozen",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Adapted(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.base = nn.Linear(width, width, dtype=torch.bfloat16).requires_grad_(False)
        self.down = nn.Linear(width, 2, bias=False)
        self.up = nn.Linear(2, width, bias=False)

    def forward(self, x):
        return self.base(x.bfloat16()).float() + self.up(self.down(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Adapted(8), Adapted(8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
model(torch.randn(4, 8)).pow(2).mean().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="one type to keep, another one to compute in",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 1))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
model(torch.randn(4, 8)).pow(2).mean().backward()
dist.destroy_process_group()
""",
        ),
    )
