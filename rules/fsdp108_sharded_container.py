"""FSDP108: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Sharded, Trace
from fsdplint.trace.groups import Groups, sharded_by

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

SCRIPT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class Net(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.layers = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
fully_shard(model.layers)  # <- FSDP108
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model(torch.randn(16, 8)).pow(2).mean().backward()
optimizer.step()
print("trained")
dist.destroy_process_group()
"""

EXPERTS = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Experts(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.experts = nn.ModuleDict({"text": nn.Linear(width, 4), "image": nn.Linear(width, 4)})

    def forward(self, x):
        return self.experts["text"](x) + self.experts["image"](x)


def parallelize(model, mesh):
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    # the experts, each on its own
    fully_shard(  # <- FSDP108
        model.experts,
        mesh=mesh,
        mp_policy=policy,
    )
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = parallelize(Experts(8), init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(16, 8)).pow(2).mean().backward()
    optimizer.step()
    print("trained")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

EVERY_CHILD = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Linear(4, width)
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = torch.relu(block(x))
        return x.mean()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
for child in model.children():
    fully_shard(child)  # <- FSDP108
fully_shard(model)
model(torch.randn(16, 4)).backward()
dist.destroy_process_group()
"""

AFTER_ELEMENTS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])

    def forward(self, x):
        for block in self.blocks:
            x = torch.relu(block(x))
        return x.mean()


class Trainer:
    def __init__(self):
        self.model = Net()
        for block in self.model.blocks:
            fully_shard(block)
        fully_shard(self.model.blocks)  # <- FSDP108
        fully_shard(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x):
        self.model(x).backward()
        self.optimizer.step()


dist.init_process_group("gloo")
torch.manual_seed(0)
Trainer().step(torch.randn(16, 8))
print("trained")
dist.destroy_process_group()
"""

ONE_GROUP = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.head(x).mean()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
fully_shard([model.blocks])  # <- FSDP108
fully_shard(model)
model(torch.randn(16, 8)).backward()
dist.destroy_process_group()
"""


class ShardedContainer(Rule):
    """`fully_shard` is applied to a ModuleList or ModuleDict, which has no forward.

    ## What it does
    Finds `fully_shard(model.layers)` where `model.layers` is an `nn.ModuleList` or `nn.ModuleDict`, by
    itself or as what a loop over the model's modules visits, and the list form that holds nothing but
    such containers and so gives their parameters to a module that is never called.

    An `nn.Sequential` has a forward and may be sharded, and so may the elements of a container, one by
    one or as the list `fully_shard(list(model.layers))`.

    ## Why is this bad?
    FSDP2 gathers a module's parameters around its forward, and a container's forward does not exist:
    `ValueError: fully_shard does not support containers that do not implement forward: ModuleList(...)`.
    The list form `fully_shard([model.layers])` passes, and the first forward fails with
    `RuntimeError: aten.addmm.default got mixed torch.Tensor and DTensor`.

    ## Fix safety
    Unsafe: the call becomes a loop that shards each element with the same options, one communication
    group for each. Where the elements are sharded already, the call goes. There is no fix in a loop
    over modules, nor where an element is a container itself.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`: containers such as ModuleList are not supported.
    - pytorch/pytorch#113794, #126937 and #167856.
    """

    code = "FSDP108"
    name = "sharded-container"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen = set()
        for event in trace.of(Sharded):
            targets = [trace.modules[target] for target in sharded_by(event)]
            if event.site in seen or not all(target.container for target in targets):
                continue
            if event.group and all(groups.without_parameters(m, before=event) for m in event.group):
                continue
            if not trace.certainty.of_module(event):
                continue
            seen.add(event.site)
            kind = targets[0].class_name
            yield self.finding(
                event,
                f"`fully_shard` is applied to `{_called(groups, targets[0].id)}`, a {kind}, "
                f"which has no forward of its own",
                help=f"Shard the elements of the {kind} one by one, or leave them to the parent.",
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.shard_elements import shard_elements

        rewrite = Rewrite()
        title = shard_elements(rewrite, program, finding.site)
        return rewrite.fix(title, Safety.UNSAFE) if title is not None else None

    bad = (
        Bad(
            code=SCRIPT,
            symptom=Symptom(raises="does not support containers that do not implement forward"),
            changes=(
                (
                    "fully_shard(model.layers)\n",
                    "for layer in model.layers:\n    fully_shard(layer)\n",
                ),
            ),
            healthy="trained",
        ),
        Bad(
            code=EXPERTS,
            symptom=Symptom(raises="does not support containers that do not implement forward"),
            changes=(
                (
                    "    fully_shard(\n"
                    "        model.experts,\n"
                    "        mesh=mesh,\n"
                    "        mp_policy=policy,\n"
                    "    )\n",
                    "    for expert in model.experts.values():\n"
                    "        fully_shard(expert, mesh=mesh, mp_policy=policy)\n",
                ),
            ),
            healthy="trained",
        ),
        Bad(
            code=EVERY_CHILD,
            symptom=Symptom(raises="does not support containers that do not implement forward"),
        ),
        Bad(
            code=AFTER_ELEMENTS,
            symptom=Symptom(raises="does not support containers that do not implement forward"),
            changes=(("        fully_shard(self.model.blocks)\n", ""),),
            healthy="trained",
        ),
        Bad(
            code=ONE_GROUP,
            symptom=Symptom(raises=r"got mixed torch\.Tensor and DTensor"),
        ),
    )

    good = (
        Good(
            why="a Sequential, and a ModuleList with a forward of its own",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Stack(nn.ModuleList):
    def forward(self, x):
        for layer in self:
            x = torch.relu(layer(x))
        return x


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(4, width), nn.ReLU())
        self.layers = Stack([nn.Linear(width, width) for _ in range(2)])

    def forward(self, x):
        return self.layers(self.stem(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
fully_shard(model.stem)
fully_shard(model.layers)
fully_shard(model)
model(torch.randn(4, 4)).mean().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the elements as one group: the list form of fully_shard",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self, width=8, depth=4):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
fully_shard(list(model.layers[:2]))
fully_shard([*model.layers[2:]])
fully_shard(model)
model(torch.randn(4, 8)).mean().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="a loop over all modules that leaves the containers out",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 1), "b": nn.Linear(width, 1)})
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.heads["a"](x) + self.heads["b"](x)


def has_forward(module):
    return type(module).forward is not nn.Module.forward


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
for name, module in reversed(list(model.named_modules())):
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        continue
    if not name:
        continue
    fully_shard(module)
fully_shard(model)
model(torch.randn(4, 8)).mean().backward()

other = Net()
for module in reversed(list(other.modules())):
    if has_forward(module):
        fully_shard(module)
other(torch.randn(4, 8)).mean().backward()
dist.destroy_process_group()
""",
        ),
    )


def _called(groups: Groups, module: str) -> str:
    """What the parent calls the container, else its class."""
    for parent in groups.above(module):
        for name, child in groups.trace.modules[parent].children.items():
            if child == module:
                return name
    return groups.trace.modules[module].class_name
