"""FSDP408: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, Collective, Event, Fsdp2Used, SyncSwitched, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

FLAT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
world_size = dist.get_world_size()
torch.manual_seed(0)
whole = nn.Linear(8, 8)
model = nn.Sequential(nn.Linear(8, 8))
model[0].load_state_dict(whole.state_dict())
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    batch = torch.randn(4, 8)
    loss = model(batch).pow(2).mean()
    # The loss of all ranks.
    dist.all_reduce(loss)
    loss = loss / world_size
    loss.backward()  # <- FSDP408
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
    if step == 0:  # the ranks have the same batch, so that one process gives the same gradient
        whole(batch).pow(2).mean().backward()
        alone = torch.nn.utils.clip_grad_norm_(whole.parameters(), 100.0)
        print(f"gradients are {norm.item() / alone.item():.2f} of what they should be")
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""

METHOD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model):
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        self.model = fully_shard(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def gradient(self, batch, together):
        loss = nn.functional.mse_loss(self.model(batch), batch)
        if together:
            dist.all_reduce(loss, op=dist.ReduceOp.SUM)
            loss /= dist.get_world_size()
        loss.backward()  # <- FSDP408
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 100.0)
        self.optimizer.zero_grad()
        return norm.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)))
    torch.manual_seed(dist.get_rank())
    batch = torch.randn(4, 8)
    ratio = trainer.gradient(batch, together=True) / trainer.gradient(batch, together=False)
    print(f"gradients are {ratio:.2f} of what they should be")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

AFTERWARDS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Sequential(nn.Linear(8, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss)
    loss /= dist.get_world_size()
    print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
"""

COPY = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def mean_over_ranks(value):
    value = value.detach().clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Sequential(nn.Linear(8, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    mean = mean_over_ranks(loss)
    (loss / 4).backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {mean.item():.4f}")
dist.destroy_process_group()
"""

TOKENS = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
world_size = dist.get_world_size()
torch.manual_seed(0)
model = fully_shard(nn.Sequential(nn.Linear(8, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    batch = torch.randn(4 + dist.get_rank(), 8)
    tokens = torch.tensor(batch.shape[0])
    dist.all_reduce(tokens)
    # The mean over the samples of all ranks; FSDP divides by the number of ranks.
    loss = model(batch).pow(2).sum() * world_size / tokens
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""

FACTOR = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = fully_shard(nn.Sequential(nn.Linear(8, 8)))
model.set_gradient_divide_factor(1.0)
model.set_force_sum_reduction_for_comms(True)  # which gloo needs for this
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    dist.all_reduce(loss)
    loss = loss / dist.get_world_size()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


class LossReducedBeforeBackward(Rule):
    """The loss is averaged over the ranks before `backward`, which makes the gradients too small.

    ## What it does
    Finds `loss.backward()` where the loss was summed up by `dist.all_reduce(loss)` and divided by the
    number of ranks before.

    ## Why is this bad?
    FSDP averages the gradients of the ranks. `all_reduce` changes the number in the loss but not its
    graph; the division after it is in the graph and scales the gradients once more. On two ranks the
    gradient norm was 0.247 instead of 0.494: the learning rate is divided by the number of ranks,
    without an error. (`all_reduce` alone does not change the gradients of a mean, but torch warns that a
    backward through it "may silently lead to incorrect behavior".)

    ## Fix safety
    Unsafe: `loss.backward()` moves before the `all_reduce`, so that the gradients become larger by
    the number of ranks: a learning rate that was found with the mistake may be too high then.

    ## Since
    torch 2.0.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html (`all_reduce` is not differentiable)
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
      (`set_gradient_divide_factor`)
    """

    code = "FSDP408"
    name = "loss-reduced-before-backward"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE
    bad = (
        Bad(
            FLAT,
            symptom=Symptom(prints="gradients are 0.50 of what they should be"),
            changes=(
                (
                    """\
    # The loss of all ranks.
    dist.all_reduce(loss)
    loss = loss / world_size
    loss.backward()
""",
                    """\
    # The loss of all ranks.
    loss.backward()
    dist.all_reduce(loss)
    loss = loss / world_size
""",
                ),
            ),
            healthy="gradients are 1.00 of what they should be",
        ),
        Bad(METHOD, symptom=Symptom(prints="gradients are 0.50 of what they should be")),
    )
    good = (
        Good(AFTERWARDS, why="the loss is averaged after the backward"),
        Good(COPY, why="a copy is averaged for the log"),
        Good(TOKENS, why="not the loss is reduced, and it is scaled on purpose"),
        Good(FACTOR, why="FSDP is told not to average the gradients"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        switched: list[SyncSwitched | Fsdp2Used] = [*trace.of(SyncSwitched), *trace.of(Fsdp2Used)]
        if any(event.api.endswith("divide_factor") for event in switched):
            return
        seen = set()
        for event in trace.of(BackwardRun):
            if not event.averaged or not event.collective or event.site in seen:
                continue
            seen.add(event.site)
            because: list[tuple[Event, str]] = [
                (other, "summed over the ranks here")
                for other in trace.before(event, Collective)
                if isinstance(other, Collective) and other.api.endswith("all_reduce")
            ]
            yield self.finding(
                event,
                "the loss was averaged over the ranks before `backward`: the gradients, which FSDP "
                "averages as well, are too small by the number of ranks",
                help="Run backward on each rank's own loss, and average a copy for the log.",
                because=because[-1:],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.places import common_block
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import call_at
        from fsdplint.syntax.dotted import bound_by, dotted_names, part_of, path_of

        found = call_at(finding.site)
        if found is None or len(finding.events) != 2:
            return None
        source, call = found
        backward, summed = finding.events
        place, other = common_block(summed, backward), call_at(summed.site)
        if place is None or other is None or place.source is not source:
            return None
        for statement, node in ((place.first, other[1]), (place.second, call)):
            if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
                return None
            if not isinstance(source.parent(node), cst.Expr):
                return None
        loss = path_of(other[1].args[0].value) if other[1].args else ""
        body = list(place.block.body)
        between = body[body.index(place.first) + 1 : body.index(place.second)]
        bound = {path for statement in between for path in bound_by(statement)}
        read = {path_of(name) for name in dotted_names(call)}
        if not loss or not bound <= {loss} or not any(part_of(path, loss) for path in read):
            return None
        rewrite = Rewrite()
        rewrite.insert_before(source, place.first, [source.code(call)])
        rewrite.delete_statement(source, call)
        return rewrite.fix("Run backward on the rank's own loss", Safety.UNSAFE)
