"""Small programs and what the migration makes of them."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

from assisted_forms import check_assisted

from fsdplint.config.options import DEFAULT, Options
from fsdplint.interpreter import load
from fsdplint.migration.plan import Plan
from fsdplint.migration.planner import plans_of

BLOCK = """\
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x)


"""
NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


"""
HEAD = (
    """\
import functools
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import (
    BackwardPrefetch, CPUOffload, FullOptimStateDictConfig, FullStateDictConfig, MixedPrecision,
    FullyShardedDataParallel as FSDP, ShardingStrategy, StateDictType, ShardedStateDictConfig,
    LocalStateDictConfig,
)
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import (
    ModuleWrapPolicy, _or_policy, always_wrap_policy, enable_wrap, lambda_auto_wrap_policy,
    size_based_auto_wrap_policy, transformer_auto_wrap_policy, wrap, CustomPolicy,
)


"""
    + BLOCK
    + """\
class Masked(Block):
    def forward(self, x, mask):
        return x + self.linear(x) * mask


"""
    + NET
    + """\
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
"""
)
POLICY = "auto_wrap_policy=ModuleWrapPolicy({Block})"


def plan(
    tmp_path: Path, body: str, head: str = HEAD, options: Options = DEFAULT
) -> tuple[Plan, str]:
    """The plan of a program, and its migrated text ("" where it is blocked).

    If it is blocked, its assisted migration is tested, too.
    """
    from fsdplint.diagnostics.finding import Fix, Safety
    from fsdplint.edits.apply import apply

    path = tmp_path / "train.py"
    path.write_text(head + textwrap.dedent(body), encoding="utf-8")
    program = load([path])
    program.options = options
    (found,) = plans_of(program)
    if found.blockers:
        check_assisted(path)
        return found, ""
    whole = Fix(
        "", Safety.SAFE, found.edits, found.imports, found.group, found.maybe_unused_imports
    )
    applied = apply(program.sources, [whole])
    assert not applied.broken
    return found, applied.texts[str(path)]


def migrated(tmp_path: Path, body: str, options: Options = DEFAULT) -> str:
    """What becomes of the lines below HEAD."""
    found, text = plan(tmp_path, body, options=options)
    assert not found.blockers, [(b.reason, b.source.code(b.node)) for b in found.blockers]
    compile(text, "train.py", "exec")
    assert "FSDP(" not in text and "StateDictType" not in text
    if os.environ.get("FSDPLINT_VALIDATE"):
        assert not refusals(tmp_path, body, options)
    return text[text.index('dist.init_process_group("nccl")\n') + 32 :]


def refusals(tmp_path: Path, body: str, options: Options = DEFAULT) -> set[str]:
    """Why the validation refuses the migration of a program; empty if it does not."""
    from fsdplint.engine.fix import fix
    from fsdplint.engine.migrator import migration_rules
    from fsdplint.engine.workspace import Workspace

    path = tmp_path / "train.py"
    path.write_text(HEAD + textwrap.dedent(body), encoding="utf-8")
    workspace = Workspace([path], options=options)
    result = fix(workspace, [rule() for rule in migration_rules()])
    return set() if path in result.texts else {one.help for one in result.remaining}
