"""FSDP113: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Called,
    Escaped,
    ModuleAttached,
    OptimizerBuilt,
    OptimizerStepped,
    Sharded,
    Site,
    Trace,
    Wrapped,
    first,
)
from fsdplint.trace.groups import Groups, Shard, shard_events, sharded_by
from fsdplint.trace.queries.common import reduced_by_hand

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class ModuleAttachedAfterSharding(Rule):
    """A new trainable module is put into a model that is sharded already.

    ## What it does
    Finds submodules with parameters of their own that are put into a sharded module (a new head,
    LoRA layers in the place of linear ones), held by an optimizer that is built after that, and not
    sharded themselves.

    It says nothing where the new module is frozen or gets its own `fully_shard`, or where the program
    reduces gradients itself. FSDP1 is no different.

    ## Why is this bad?
    Sharding has taken the parameters that were there. Those that come later are plain tensors, whole
    on every rank, and nobody reduces their gradients, so that each rank trains its own version of
    them: without an error, the sum of the weights of a new head was -0.96925 on one rank and -0.97604
    on the other after three steps. `clip_grad_norm_` over all parameters ends with `RuntimeError:
    aten._foreach_norm.Scalar got mixed torch.Tensor and DTensor`.

    ## Fix safety
    Unsafe: the root's `fully_shard` moves behind what attaches the module, so that it takes the new
    parameters too. There is no fix where that is no plain statement of the same block, where the
    new module goes into a part that is sharded itself, or for FSDP1.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`, user contract: it converts the parameters that
      the module has when it is called.
    - huggingface/peft#3578, axolotl-ai-cloud/axolotl#3403.
    """

    code = "FSDP113"
    name = "module-attached-after-sharding"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        attached = list(trace.of(ModuleAttached))
        if not attached or not trace.complete or reduced_by_hand(trace):
            return
        groups = Groups(trace)
        seen: set[Site] = set()
        for event in attached:
            shard = _shard_around(groups, event)
            if event.site in seen or event.ranks.partial or shard is None:
                continue
            built = _trained_by(trace, event, _left_out(trace, event))
            if built is not None:
                seen.add(event.site)
                yield self._finding(groups, event, shard, built)

    def _finding(
        self, groups: Groups, event: ModuleAttached, shard: Shard, built: OptimizerBuilt
    ) -> Finding:
        api = "fully_shard" if isinstance(shard, Sharded) else "FSDP"
        new = groups.name(event.new[0])
        return self.finding(
            event,
            f"{new} is put into a module that `{api}` has sharded already: its parameters are not "
            f"sharded and their gradients not reduced over the ranks",
            help=f"Put it in before `{api}` is applied, or apply `{api}` to it before the optimizer "
            f"is built.",
            because=[(shard, "sharded here"), (built, "trained by this optimizer")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.moves import move_shard_after
        from fsdplint.edits.places import last_meeting
        from fsdplint.edits.rewrite import Rewrite

        event, shard = finding.events[0], finding.events[1]
        if not isinstance(event, ModuleAttached) or not isinstance(shard, Sharded):
            return None
        if not all(_takes_it(trace, event.site, shard.site) for trace in program.traces):
            return None
        late = [
            other
            for trace in program.traces
            for other in trace.of(ModuleAttached)
            if shard in trace.events and other.index > shard.index
        ]
        place = last_meeting(shard, late)
        rewrite = Rewrite()
        if place is None or not move_shard_after(rewrite, shard.site, place, late, in_calls=True):
            return None
        return rewrite.fix("Shard the root after the new module is in it", Safety.UNSAFE)

    bad = (
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
fully_shard(model.body)
fully_shard(model)
# the new task has two classes
model.head = nn.Linear(8, 2)  # <- FSDP113
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(3):
    inputs, labels = torch.randn(16, 4), torch.randint(0, 2, (16,))
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
digests = [None, None]
dist.all_gather_object(digests, str(model.state_dict()["head.bias"]))
print("sharded:", "DTensor" in digests[0], "the ranks agree:", digests[0] == digests[1])
dist.destroy_process_group()
""",
            symptom=Symptom(prints="sharded: False the ranks agree: False"),
            changes=(
                (
                    "fully_shard(model)\n"
                    "# the new task has two classes\n"
                    "model.head = nn.Linear(8, 2)\n",
                    "# the new task has two classes\n"
                    "model.head = nn.Linear(8, 2)\n"
                    "fully_shard(model)\n",
                ),
            ),
            healthy="sharded: True",
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class LoRALinear(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


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

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def add_adapters(model):
    model.requires_grad_(False)
    for layer in model.layers:
        layer.linear = LoRALinear(layer.linear)  # <- FSDP113


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Net()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    add_adapters(model)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-2)
    torch.manual_seed(dist.get_rank())
    for _ in range(2):
        model(torch.randn(16, 8)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    digests = [None, None]
    dist.all_gather_object(digests, sum(p.sum().item() for p in trainable))
    print("the ranks agree:", digests[0] == digests[1])
    dist.destroy_process_group()


main()
""",
            symptom=Symptom(prints="the ranks agree: False"),
        ),
        Bad(
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Identity()

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(Net(), device_id=torch.device("cpu"), use_orig_params=True)
setattr(model.module, "head", nn.Linear(8, 1))  # <- FSDP113
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
model(torch.randn(16, 4)).pow(2).mean().backward()
optimizer.step()
heads = [torch.empty_like(model.module.head.weight) for _ in range(2)]
dist.all_gather(heads, model.module.head.weight.detach())
print("the ranks agree:", torch.equal(*heads))
dist.destroy_process_group()
""",
            symptom=Symptom(prints="the ranks agree: False"),
        ),
    )

    good = (
        Good(
            why="the new head is sharded as well, before the optimizer is built",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 10))
fully_shard(model[0])
fully_shard(model)
model[2] = nn.Linear(8, 2)
fully_shard(model[2])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
model(torch.randn(16, 4)).pow(2).mean().backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
dist.destroy_process_group()
""",
        ),
        Good(
            why="what is put in is sharded already (a tied weight's module), or has no parameters",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 4)
        self.decoder = nn.Linear(4, 4)

    def forward(self, x):
        return self.decoder(torch.relu(self.encoder(x)))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
fully_shard(model)
model.decoder = model.encoder
model.dropout = nn.Dropout(0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(16, 4)).pow(2).mean().backward()
optimizer.step()
dist.destroy_process_group()
""",
        ),
        Good(
            why="the new module is frozen, or trained by nobody",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
projection = nn.Linear(8, 2)
projection.requires_grad_(False)
model.add_module("projection", projection)
for _ in range(2):
    model(torch.randn(16, 4)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
""",
        ),
        Good(
            why="put in before sharding; another model is sharded by then",
            code="""\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
teacher.requires_grad_(False)
fully_shard(teacher)
student = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 10))
student[2] = nn.Linear(8, 1)
fully_shard(student)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
inputs = torch.randn(16, 4)
nn.functional.mse_loss(student(inputs), teacher(inputs)).backward()
optimizer.step()
dist.destroy_process_group()
""",
        ),
    )


def _parts(trace: Trace, shard: Shard) -> set[str]:
    return {part for module in sharded_by(shard) for part in trace.submodules(module)}


def _shard_around(groups: Groups, event: ModuleAttached) -> Shard | None:
    """What sharded the module, or the nearest one around it, before something was put into it."""
    shards = shard_events(groups.trace, before=event)
    for module in (event.module, *groups.above(event.module)):
        found = first(shard for shard in shards if module in sharded_by(shard))
        if found is not None:
            return found
    return None


def _left_out(trace: Trace, event: ModuleAttached) -> set[str]:
    """The new modules that are trained and that nothing shards, or may shard, afterwards."""
    later = [_parts(trace, shard) for shard in shard_events(trace, after=event)]
    lost = [set(trace.submodules(e.module)) for e in trace.after(event, Escaped)]
    gone = set().union(*later, *lost)
    return {
        part
        for part in event.new
        if part not in gone and part in trace.modules and not trace.modules[part].frozen
    }


def _trained_by(trace: Trace, event: ModuleAttached, parts: set[str]) -> OptimizerBuilt | None:
    """An optimizer that holds and steps one of the modules."""
    for built in trace.after(event, OptimizerBuilt):
        held = {part for module in built.modules for part in trace.submodules(module)}
        stepped = any(
            step.optimizer == built.optimizer for step in trace.after(built, OptimizerStepped)
        )
        if stepped and held & parts and any(True for _ in trace.after(event, BackwardRun)):
            return built
    return None


def _takes_it(trace: Trace, site: Site, shard: Site) -> bool:
    """Whether a `fully_shard` at another place, made after what a site attaches, would take it: the
    module that it goes into is in the group of that one, and nothing used the model in between.
    """
    groups = Groups(trace)
    for event in trace.of(ModuleAttached):
        if event.site != site:
            continue
        around = _shard_around(groups, event)
        if around is None or around.site != shard or isinstance(around, Wrapped):
            return False
        between = trace.events[around.index : event.index]
        if any(isinstance(other, Called | OptimizerBuilt) for other in between):
            return False
    return True
