"""Constants that a configurator may override are settings, with what was assigned as the default."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import program

from fsdplint.interpreter import load
from fsdplint.trace import OptimizerBuilt, Saved, Sharded

HEAD = """\
import torch
from torch.distributed.fsdp import fully_shard

use_fsdp = False
learning_rate = 0.1
"""
TAIL = """
model = torch.nn.Linear(2, 2)
if use_fsdp:
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
"""
OVERRIDES = {
    "": False,
    "exec(open('configurator.py').read())": True,
    "exec('pass')": False,
    "globals().update(read())": True,
    "globals().update(use_fsdp=True)": True,
    "globals().update({'learning_rate': 1.0})": False,
    "for key, value in read():\n    globals()[key] = value": True,
    "globals()['use_fsdp'] = True": True,
    "globals()['learning_rate'] = 1.0": False,
    "exec(open('configurator.py').read(), globals())": True,
    "def configure():\n    globals().update(read())\nconfigure()": True,
}


@pytest.mark.parametrize("code", OVERRIDES)
def test_what_may_be_overridden_is_no_constant(code: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"{HEAD}{code}\n{TAIL}")
    traces = load([file]).traces
    assert any(list(trace.of(Sharded)) for trace in traces) is OVERRIDES[code]
    assert all(list(trace.of(OptimizerBuilt)) for trace in traces)


def test_a_finding_says_which_setting_it_needs(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"{HEAD}exec(open('configurator.py').read())\n{TAIL}")
    events = [event for trace in load([file]).traces for event in trace.of(Sharded)]
    assert {str(guard) for event in events for guard in event.guards} == {"`use_fsdp` is true"}


SETTINGS = """\
import argparse
import dataclasses

from torch import nn
from torch.distributed.fsdp import fully_shard


@dataclasses.dataclass
class Settings:
    reshard: bool = False


"""
TAKEN = {
    "settings = Settings()": False,
    "settings = Settings(reshard=True)": True,
    "settings = Settings()\nsettings.reshard = True": True,
    "settings = Settings(**read())": "?",
    "settings = Settings()\nfor key, value in read():\n    setattr(settings, key, value)": "?",
}


@pytest.mark.parametrize("code", TAKEN)
def test_a_default_that_the_program_takes_is_an_argument(code: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    call = "fully_shard(nn.Linear(2, 2), reshard_after_forward=settings.reshard)"
    file.write_text(f"{SETTINGS}{code}\n{call}\n")
    events = [event for trace in load([file]).traces for event in trace.of(Sharded)]
    assert {event.options["reshard_after_forward"] for event in events} == {TAKEN[code]}


HOLDERS = {
    "instance": "class Settings:\n    use_fsdp = False\ns = Settings()\n",
    "attributes": (
        "class Settings:\n    def __init__(self):\n        self.use_fsdp = False\ns = Settings()\n"
    ),
    "class": "class s:\n    use_fsdp = False\n",
    "inherited": "class Base:\n    use_fsdp = False\nclass s(Base):\n    pass\n",
    "module": "import settings as s\n",
    "namespace": "import types\ns = types.SimpleNamespace(use_fsdp=False)\n",
    "dict": "s = {'use_fsdp': False}\n",
    "dict call": "s = dict(use_fsdp=False)\n",
}
HELPER = """\
def override(holder, **values):
    if isinstance(holder, (tuple, list)):
        for one in holder:
            override(one, **values)
    else:
        for key, value in values.items():
            if hasattr(holder, key):
                setattr(holder, key, value)
override((s,), **read())
"""
OF_ATTRIBUTES = {
    "for key, value in read().items():\n    setattr(s, key, value)\n": True,
    "vars(s).update(read())\n": True,
    "s.__dict__.update(read())\n": True,
    "for key, value in read():\n    vars(s)[key] = value\n": True,
    HELPER: True,
    "s.other = True\n": False,
    "vars(s).update(other=True)\n": False,
}
OF_ENTRIES = {
    "for key, value in read().items():\n    s[key] = value\n": True,
    "s.update(read())\n": True,
    "s.update(**read())\n": True,
    "s = {**s, **read()}\n": True,
    "s = {**read(), **s}\n": False,
    "s.update(other=True)\n": False,
    "s['other'] = True\n": False,
}
CASES = [
    (holder, code, outcome)
    for holder in HOLDERS
    for code, outcome in (OF_ENTRIES if holder.startswith("dict") else OF_ATTRIBUTES).items()
]


@pytest.mark.parametrize(("holder", "code", "outcome"), CASES)
def test_a_name_that_is_unknown_may_be_any_setting(
    holder: str, code: str, outcome: bool, tmp_path: Path
) -> None:
    (tmp_path / "settings.py").write_text("use_fsdp = False\n")
    file = tmp_path / "train.py"
    head = HEAD.replace("use_fsdp = False\n", HOLDERS[holder])
    test = "s['use_fsdp']" if holder.startswith("dict") else "s.use_fsdp"
    file.write_text(f"{head}{code}\n{TAIL.replace('use_fsdp', test)}")
    traces = load([file]).traces
    assert any(list(trace.of(Sharded)) for trace in traces) is outcome


def test_a_module_attribute_that_the_program_sets_is_known(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("use_fsdp = False\n")
    file = tmp_path / "train.py"
    code = "import settings\nsettings.use_fsdp = True\n"
    head = HEAD.replace("use_fsdp = False\n", code)
    file.write_text(f"{head}{TAIL.replace('use_fsdp', 'settings.use_fsdp')}")
    assert all(list(trace.of(Sharded)) for trace in load([file]).traces)


DEFAULT_OBJECT = """
import tyro
from dataclasses import dataclass, field


@dataclass
class Inner:
    shards: bool = True
    depth: int = 1


@dataclass
class Config:
    inner: Inner = field(default_factory=Inner)
    build: object = None


def preset():
    return Config(inner=Inner(shards=False, depth=2), build=Net)


config = tyro.cli(Config, default=preset())
model = config.build(config.inner.depth)
if config.inner.shards:
    fully_shard(model)
"""


def test_a_command_line_changes_the_constants_of_its_default_object(tmp_path: Path) -> None:
    found = program(tmp_path, DEFAULT_OBJECT)
    sharded = {
        trace.modules[event.module].class_name
        for trace in found.traces
        for event in trace.of(Sharded)
    }
    assert sharded == {"Net"}
    assert len(found.traces) == 2


OWN_PARSERS = {
    "for": """
for one in sys.argv[1:]:
    if one.startswith("--mode="):
        mode = one.split("=", 1)[1]
""",
    "while": """
position = 1
while position < len(sys.argv):
    one = sys.argv[position]
    if one == "--mode":
        mode = sys.argv[position + 1]
        position += 1
    else:
        rest.append(one)
    position += 1
""",
}


@pytest.mark.parametrize("loop", OWN_PARSERS)
def test_what_a_loop_reads_from_the_command_line_is_a_setting(tmp_path: Path, loop: str) -> None:
    found = program(
        tmp_path,
        f"""import sys
mode, rest = None, []
{OWN_PARSERS[loop]}
if mode is None:
    raise SystemExit("no mode")
model = Net()
if mode == "sharded":
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
if mode != "sharded":
    torch.save(model.state_dict(), "model.pt")
""",
    )
    for trace in found.traces:
        kinds = [type(event).__name__ for event in trace.events]
        assert not ("Sharded" in kinds and "Saved" in kinds)
    assert any(list(trace.of(Sharded)) for trace in found.traces)
    assert any(list(trace.of(Saved)) for trace in found.traces)
