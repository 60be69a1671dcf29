"""FSDP106: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import ModuleAttached, Sharded, Site, Trace
from fsdplint.trace.groups import Groups, sharded_by

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class ChildrenAfterRoot(Rule):
    """A module is sharded after the module that contains it.

    ## What it does
    Finds `fully_shard(block)` that runs after `fully_shard` of a module that `block` is a part of,
    and that had taken its parameters. Besides the plain order of statements this happens in loops over
    `model.modules()`, which gives parents first, when two of the sharded classes are nested.

    ## Why is this bad?
    The parent's group already holds the parameters. The second call takes them for parameters of
    another parallelism and fails: `TypeError: Invariant encountered: value was None when it should
    not be`, or `RuntimeError: Cannot concatenate overlapping meshes` where the mesh has names.

    ## Fix safety
    Safe: the loop runs over `reversed(list(model.modules()))`, which gives children first, or the
    root's `fully_shard` moves behind its children's. There is no fix where the model is used in between.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`, user contract: apply it bottom-up.
    """

    code = "FSDP106"
    name = "children-after-root"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for child, parent in _misordered(groups):
            if child.site in seen:
                continue
            seen.add(child.site)
            name, outer = groups.name(child.module), groups.name(parent.module)
            loop = child.site == parent.site
            yield self.finding(
                child,
                f"{name} is sharded after {outer}, which contains it and holds its parameters",
                help="Shard children before parents: loop over `reversed(list(model.modules()))`."
                if loop
                else f"Shard {outer} after all of its parts.",
                because=[(parent, "" if loop else "the parent is sharded here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.moves import move_shard_after
        from fsdplint.edits.places import last_meeting, modules_loop
        from fsdplint.edits.rewrite import Rewrite

        child, parent = finding.events[0], finding.events[1]
        rewrite = Rewrite()
        if child.site == parent.site:
            loop = modules_loop(child.site)
            if loop is None:
                return None
            source, iterable = loop
            rewrite.replace(source, iterable, f"reversed(list({source.code(iterable)}))")
            return rewrite.fix("Shard children before parents", Safety.SAFE)
        late = [
            event
            for trace in program.traces
            for event, above in _misordered(Groups(trace))
            if above.site == parent.site
        ]
        place = last_meeting(parent, late)
        if place is None or not move_shard_after(rewrite, parent.site, place, late):
            return None
        return rewrite.fix("Shard the root after its parts", Safety.SAFE)

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
fully_shard(model)
for layer in model.layers:
    fully_shard(layer)  # <- FSDP106
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model(torch.randn(16, 8)).mean().backward()
optimizer.step()
print("trained")
dist.destroy_process_group()
""",
            symptom=Symptom(raises="Invariant encountered: value was None when it should not be"),
            changes=(
                (
                    "fully_shard(model)\nfor layer in model.layers:\n    fully_shard(layer)\n",
                    "for layer in model.layers:\n    fully_shard(layer)\nfully_shard(model)\n",
                ),
            ),
            healthy="trained",
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        return self.mix(x)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = Attention(width)
        self.mlp = nn.Linear(width, width)

    def forward(self, x):
        return x + self.mlp(self.attention(x))


class Net(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.mean()


def apply_fsdp(model, mesh):
    for module in model.modules():
        if isinstance(module, (Attention, Block)):
            fully_shard(module, mesh=mesh)  # <- FSDP106
    fully_shard(model, mesh=mesh)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("shard",))
    torch.manual_seed(0)
    model = Net()
    apply_fsdp(model, mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(16, 8)).backward()
    optimizer.step()
    print("trained")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
            symptom=Symptom(raises="Cannot concatenate overlapping meshes"),
            changes=(("in model.modules():", "in reversed(list(model.modules())):"),),
            healthy="trained",
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
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.decoder = nn.Linear(8, 4)

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Trainer:
    def __init__(self):
        self.model = Net()
        # the whole model
        self.model = fully_shard(self.model)
        self.options = {"reshard_after_forward": True}
        fully_shard(self.model.encoder, **self.options)  # <- FSDP106
        fully_shard(self.model.decoder, **self.options)  # <- FSDP106
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x):
        self.model(x).mean().backward()
        self.optimizer.step()


dist.init_process_group("gloo")
torch.manual_seed(0)
Trainer().step(torch.randn(16, 4))
print("trained")
dist.destroy_process_group()
""",
            symptom=Symptom(raises="Invariant encountered: value was None when it should not be"),
            changes=(
                (
                    """\
        # the whole model
        self.model = fully_shard(self.model)
        self.options = {"reshard_after_forward": True}
        fully_shard(self.model.encoder, **self.options)
        fully_shard(self.model.decoder, **self.options)
""",
                    """\
        self.options = {"reshard_after_forward": True}
        fully_shard(self.model.encoder, **self.options)
        fully_shard(self.model.decoder, **self.options)
        # the whole model
        self.model = fully_shard(self.model)
""",
                ),
            ),
            healthy="trained",
        ),
    )

    good = (
        Good(
            why="a loop over modules() whose sharded classes are not nested, then the root",
            code="""\
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
        self.embedding = nn.Embedding(16, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return x.mean()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
for name, module in model.named_modules():
    if isinstance(module, (Block, nn.Embedding)):
        fully_shard(module)
fully_shard(model)
model(torch.arange(8)).backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="nested classes, but children come first",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def wanted(module):
    return isinstance(module, (Block, nn.Linear))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Block(8), Block(8))
for module in reversed([m for m in model.modules() if wanted(m)]):
    fully_shard(module)
fully_shard(model)
model(torch.randn(4, 8)).mean().backward()
dist.destroy_process_group()
""",
        ),
        Good(
            why="two models one after the other, and a later part without parameters",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def build():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    for layer in (model[0], model[2]):
        fully_shard(layer)
    return fully_shard(model)


dist.init_process_group("gloo")
torch.manual_seed(0)
generator, critic = build(), build()
fully_shard(critic[1])
critic(generator(torch.randn(4, 4))).mean().backward()
dist.destroy_process_group()
""",
        ),
    )


def _misordered(groups: Groups) -> Iterator[tuple[Sharded, Sharded]]:
    """(child, parent) pairs of shardings where the child comes second and has parameters."""
    shards = list(groups.trace.of(Sharded))
    certain = {event.index for event in shards if not groups.trace.certainty.tested_in_loop(event)}
    for number, child in enumerate(shards):
        for target in sharded_by(child):
            above = set(groups.above(target))
            before = (p for p in shards[:number] if above & set(sharded_by(p)))
            parent = next((p for p in before if p.index in certain), None)
            if parent is None or groups.without_parameters(target, before=child):
                continue
            if _put_in_between(groups, target, parent, child):
                continue
            together = child.site == parent.site
            if together and not (child.index in certain and _selected(groups, child)):
                continue
            yield child, parent
            break


def _put_in_between(groups: Groups, target: str, parent: Sharded, child: Sharded) -> bool:
    """Whether the module's parameters came into the parent only after that was sharded."""
    new = {
        part
        for event in groups.trace.after(parent, ModuleAttached)
        if event.index < child.index
        for part in event.new
    }
    modules = groups.trace.modules
    members = groups.members(target, before=child)
    return {m for m in members if modules[m].own_parameters is not False} <= new


def _selected(groups: Groups, child: Sharded) -> bool:
    """Whether the modules that a loop shards are certain to be among those that it visits.

    A loop whose test could not be decided seems to shard every module that it visits.
    """
    modules = groups.trace.modules
    together = {
        target
        for event in groups.trace.of(Sharded)
        if event.site == child.site
        for target in sharded_by(event)
    }
    if any(modules[m].container or not modules[m].children_known for m in together):
        return False
    if any(modules[m].perhaps_chosen for m in together):
        return False
    roots = [m for m in together if next(groups.above(m), None) is None]
    return not any(together >= set(groups.trace.submodules(root)) for root in roots)
