"""Options of a sharding that a setting chooses: each choice is a configuration of the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import program

from fsdplint.trace import Sharded, Wrapped

SETTINGS = """
import argparse
from torch.distributed.fsdp import CPUOffload, CPUOffloadPolicy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

parser = argparse.ArgumentParser()
parser.add_argument("--small", action="store_true")
args = parser.parse_args()
"""

DICTS = {
    "a dict or an empty one": "kw = {'offload_policy': CPUOffloadPolicy()} if args.small else {}",
    "negated": "kw = {} if not args.small else {'offload_policy': CPUOffloadPolicy()}",
    "calls of dict": "kw = dict(offload_policy=CPUOffloadPolicy()) if args.small else dict()",
    "a statement": "kw = {}\nif args.small:\n    kw['offload_policy'] = CPUOffloadPolicy()",
    "an update": "kw = {}\nif args.small:\n    kw.update(offload_policy=CPUOffloadPolicy())",
    "spread": "kw = {**({'offload_policy': CPUOffloadPolicy()} if args.small else {})}",
    "a function": "def make(small):\n    return {'offload_policy': CPUOffloadPolicy()} if small else {}\n"
    "kw = make(args.small)",
}


@pytest.mark.parametrize("choice", DICTS.values(), ids=DICTS)
def test_keywords_that_a_setting_chooses(tmp_path: Path, choice: str) -> None:
    text = f"{SETTINGS}\nmodel = Net()\n{choice}\nfully_shard(model, **kw)\n"
    found = {
        tuple(one.options) for trace in program(tmp_path, text).traces for one in trace.of(Sharded)
    }
    assert found == {(), ("offload_policy",)}


CONSTANTS = {
    "an expression": "value = 2 if args.small else True",
    "negated": "value = True if not args.small else 2",
    "a statement": "value = True\nif args.small:\n    value = 2",
    "both sides": "if args.small:\n    value = 2\nelse:\n    value = True",
    "a function": "def make():\n    if args.small:\n        return 2\n    return True\nvalue = make()",
}


@pytest.mark.parametrize("keywords", [False, True])
@pytest.mark.parametrize("choice", CONSTANTS.values(), ids=CONSTANTS)
def test_a_constant_that_a_setting_chooses(tmp_path: Path, choice: str, keywords: bool) -> None:
    given = "**{'reshard_after_forward': value}" if keywords else "reshard_after_forward=value"
    text = f"{SETTINGS}\nmodel = Net()\n{choice}\nfully_shard(model, {given})\n"
    found = {
        one.options["reshard_after_forward"]
        for trace in program(tmp_path, text).traces
        for one in trace.of(Sharded)
    }
    assert found == {2, True}


FSDP1 = {
    "a keyword": "FSDP(model, use_orig_params=True if args.small else False)",
    "an object": "FSDP(model, cpu_offload=CPUOffload(offload_params=True) if args.small else None)",
    "keywords": "FSDP(model, **({'use_orig_params': True} if args.small else {}))",
}


@pytest.mark.parametrize("call", FSDP1.values(), ids=FSDP1)
def test_options_of_fsdp1(tmp_path: Path, call: str) -> None:
    found = {
        tuple(one.options.items())
        for trace in program(tmp_path, f"{SETTINGS}\nmodel = Net()\nmodel = {call}\n").traces
        for one in trace.of(Wrapped)
    }
    assert len(found) == 2


def test_another_constant_is_no_configuration(tmp_path: Path) -> None:
    text = f"{SETTINGS}\nmodel = Net()\nname = 'a' if args.small else 'b'\nfully_shard(model)\n"
    assert len(program(tmp_path, text).traces) == 1


def test_a_dict_that_a_variable_holds_depends_on_no_later_choice(tmp_path: Path) -> None:
    text = f"""{SETTINGS}
plain = {{"offload_policy": CPUOffloadPolicy()}}
other = plain if args.small else {{}}
model = Net()
fully_shard(model, **plain)
"""
    relevant = {key for trace in program(tmp_path, text).traces for key in trace.decisions}
    assert len(program(tmp_path, text).traces) == 1, relevant
