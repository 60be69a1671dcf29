"""Methods of workers that no code of the program calls: one sets up what another needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import all_rules, rule_by_code

IMPORTS = """\
import torch
import torch.distributed as dist
from cluster import remote
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

"""
ONE_SETUP = """
@remote
class Worker:
    def __init__(self, config):
        self.config = config

    def set_up(self):
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        fully_shard(model[0])
        fully_shard(model)
        self.model = model
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def USE
"""
WITH_NONE = ONE_SETUP.replace(
    "self.config = config", "self.config = config\n        self.model = self.optimizer = None"
)
TWO_SETUPS = """
class Base:
    def build(self):
        self.model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        fully_shard(self.model[0])
        fully_shard(self.model)

    def add_optimizer(self, lr):
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)


class Worker(Base):
    def USE
"""
IN_A_DECORATOR = ONE_SETUP.replace("    def set_up", "    @timed\n    def set_up").replace(
    "\n@remote",
    """
import functools
def timed(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner

@remote""",
)
TWO_TARGETS = ONE_SETUP.replace(
    "        self.model = model\n        self.optimizer = torch.optim.Adam(self.model.parameters())",
    "        self.model, self.optimizer = model, torch.optim.Adam(model.parameters())",
)
SETUPS = [ONE_SETUP, WITH_NONE, TWO_SETUPS, IN_A_DECORATOR, TWO_TARGETS]

GUARDED = """save(self, path):
        if dist.get_rank() == 0:
            options = StateDictOptions(full_state_dict=True)
            torch.save(get_model_state_dict(self.model, options=options), path)"""
DIRECT = """train(self, batch):
        self.model.forward(batch).sum().backward()
        self.optimizer.step()"""
SAVED = """save(self, path):
        torch.save(self.model.state_dict(), path)"""
FOUND = [("FSDP501", GUARDED), ("FSDP101", DIRECT), ("FSDP301", SAVED)]
SOUND = [
    """save(self, path):
        options = StateDictOptions(full_state_dict=True)
        state = get_model_state_dict(self.model, options=options)
        if dist.get_rank() == 0:
            print(state.keys())""",
    """train(self, batch):
        self.model(batch).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()""",
    """load(self, path):
        self.model.load_state_dict(torch.load(path))""",
    """load(self):
        self.model.load_state_dict(torch.load(f"{self.folder}/{dist.get_rank()}.pt"))""",
    """score(self, batch):
        self.optimizer.zero_grad()
        with torch.no_grad():
            return self.model(batch)""",
]


def findings(folder: Path, program: str, *codes: str) -> list[str]:
    (folder / "worker.py").write_text(IMPORTS + program)
    rules = [rule_by_code(code) for code in codes]
    assert all(rule is not None for rule in rules)
    found = check(load([folder / "worker.py"]), [rule() for rule in rules if rule])
    return [finding.message for finding in found]


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize(("code", "use"), FOUND)
def test_what_a_setup_shards(setup: str, code: str, use: str, tmp_path: Path) -> None:
    assert findings(tmp_path, setup.replace("USE", use), code)


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("use", SOUND)
def test_sound_methods(setup: str, use: str, tmp_path: Path) -> None:
    codes = [rule.code for rule in all_rules() if not rule.code.startswith("FSDP2")]
    assert not findings(tmp_path, setup.replace("USE", use), *codes)


def test_two_methods_that_set_an_attribute(tmp_path: Path) -> None:
    """Which of them comes first is unknown, so neither is assumed."""
    plain = "\n    def load(self, path):\n        self.model = nn.Linear(8, 8)\n"
    assert not findings(tmp_path, ONE_SETUP.replace("USE", DIRECT) + plain, "FSDP101")


@pytest.mark.parametrize(("code", "use"), FOUND)
def test_comments_and_texts_set_nothing(code: str, use: str, tmp_path: Path) -> None:
    program = ONE_SETUP.replace("USE", f"{use}\n\n    def reset(self):") + (
        '\n        """self.model = None"""\n        # self.optimizer = self.model = None\n'
    )
    assert findings(tmp_path, program, code)
