"""FSDP705: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, Refused, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import class_name


class BatchNormInLowPrecision(Rule):
    """A BatchNorm is sharded with a low `param_dtype`, which its running statistics do not follow.

    ## What it does
    Finds the `fully_shard` call with a `MixedPrecisionPolicy(param_dtype=...)` that takes a BatchNorm
    into its group, once the forward was refused for it.

    ## Why is this bad?
    The policy casts parameters and inputs, and no buffers: the running mean and variance
    stay in float32 while weight and bias come in bfloat16. The forward raises "RuntimeError: expected
    scalar type BFloat16 but found Float", in training and in evaluation. FSDP1 left BatchNorm out of
    mixed precision by itself; FSDP2 does not.

    ## Since
    torch 2.4.

    ## References
    - pytorch/torchtitan#674 and #671.
    - torch docs, `torch.distributed.fsdp.MixedPrecisionPolicy`.
    """

    code = "FSDP705"
    name = "batchnorm-in-low-precision"
    severity = Severity.ERROR
    runtime_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        for event in trace.of(Refused):
            owner = groups.owner(event.module, before=event)
            if event.reason != "batchnorm" or owner is None:
                continue
            shards = groups.shards(owner)
            types = {name: kind.removeprefix("torch.") for name, kind in event.parameters}
            at: Event = shards[-1] if shards else event
            yield self.finding(
                at,
                f"the group of `{class_name(trace, owner)}` has a "
                f"`{class_name(trace, event.module)}`, whose parameters come in {types['weight']} "
                f"while its running statistics are {types['running_mean']}",
                help="Shard each BatchNorm by itself first, with a policy that leaves its parameters "
                "alone: `fully_shard(norm, mp_policy=MixedPrecisionPolicy())`.",
                because=[(event, "refused here")],
            )

    bad = (
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 1))
fully_shard(model[0], mp_policy=policy)
fully_shard(model, mp_policy=policy)  # <- FSDP705
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
""",
            symptom=Symptom(raises="expected scalar type BFloat16 but found Float"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Stage(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))


def evaluate(model, inputs):
    model.eval()
    with torch.no_grad():
        return model(inputs).mean().item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    options = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16)}
    model = nn.Sequential(Stage(8), Stage(8))
    for stage in model:
        fully_shard(stage, **options)  # <- FSDP705
    fully_shard(model, **options)
    print(evaluate(model, torch.randn(4, 8)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
            symptom=Symptom(raises="expected scalar type BFloat16 but found Float"),
        ),
    )

    good = (
        Good(
            why="each BatchNorm is a group with a policy of its own",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 1))
for module in model:
    if isinstance(module, nn.BatchNorm2d):
        fully_shard(module, mp_policy=MixedPrecisionPolicy())
fully_shard(model, mp_policy=policy)
for step in range(2):
    model(torch.randn(2, 3, 8, 8)).sum().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="no running statistics; a LayerNorm has none either",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
norm = nn.BatchNorm1d(8, track_running_stats=False)
model = nn.Sequential(nn.Linear(8, 8), norm, nn.LayerNorm(8), nn.Linear(8, 1))
fully_shard(model, mp_policy=policy)
for step in range(2):
    model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the whole model is bfloat16, its buffers too",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).bfloat16()
fully_shard(model)
for step in range(2):
    model(torch.randn(4, 8).bfloat16()).sum().backward()
dist.destroy_process_group()
""",
        ),
    )
