"""FSDP114: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Gathered, Sharded, Trace
from fsdplint.trace.groups import Groups, sharded_by

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

ATTENTION = "torch.nn.MultiheadAttention"
PROJECTION = "torch.nn.Linear"

SCRIPT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.down(torch.relu(self.up(x)))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
for module in model.modules():
    if isinstance(module, nn.Linear):
        fully_shard(module)  # <- FSDP114
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model(torch.randn(4, 3, 8)).pow(2).mean().backward()
optimizer.step()
print("trained")
dist.destroy_process_group()
"""

ENCODER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

LAYERS = (nn.Linear, nn.LayerNorm)


class Classifier(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.encoder(x).mean(dim=1))


class Trainer:
    def __init__(self, model):
        self.model = model
        self.shard()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def shard(self):
        for name, module in self.model.named_modules():
            if isinstance(module, LAYERS):
                fully_shard(module, reshard_after_forward=False)  # <- FSDP114
        fully_shard(self.model)

    def step(self, x, y):
        nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer(Classifier()).step(torch.randn(4, 3, 8), torch.randint(0, 2, (4,)))
    print("trained")
    dist.destroy_process_group()
"""

BY_NAME = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.MultiheadAttention(8, 2, batch_first=True)
fully_shard(model.out_proj)  # <- FSDP114
fully_shard(model)
x = torch.randn(4, 3, 8)
model(x, x, x)[0].sum().backward()
dist.destroy_process_group()
"""

WHOLE_ATTENTION = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Linear(width, width)

    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.mlp(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Block(), Block())
for module in model.modules():
    if isinstance(module, nn.MultiheadAttention):
        fully_shard(module)
for block in model:
    fully_shard(block.mlp)
    fully_shard(block)
fully_shard(model)
model(torch.randn(4, 3, 8)).mean().backward()
dist.destroy_process_group()
"""

EXACT_CLASS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
# type() rather than isinstance(): the projection of the attention is of a class of its own
for module in model.modules():
    if type(module) is nn.Linear:
        fully_shard(module)
fully_shard(model)
model(torch.randn(4, 3, 8)).mean().backward()

other = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
for name, module in other.named_modules():
    if isinstance(module, nn.Linear) and not name.endswith("out_proj"):
        fully_shard(module)
fully_shard(other)
other(torch.randn(4, 3, 8)).mean().backward()
dist.destroy_process_group()
"""

OWN_ATTENTION = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class MultiheadAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.in_proj(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out_proj(y.transpose(1, 2).flatten(2))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(MultiheadAttention(8, 2), nn.Linear(8, 8))
for module in model.modules():
    if isinstance(module, nn.Linear):
        fully_shard(module)
fully_shard(model)
model(torch.randn(4, 3, 8)).mean().backward()
dist.destroy_process_group()
"""


SYMPTOM = Symptom(raises=r"aten\.addmm\.default got mixed torch\.Tensor and DTensor")


class ShardedAttentionProjection(Rule):
    """The output projection of `nn.MultiheadAttention` is sharded by itself.

    ## What it does
    Finds `fully_shard` of the `out_proj` inside an `nn.MultiheadAttention`, by name or as what a loop
    visits that shards every `nn.Linear` of a model: `out_proj` is a subclass of it. The attention may be
    that of an `nn.TransformerEncoderLayer` or another of torch's layers.

    Sharding the attention as a whole is fine, and so is a loop that leaves `out_proj` out.

    ## Why is this bad?
    FSDP2 gathers a module's parameters when the module is called. The attention never calls its
    projection, it hands the weight to a function: `RuntimeError: aten.addmm.default got mixed torch.Tensor
    and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!`

    ## Fix safety
    Unsafe: the test of the loop takes `nn.Linear` only where it is that very class, `type(module) is
    nn.Linear`, so that the projection stays with the attention's own parameters. There is no fix for
    loops of another form.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch source, `torch.distributed.fsdp.wrap.FORCE_LEAF_MODULES`: FSDP1 does not wrap inside an
      attention for the same reason.
    """

    code = "FSDP114"
    name = "sharded-attention-projection"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        gathered = {event.module for event in trace.of(Gathered)}
        seen = set()
        for event in trace.of(Sharded):
            if event.site in seen or len(event.group) > 1 or not trace.certainty.of_module(event):
                continue
            if not _is_projection(groups, *sharded_by(event)) or event.module in gathered:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                "the `out_proj` of a `MultiheadAttention` is sharded by itself, but the attention "
                "never calls it and reads its weight while it is sharded",
                help="Leave the projections out (`type(module) is nn.Linear` does not hold for them), "
                "or shard the attention as a whole.",
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.exact_class import test_exact_class

        rewrite = Rewrite()
        if not test_exact_class(rewrite, program, finding.site, PROJECTION):
            return None
        return rewrite.fix("Leave the attention's projection out", Safety.UNSAFE)

    bad = (
        Bad(
            code=SCRIPT,
            symptom=SYMPTOM,
            changes=(("if isinstance(module, nn.Linear):", "if type(module) is nn.Linear:"),),
            healthy="trained",
        ),
        Bad(code=ENCODER, symptom=SYMPTOM),
        Bad(code=BY_NAME, symptom=SYMPTOM),
    )

    good = (
        Good(why="the attention is sharded as a whole", code=WHOLE_ATTENTION),
        Good(why="loops over linear layers that leave the projection out", code=EXACT_CLASS),
        Good(
            why="an attention of the program's own, which calls its projection", code=OWN_ATTENTION
        ),
    )


def _is_projection(groups: Groups, module: str) -> bool:
    """Whether the module is the output projection of torch's attention."""
    parent = next(groups.above(module), None)
    if parent is None:
        return False
    info = groups.trace.modules[parent]
    return info.qualified_class == ATTENTION and info.children.get("out_proj") == module
