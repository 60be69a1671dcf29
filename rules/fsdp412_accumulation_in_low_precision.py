"""FSDP412: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, PrecisionChosen, Sharded, SyncSwitched, Trace
from fsdplint.trace.queries.common import only_fsdp2

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

FLAT = """\
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
whole = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)  # <- FSDP412
model = fully_shard(copy.deepcopy(whole), mp_policy=policy)
batches = torch.randn(64, 16, 8)
for number, batch in enumerate(batches):
    model.set_requires_gradient_sync(number == len(batches) - 1)
    (model(batch).float() - batch).pow(2).mean().backward()
    (whole(batch) - batch).pow(2).mean().backward()
wrong = right = 0.0
for sharded, parameter in zip(model.parameters(), whole.parameters()):
    grad = sharded.grad.full_tensor()
    wrong += (grad - parameter.grad).pow(2).sum().item()
    right += parameter.grad.pow(2).sum().item()
print(f"the gradients are off by less than 0.4 %: {(wrong / right) ** 0.5 < 0.004}")
dist.destroy_process_group()
"""

FUNCTION = """\
import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def build(model):
    return fully_shard(
        model,
        mp_policy=MixedPrecisionPolicy(  # <- FSDP412
            param_dtype=torch.bfloat16,
            reduce_dtype=None,
        ),
    )


def accumulate(model, batches):
    model.set_requires_gradient_sync(False)
    for batch in batches[:-1]:
        (model(batch).float() - batch).pow(2).mean().backward()
    model.set_requires_gradient_sync(True)
    (model(batches[-1]).float() - batches[-1]).pow(2).mean().backward()
    return [parameter.grad.full_tensor() for parameter in model.parameters()]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
    model = build(copy.deepcopy(whole))
    batches = torch.randn(64, 16, 8)
    grads = accumulate(model, batches)
    for batch in batches:
        (whole(batch) - batch).pow(2).mean().backward()
    references = [parameter.grad for parameter in whole.parameters()]
    wrong = sum((g - r).pow(2).sum().item() for g, r in zip(grads, references))
    right = sum(r.pow(2).sum().item() for r in references)
    print(f"the gradients are off by less than 0.4 %: {(wrong / right) ** 0.5 < 0.004}")
    dist.destroy_process_group()


main()
"""

REDUCED_WIDE = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
model = fully_shard(nn.Sequential(nn.Linear(8, 8)), mp_policy=policy)
for step in range(4):
    model.set_requires_gradient_sync(step == 3)
    model(torch.randn(4, 8)).sum().backward()
dist.destroy_process_group()
"""

EVERY_STEP = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
model = fully_shard(nn.Sequential(nn.Linear(8, 8)), mp_policy=policy)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


EVERY_MICRO_BATCH = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

ACCUMULATE = 4

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
for layer in (model[0], model[2]):
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(8):
    loss = model(torch.randn(4, 8)).pow(2).mean() / ACCUMULATE
    loss.backward()
    if (step + 1) % ACCUMULATE == 0:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
"""


class AccumulationInLowPrecision(Rule):
    """Gradients of many micro-batches are added up in bfloat16: `reduce_dtype` is not given.

    ## What it does
    Finds `MixedPrecisionPolicy(param_dtype=torch.bfloat16)` (or float16) without `reduce_dtype` in
    programs that accumulate gradients without synchronisation (`set_requires_gradient_sync`).

    ## Why is this bad?
    Up to torch 2.14 a missing `reduce_dtype` means `param_dtype`, and unsynchronised gradients are added
    up in it. A small gradient that is added to a large sum of 8 significant bits is lost in part: after
    64 micro-batches the gradients of a small model were off by 0.85 %, after 128 by 1.07 %, and with
    `reduce_dtype=torch.float32` by 0.19 % in both cases.

    torch 2.15 takes the parameters' own dtype instead: written out, the program means the same everywhere.

    ## Fix safety
    Unsafe: `reduce_dtype=torch.float32` is added, which also doubles the bytes that are sent when
    gradients are reduced.

    ## Since
    torch 2.4, where `fully_shard` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`MixedPrecisionPolicy`)
    """

    code = "FSDP412"
    name = "accumulation-in-low-precision"
    severity = Severity.INFO
    fixable = Safety.UNSAFE
    bad = (
        Bad(
            FLAT,
            symptom=Symptom(prints="less than 0.4 %: False"),
            changes=(
                (
                    "(param_dtype=torch.bfloat16)",
                    "(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)",
                ),
            ),
            healthy="less than 0.4 %: True",
        ),
        Bad(
            FUNCTION,
            symptom=Symptom(prints="less than 0.4 %: False"),
            changes=(("reduce_dtype=None", "reduce_dtype=torch.float32"),),
            healthy="less than 0.4 %: True",
        ),
    )
    good = (
        Good(REDUCED_WIDE, why="gradients are added up in float32"),
        Good(EVERY_STEP, why="nothing is accumulated"),
        Good(
            EVERY_MICRO_BATCH, why="every micro-batch is reduced and added to gradients in float32"
        ),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        used = any("mp_policy" in event.options for event in trace.of(Sharded))
        switched = next((e for e in trace.of(SyncSwitched) if _accumulates(trace, e)), None)
        if not used or switched is None:
            return
        seen = set()
        for event in trace.of(PrecisionChosen):
            low = event.param_dtype in ("torch.bfloat16", "torch.float16")
            if not low or event.reduce_dtype is not None or event.site in seen:
                continue
            seen.add(event.site)
            dtype = str(event.param_dtype).removeprefix("torch.")
            yield self.finding(
                event,
                f"gradients are accumulated and reduced in {dtype}: `reduce_dtype` is not given",
                help="Pass `reduce_dtype=torch.float32`.",
                because=[(switched, "accumulated without synchronisation here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import argument, call_at, library_name

        found = call_at(finding.site)
        if found is None:
            return None
        source, call = found
        if not call.args or any(arg.star for arg in call.args):
            return None
        rewrite = Rewrite()
        dtype = library_name(rewrite, source, "torch.float32", call)
        given = argument(call, 1, "reduce_dtype")
        if given is None:
            end = source.span(call.args[-1].value)[1]
            rewrite.insert(source, end, f", reduce_dtype={dtype}")
        elif isinstance(given.value, cst.Name) and given.value.value == "None":
            rewrite.replace(source, given.value, dtype)
        else:
            return None
        return rewrite.fix("Reduce gradients in float32", Safety.UNSAFE)


def _accumulates(trace: Trace, event: SyncSwitched) -> bool:
    """Whether synchronisation is switched off, at times at least, for a backward."""
    return (
        event.api == "set_requires_gradient_sync"
        and event.enabled is not True
        and only_fsdp2(trace, event.module, event)
        and any(True for _ in trace.after(event, BackwardRun))
    )
