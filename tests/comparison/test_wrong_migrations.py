"""Mistakes that migrations have made: `validate` names them, and the migration does not make them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from fsdplint.comparison.compare import Outcome
from fsdplint.config.options import Options
from fsdplint.config.target_torch import explicit
from fsdplint.engine.comparing import compare_sides, side
from fsdplint.engine.fix import fix
from fsdplint.engine.migration import RULES
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

HEAD = """\
import argparse
import functools
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
IMPORTS


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
args = parser.parse_args()
dist.init_process_group("gloo")
x = torch.zeros(2, 3, dtype=torch.long)
model = Net()
"""
FSDP1 = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy\
"""
FSDP2 = "from torch.distributed.fsdp import FSDPModule, fully_shard"
SHARD = "for block in model.blocks:\n    fully_shard(blockKEEP)\nfully_shard(modelKEEP)\n"
WRAP = "model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block})MORE)\n"
TRAIN = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(x).sum().backward()
CLIP    optimizer.step()
    optimizer.zero_grad()
"""
CLIP = "    if args.fp16:\n        model.clip_grad_norm_(1.0)\n"
MARKS = """\
model.eval()
with torch.no_grad():
    model(x)
model.train()
for epoch in range(2):
    for p in model.embed.parameters():
        p.requires_grad_(epoch > 0)
    model(x).sum().backward()
    optimizer.step()
"""
GROUPS = """\
decayed = [p for p in model.parameters() if p.ndim > 1]
others = [p for p in model.parameters() if p.ndim <= 1]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
)
model(x).sum().backward()
optimizer.step()
"""
MESH = 'mesh = init_device_mesh("cpu", (1, 2))\n'
POLICY = "functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})"
CHECKPOINTING = "apply_activation_checkpointing(model, auto_wrap_policy=policy)\n"


@dataclass(frozen=True)
class Mistake:
    """A program, a wrong migration of it, and what is true of a right one.

    Attributes:
        before, wrong: the lines after the model is made.
        named: the topic and the subject by which `validate` names the mistake; None if it does not.
        right: a text that the migration of this project writes; None if it blocks instead.
    """

    before: str
    wrong: str
    named: tuple[str, str] | None
    right: str | None


MISTAKES = {
    "a policy that something else calls becomes a test": Mistake(
        f"policy = {POLICY}\nmodel = FSDP(model, auto_wrap_policy=policy)\n{CHECKPOINTING}"
        + TRAIN.replace("CLIP", ""),
        "policy = lambda module: isinstance(module, Block)\n"
        "for module in list(model.modules()):\n    if policy(module):\n        fully_shard(module)\n"
        f"fully_shard(model)\n{CHECKPOINTING}" + TRAIN.replace("CLIP", ""),
        None,
        f"policy = {POLICY}\n",
    ),
    "FSDP1's clipping is left in a branch": Mistake(
        WRAP.replace("MORE", "") + TRAIN.replace("CLIP", CLIP),
        SHARD.replace("KEEP", "") + TRAIN.replace("CLIP", CLIP),
        ("rule", "FSDP402"),
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    ),
    "a mesh of two dimensions has no names": Mistake(
        f"{MESH}model = FSDP(model, device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD)\n"
        + TRAIN.replace("CLIP", ""),
        f"{MESH}fully_shard(model, mesh=mesh)\n" + TRAIN.replace("CLIP", ""),
        ("rule", "FSDP123"),
        "mesh_dim_names",
    ),
    "parameters are marked while they are gathered": Mistake(
        WRAP.replace(
            "MORE", ", sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True"
        )
        + TRAIN.replace("CLIP", "")
        + MARKS,
        SHARD.replace("KEEP", ", reshard_after_forward=False") + TRAIN.replace("CLIP", "") + MARKS,
        None,
        "            module.reshard()\n",
    ),
    "weights are shared between two groups": Mistake(
        "model.head.weight = model.embed.weight\nmodel.embed = FSDP(model.embed)\n"
        "model.head = FSDP(model.head)\nmodel = FSDP(model)\n" + TRAIN.replace("CLIP", ""),
        "model.head.weight = model.embed.weight\nfully_shard(model.embed)\nfully_shard(model.head)\n"
        "fully_shard(model)\n" + TRAIN.replace("CLIP", ""),
        None,
        None,
    ),
    "parameters are held from before the sharding": Mistake(
        "def build(model):\n    return FSDP(model, sync_module_states=True, device_id=torch.device('cpu'))\n"
        "model = build(model)\n" + TRAIN.replace("CLIP", ""),
        "full = dict(model.named_parameters())\nfully_shard(model)\n"
        "options = StateDictOptions(full_state_dict=True)\n"
        "set_model_state_dict(model, full, options=options)\n" + TRAIN.replace("CLIP", ""),
        ("state loaded", "model"),
        "full_state = model.state_dict()",
    ),
    "weight decay for parameters of two dimensions": Mistake(
        f"model = FSDP(model)\n{GROUPS}", f"fully_shard(model)\n{GROUPS}", None, None
    ),
}
NAMED = [name for name, mistake in MISTAKES.items() if mistake.named is not None]


@pytest.mark.parametrize("name", NAMED)
def test_validation_names_a_mistake(name: str, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(HEAD.replace("IMPORTS", FSDP1) + mistake.before, encoding="utf-8")
    after.write_text(HEAD.replace("IMPORTS", FSDP2) + mistake.wrong, encoding="utf-8")
    result = compare_sides(side(before), side(after))
    found = {(one.topic, one.subject) for one in result.facts if one.outcome is Outcome.DIFFERS}
    assert mistake.named in found


@pytest.mark.parametrize("name", MISTAKES)
def test_the_migration_makes_no_such_mistake(name: str, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    path = tmp_path / "train.py"
    path.write_text(HEAD.replace("IMPORTS", FSDP1) + mistake.before, encoding="utf-8")
    rules = [rule() for rule in all_rules()]
    codes = [rule.code for rule in rules if any(map(rule.code.startswith, RULES))]
    result = fix(Workspace([path], options=Options(target=explicit("2.13"))), rules, codes=codes)
    text = result.texts.get(path, "")
    assert (mistake.right or "") in text and bool(text) == (mistake.right is not None)
