"""Code that compares the name of a class with that of FSDP1's asks for the class of FSDP2."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

QUESTIONS = {
    'type(model).__name__ == "FullyShardedDataParallel"': "isinstance(model, FSDPModule)",
    '"FullyShardedDataParallel" != model.__class__.__name__': "not isinstance(model, FSDPModule)",
    '"FullyShardedDataParallel" in model.__class__.__qualname__': "isinstance(model, FSDPModule)",
    'type(model).__name__ in ("FullyShardedDataParallel",)': "isinstance(model, FSDPModule)",
    'type(model).__name__ in ["DistributedDataParallel", "FullyShardedDataParallel"]': (
        '(type(model).__name__ in ("DistributedDataParallel",) or isinstance(model, FSDPModule))'
    ),
    'type(model).__name__ not in {"A", "FullyShardedDataParallel", "B"}': (
        '(type(model).__name__ not in ("A", "B") and not isinstance(model, FSDPModule))'
    ),
    "type(model).__name__ == FSDP.__name__": "isinstance(model, FSDPModule)",
    "FSDP.__qualname__ != model.__class__.__qualname__": "not isinstance(model, FSDPModule)",
    'type(model).__name__ in ("Net", FSDP.__name__)': (
        '(type(model).__name__ in ("Net",) or isinstance(model, FSDPModule))'
    ),
    'type(model).__name__ == "Net"': 'type(model).__name__ == "Net"',
    'str(model) == "FullyShardedDataParallel"': 'str(model) == "FullyShardedDataParallel"',
}


@pytest.mark.parametrize(("before", "after"), list(QUESTIONS.items()), ids=list(QUESTIONS))
def test_a_question(before: str, after: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, f"model = FSDP(Net())\nprint({before}, 1)\n")
    assert f"print({after}, 1)" in text


def test_a_class_of_another_library_blocks(tmp_path: Path) -> None:
    body = """
        from fairscale.nn import FullyShardedDataParallel as Other

        model = FSDP(Net())
        print(type(model).__name__ == "FullyShardedDataParallel", Other)
    """
    found, _ = plan(tmp_path, body)
    assert {one.code for one in found.blockers} == {"FSDP299-class-by-name"}


UTILS = """\
def unwrap(module):
    if module.__class__.__name__ in ("DistributedDataParallel", "FullyShardedDataParallel"):
        return module.module
    return module


def count(module):
    return sum(type(one).__name__ == "FullyShardedDataParallel" for one in module.modules())
"""

TRAIN = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from utils import count, unwrap

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
units = ModuleWrapPolicy({nn.Linear})
model = FSDP(net, auto_wrap_policy=units, device_id=torch.device("cpu"))
loss = model(torch.ones(2, 8)).sum()
loss.backward()
print(f"{loss.item():.5f}", count(model), len(unwrap(model)))
dist.destroy_process_group()
"""


def test_a_question_in_a_file_without_fsdp(tmp_path: Path, two_ranks: TwoRanks) -> None:
    before = {"train.py": TRAIN, "utils.py": UTILS}
    for name, text in before.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    workspace = Workspace([tmp_path / name for name in before])
    found = fix(workspace, [rule() for rule in all_rules()]).texts
    after = {name: found[tmp_path / name] for name in before}
    assert "FullyShardedDataParallel" not in "".join(after.values())
    old, new = two_ranks.run(before), two_ranks.run(after)
    assert old.status == new.status == "ok", f"{old}\n{new}"
    assert old.stdout.count(" 3 3\n") == 2
    assert new.stdout == old.stdout


ASSERTION = """
import unittest

model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))


class TestSharding(unittest.TestCase):
    def test_units(self):
        self.assertIsInstance(model, FSDP)
        self.assertIsInstance(model.blocks[0], (FSDP, Block), "the blocks are units")
        {other}


unittest.main()
"""


def test_an_assertion_of_a_unit_test(tmp_path: Path) -> None:
    text = migrated(tmp_path, ASSERTION.replace("{other}", "pass"))
    assert "self.assertIsInstance(model, FSDPModule)\n" in text
    assert 'self.assertIsInstance(model.blocks[0], (FSDPModule, Block), "the' in text
    other = "self.assertEqual(type(model), FSDP)"
    found, _ = plan(tmp_path, ASSERTION.replace("{other}", other))
    assert "the FSDP class is passed as an argument to `self.assertEqual`" in str(found.blockers)
