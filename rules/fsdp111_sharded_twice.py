"""FSDP111: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import Event, Sharded, Trace
from fsdplint.trace.groups import Groups, sharded_by
from fsdplint.trace.queries.common import varying

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

LOOP_WITH_ROOT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
# modules() gives the model itself as well
for module in reversed(list(model.modules())):
    fully_shard(module)
fully_shard(model)  # <- FSDP111
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model(torch.randn(16, 4)).pow(2).mean().backward()
optimizer.step()
print("trained")
dist.destroy_process_group()
"""

TRAINER = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def build_model(options):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    for layer in (model[0], model[2]):
        fully_shard(layer, **options)
    return fully_shard(model, **options)


class Trainer:
    def __init__(self, model):
        self.model = fully_shard(model)  # <- FSDP111
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x):
        self.model(x).pow(2).mean().backward()
        self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer(build_model({"reshard_after_forward": True})).step(torch.randn(16, 4))
    dist.destroy_process_group()
"""

SHARED_BLOCK = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
block = nn.Linear(4, 4)
model = nn.Sequential(block, nn.Tanh(), block)
fully_shard(model[0])
fully_shard(model[2])  # <- FSDP111
fully_shard(model)
model(torch.randn(16, 4)).pow(2).mean().backward()
print("trained")
dist.destroy_process_group()
"""

ASKED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FSDPModule, fully_shard


def shard_once(module, done):
    if module in done:
        return
    done.append(module)
    fully_shard(module)


dist.init_process_group("gloo")
torch.manual_seed(0)
block = nn.Linear(4, 4)
model = nn.Sequential(block, nn.Tanh(), block)
for layer in model.children():
    if not isinstance(layer, FSDPModule):
        fully_shard(layer)
fully_shard(model)
if not isinstance(model, FSDPModule):
    fully_shard(model)
model(torch.randn(16, 4)).pow(2).mean().backward()

other, done = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), []
for layer in other:
    shard_once(layer, done)
shard_once(other[0], done)
shard_once(other, done)
other(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
"""

NAMED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
for name, module in reversed(list(model.named_modules())):
    if name:
        fully_shard(module)
fully_shard(model)
model(torch.randn(16, 4)).pow(2).mean().backward()

for _ in range(2):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    fully_shard([model[0], model[2]])
    fully_shard(model)
    model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
"""

EITHER = """\
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def shard(layers, large):
    for layer in layers:
        if large(layer):
            fully_shard(layer, reshard_after_forward=True)
        else:
            fully_shard(layer, reshard_after_forward=False)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
shard(model, lambda layer: layer.weight.numel() > 16)
if len(sys.argv) > 1:
    fully_shard(model, reshard_after_forward=False)
else:
    fully_shard(model)
model(torch.randn(16, 4)).pow(2).mean().backward()
dist.destroy_process_group()
"""


class ShardedTwice(Rule):
    """`fully_shard` is applied to a module that is sharded already.

    ## What it does
    Finds modules that get to `fully_shard` a second time: the root after a loop over `model.modules()`
    that had the root in it, a model that both its builder and the trainer shard, a block that stands in
    the model twice.

    It says nothing where the program asks first (`isinstance(module, FSDPModule)`).

    ## Why is this bad?
    `AssertionError: Each distinct composable distributed API can only be applied to a module once.
    fully_shard has already been applied to the following module: ...`

    ## Fix safety
    Safe: the second call goes where it is a statement of its own that has the options of the first one.
    There is no other fix.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - torch source, `torch.distributed._composable.contract`.
    - torch docs, `torch.distributed.fsdp.fully_shard`: the user contract applies it to each module once.
    """

    code = "FSDP111"
    name = "sharded-twice"
    severity = Severity.ERROR
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        first: dict[str, Sharded] = {}
        seen = set()
        for event in trace.of(Sharded):
            for target in sharded_by(event):
                before = first.setdefault(target, event)
                if before is event or event.site in seen or trace.modules[target].repeated:
                    continue
                if not _both_happen(trace, before, event):
                    continue
                seen.add(event.site)
                yield self.finding(
                    event,
                    f"{groups.name(target)} is sharded already when `fully_shard` gets to it",
                    help="Shard each module once, its parts before it.",
                    because=[(before, "sharded here" if before.site != event.site else "")],
                )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.places import module_argument, options_text, shard_statement
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at

        event, before = finding.events
        shard, other = shard_statement(event.site), call_at(before.site)
        if shard is None or other is None or event.site == before.site:
            return None
        argument = module_argument(shard.call)
        if argument is None or shard.source.code(argument) != shard.module:
            return None
        if options_text(shard.source, shard.call) != options_text(*other):
            return None
        if any(_others(trace, event) for trace in program.traces):
            return None
        rewrite = Rewrite()
        rewrite.delete_statement(shard.source, shard.statement)
        return rewrite.fix("Do not shard the module again", Safety.SAFE)

    bad = (
        Bad(
            code=LOOP_WITH_ROOT,
            symptom=Symptom(raises="fully_shard has already been applied to the following module"),
            changes=(("\nfully_shard(model)\n", "\n"),),
            healthy="trained",
        ),
        Bad(
            code=TRAINER,
            symptom=Symptom(raises="fully_shard has already been applied to the following module"),
        ),
        Bad(
            code=SHARED_BLOCK,
            symptom=Symptom(raises="fully_shard has already been applied to the following module"),
            changes=(("fully_shard(model[2])\n", ""),),
            healthy="trained",
        ),
    )

    good = (
        Good(why="the program asks first, by class and by a list of its own", code=ASKED),
        Good(why="a loop that leaves the root out; a model built anew in a loop", code=NAMED),
        Good(why="two calls of which only one is made", code=EITHER),
    )


def _both_happen(trace: Trace, one: Sharded, other: Sharded) -> bool:
    """Whether it is certain that both calls are made, and of the very same module."""
    if one.site == other.site and (one.in_loop or other.in_loop):
        return False
    for event in (one, other):
        if event.ranks.partial or varying(event) or not trace.certainty.of_module(event):
            return False
    return trace.producer != "static" or _unconditional(trace, one, other)


def _unconditional(trace: Trace, one: Sharded, other: Sharded) -> bool:
    """Whether the second call is made whenever the first one is."""
    if trace.certainty.handles_errors(other):
        return False
    sites = {guard.site for guard in one.guards}
    if any(guard.site not in sites for guard in other.guards):
        return False
    if one.site == other.site:
        return not any(
            trace.certainty.same_function(guard.site, other.site) for guard in other.guards
        )
    return True


def _others(trace: Trace, event: Event) -> bool:
    """Whether the same call shards something that was not sharded before, in a trace."""
    for again in trace.of(Sharded):
        if again.site == event.site:
            earlier = {m for e in trace.before(again, Sharded) for m in sharded_by(e)}
            if not earlier >= set(sharded_by(again)):
                return True
    return False
