"""FSDP506: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import LauncherArgumentUsed, Sharded, Trace, Wrapped, first

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

GUARD = """\
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)  # <- FSDP506
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(4, 4)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
loss = model(torch.randn(2, 4)).pow(2).mean()
loss.backward()
optimizer.step()
if args.local_rank == 0:
    print(f"process {dist.get_rank()} writes the log")
dist.barrier()
print("done")
dist.destroy_process_group()
"""

DEVICE = """\
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def parse():
    parser = argparse.ArgumentParser(description="training")
    parser.add_argument("--epochs", default=1, type=int)
    parser.add_argument("--local_rank", default=-1, type=int, help="set by the launcher")  # <- FSDP506
    return parser.parse_args()


def main(args):
    dist.init_process_group("gloo")
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda":
        torch.cuda.set_device(args.local_rank)
    print(f"process {dist.get_rank()} has {kind} {args.local_rank}")
    model = FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"))
    for _ in range(args.epochs):
        model(torch.randn(2, 4)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(parse())
"""

FROM_ENVIRONMENT = """\
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
args = parser.parse_args()

dist.init_process_group("gloo")
model = nn.Linear(4, 4)
fully_shard(model)
model(torch.randn(2, 4)).sum().backward()
if args.local_rank == 0:
    print("one process writes")
dist.destroy_process_group()
"""

OVERWRITTEN = """\
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
if args.local_rank == -1 and "LOCAL_RANK" in os.environ:
    args.local_rank = int(os.environ["LOCAL_RANK"])

dist.init_process_group("gloo")
model = nn.Linear(4, 4)
fully_shard(model)
model(torch.randn(2, 4)).sum().backward()
if args.local_rank == 0:
    print("one process writes")
dist.destroy_process_group()
"""

FROM_GROUP = """\
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
# Kept for old command lines, no longer looked at.
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()

dist.init_process_group("gloo")
args.local_rank = dist.get_node_local_rank()
model = nn.Linear(4, 4)
fully_shard(model)
model(torch.randn(2, 4)).sum().backward()
if args.local_rank == 0:
    print("one process writes")
dist.destroy_process_group()
"""


class LauncherArgument(Rule):
    """The local rank is taken from `--local_rank`, which torchrun does not pass.

    ## What it does
    Finds an argument `--local_rank` with a default of 0 or -1 whose value chooses the device or is
    compared with rank 0, in a program that nowhere looks at the environment variable `LOCAL_RANK`.

    ## Why is this bad?
    Only `python -m torch.distributed.launch` of torch before 2.0 passed `--local_rank` (since then it
    is `--local-rank`); torchrun sets `LOCAL_RANK` instead. The argument keeps its default in every
    process: all of them take GPU 0, or think that they are the first one. Two processes:

        process 0 writes the log
        process 1 writes the log

    ## Fix safety
    Safe: the default becomes `int(os.environ.get("LOCAL_RANK", ...))` with the old default for a
    start without torchrun. A value that is passed still counts.

    ## Since
    torch 1.9, where torchrun's predecessor came; 2.0 for `torch.distributed.launch`.

    ## References
    - https://docs.pytorch.org/docs/stable/elastic/run.html (transitioning from torch.distributed.launch)
    """

    code = "FSDP506"
    name = "launcher-argument"
    severity = Severity.WARNING
    fixable = Safety.SAFE

    bad = (
        Bad(
            GUARD,
            symptom=Symptom(prints=r"process 0 writes the log\n(.*\n)*process 1 writes the log"),
            changes=(
                ("import argparse\n\n", "import argparse\nimport os\n\n"),
                ("default=0)\n", 'default=int(os.environ.get("LOCAL_RANK", 0)))\n'),
            ),
            healthy=r"process 0 writes the log\ndone\ndone",
        ),
        Bad(
            DEVICE,
            symptom=Symptom(prints=r"process 0 has \w+ -1\nprocess 1 has \w+ -1"),
            changes=(("default=-1,", 'default=int(os.environ.get("LOCAL_RANK", -1)),'),),
            healthy=r"process 0 has \w+ 0\nprocess 1 has \w+ 1",
        ),
    )
    good = (
        Good(FROM_ENVIRONMENT, why="the default is the environment's"),
        Good(OVERWRITTEN, why="the environment's value is put in its place"),
        Good(FROM_GROUP, why="the group's value is put in its place"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        if not trace.complete or not trace.shardings():
            return
        sharded = first(event for event in trace if isinstance(event, Sharded | Wrapped))
        for event in trace.of(LauncherArgumentUsed):
            if event.overwritten or sharded is None:
                continue
            finding = self.finding(
                event,
                f"torchrun does not pass `{event.argument}`: it has its default in every process",
                help='Take the local rank from `os.environ["LOCAL_RANK"]`.',
            )
            if event.use is not None:
                finding.related = ((event.use, "used here"),)
            yield finding

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import argument, call_at

        found = call_at(finding.site)
        default = argument(found[1], 99, "default") if found is not None else None
        if found is None or default is None:
            return None
        source, call = found
        rewrite = Rewrite()
        os = rewrite.need_import(source, "os", at=call)
        old = source.code(default.value)
        rewrite.replace(source, default.value, f'int({os}.environ.get("LOCAL_RANK", {old}))')
        return rewrite.fix("Take the default from the environment", Safety.SAFE)
