"""Subclasses of FSDP1 that set arguments and add methods become functions of a model."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

FORMS = {
    "methods": (
        """
        class Mine(FSDP):
            # A norm is a number.
            def norm(self):
                return self.clip(1.0)

            def clip(self, bound, kind=2.0):
                return self.clip_grad_norm_(bound, kind)  # of all ranks


        model = Mine(Net())
        model.clip(bound=2.0)
        """,
        [
            "def norm(model):\n    return clip(model, 1.0)\n",
            "def clip(model, bound, kind=2.0):\n",
            "model = fully_shard(Net())\nclip(model, bound=2.0)",
        ],
    ),
    "a constructor with other defaults": (
        """
        class SmallUnits(FSDP):
            \"\"\"Small units.\"\"\"

            def __init__(self, net, strategy=ShardingStrategy.SHARD_GRAD_OP, *args, **rest):
                units = ModuleWrapPolicy({Block})
                super().__init__(net, *args, sharding_strategy=strategy, auto_wrap_policy=units, **rest)


        def step(model: SmallUnits) -> None:
            model(torch.ones(2, 8)).sum().backward()


        step(SmallUnits(Net(), use_orig_params=True))
        """,
        [
            'def small_units(net, strategy="SHARD_GRAD_OP", *, use_orig_params):\n    """Small units."""\n',
            "def step(model: FSDPModule) -> None:",
            "step(small_units(Net(), use_orig_params=True))",
        ],
    ),
    "a property": (
        """
        class Mine(FSDP):
            @property
            def inner(self):
                return self.module


        model = Mine(Net(), use_orig_params=True)
        print(len(model.inner.blocks))
        """,
        ["def inner(model):\n    return model\n", "print(len(inner(model).blocks))"],
    ),
    "nothing": (
        "class Mine(FSDP):\n    pass\n\n\nmodel = Mine(Net())",
        ["model = fully_shard(Net())"],
    ),
}


@pytest.mark.parametrize(("body", "expected"), list(FORMS.values()), ids=list(FORMS))
def test_functions_replace_a_class(tmp_path: Path, body: str, expected: list[str]) -> None:
    text = migrated(tmp_path, textwrap.dedent(body))
    assert [one for one in expected if one not in text] == []


BLOCKED = {
    "a method of modules": """
        class Mine(FSDP):
            def forward(self, x):
                return super().forward(x) * 2


        model = Mine(Net())
    """,
    "a test of the class": """
        class Mine(FSDP):
            def total(self):
                return 3


        model = Mine(Net())
        print(isinstance(model, Mine))
    """,
    "an attribute that the constructor sets": """
        class Mine(FSDP):
            def __init__(self, net):
                super().__init__(net)
                self.steps = 0


        model = Mine(Net())
    """,
    "a method that other objects have": """
        import hashlib


        class Mine(FSDP):
            def digest(self):
                return 3


        def show(thing):
            print(thing.digest())


        show(Mine(Net()))
        show(hashlib.sha256(b""))
    """,
    "a method that a name chooses": """
        class Mine(FSDP):
            def total(self):
                return 3


        model = Mine(Net())
        print(getattr(model, os.environ.get("METHOD", "total"))())
    """,
}


@pytest.mark.parametrize("body", list(BLOCKED.values()), ids=list(BLOCKED))
def test_a_class_that_does_more_blocks(tmp_path: Path, body: str) -> None:
    found, _ = plan(tmp_path, textwrap.dedent(body))
    assert any(one.code == "FSDP201-subclass" for one in found.blockers)


SHARDED = """\
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy


class Sharded(FullyShardedDataParallel):
    def __init__(self, net, **options):
        options.setdefault("sharding_strategy", ShardingStrategy.SHARD_GRAD_OP)
        super().__init__(net, use_orig_params=True, **options)

    def total(self):
        with self.summon_full_params(self, writeback=False):
            return sum(p.double().abs().sum().item() for p in self.parameters())
"""

TRAIN = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

IMPORT


class Trainer:
    def __init__(self):
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
        units = ModuleWrapPolicy({nn.Linear})
        self.model = SHARDED(net, auto_wrap_policy=units, device_id=torch.device("cpu"))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def step(self, number):
        x = torch.full((2, 8), float(number + dist.get_rank()))
        loss = self.model(x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


dist.init_process_group("gloo")
torch.manual_seed(0)
trainer = Trainer()
total = sum(trainer.step(number) for number in range(3))
print(f"{total:.5f} {trainer.model.total():.5f}")
dist.destroy_process_group()
"""

IMPORTS = [("from parts import Sharded", "Sharded"), ("import parts", "parts.Sharded")]


@pytest.mark.parametrize(("line", "name"), IMPORTS)
def test_a_class_of_another_file(line: str, name: str, tmp_path: Path, two_ranks: TwoRanks) -> None:
    """The file that uses the class has a variable with the name of a method."""
    before = {
        "train.py": TRAIN.replace("IMPORT", line).replace("SHARDED", name),
        "parts.py": SHARDED,
    }
    for file, text in before.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    workspace = Workspace([tmp_path / file for file in before])
    found = fix(workspace, [rule() for rule in all_rules()]).texts
    after = {file: found.get(tmp_path / file, text) for file, text in before.items()}
    assert "FullyShardedDataParallel" not in "".join(after.values())
    old, new = two_ranks.run(before), two_ranks.run(after)
    assert old.status == new.status == "ok", f"{old}\n{new}"
    assert new.stdout == old.stdout
