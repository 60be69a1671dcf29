"""Tests of settings that a program changes: entries that it sets, or removes, before it reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Sharded

PROGRAM = """\
import sys
import yaml

def expand(value):
    if isinstance(value, dict):
        return {{key: expand(item) for key, item in value.items()}}
    return value

with open({path}) as file:
    config = expand(yaml.safe_load(file))
settings = config["student"]["model"]
{change}
model = Net()
if {test}:
    fully_shard(model)
"""
TESTS = [
    "config['student']['model'].get('fsdp', None) is not None",
    "config['student']['model'].get('fsdp')",
    "'fsdp' in settings and settings['fsdp']",
]
SETTINGS = "student:\n  model:\n    width: 8\n    fsdp:\n      shards: 4\n"


def is_sharded(folder: Path, path: str, change: str, test: str) -> bool:
    (folder / "settings.yaml").write_text(SETTINGS)
    found = program(folder, PROGRAM.format(path=path, change=change, test=test))
    return any(events(found, Sharded))


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("path", ["sys.argv[1]", "'settings.yaml'"])
@pytest.mark.parametrize(
    "change",
    [
        "settings.pop('fsdp', None)",
        "del settings['fsdp']",
        "settings['fsdp'] = None",
        "settings.update(fsdp=None)",
        "settings.update({'fsdp': None})",
    ],
)
def test_an_entry_that_the_program_removes(
    tmp_path: Path, path: str, change: str, test: str
) -> None:
    assert not is_sharded(tmp_path, path, change, test)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("path", ["sys.argv[1]", "'settings.yaml'"])
@pytest.mark.parametrize(
    "change",
    [
        "settings.pop('width', None)",
        "settings.pop('fsdp', None)\nsettings['fsdp'] = {'shards': 2}",
        "settings.pop('fsdp', None)\nsettings.update(config['student'].get('more', {}))",
        "settings.pop('fsdp', None)\nsettings.setdefault('fsdp', {'shards': 2})",
        "for one in config['all']:\n    one.pop('fsdp', None)",
        "if config['plain']:\n    settings.pop('fsdp', None)",
    ],
)
def test_an_entry_that_there_may_be(tmp_path: Path, path: str, change: str, test: str) -> None:
    assert is_sharded(tmp_path, path, change, test)


def test_each_turn_of_a_loop_has_a_dict_of_its_own(tmp_path: Path) -> None:
    body = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    item = json.loads(line)\n"
        "    if item.pop('fsdp', None) is not None:\n"
        "        fully_shard(Net())\n"
    )
    assert any(events(program(tmp_path, body), Sharded))


COPIED = """\
import copy, json, sys

config = json.load(open(sys.argv[1]))
config["engine"] = "fsdp"
config["nested"]["engine"] = "fsdp"
mine = {copied}
{change}
if {test} == "fsdp":
    fully_shard(Net())
else:
    fully_shard(Block())
"""


def classes_sharded(folder: Path, body: str) -> set[str]:
    return {
        trace.modules[event.module].class_name
        for trace in program(folder, body).traces
        for event in trace.of(Sharded)
    }


@pytest.mark.parametrize("test", ["mine['engine']", "mine.get('engine', 'ddp')"])
@pytest.mark.parametrize(
    "copied",
    [
        "copy.deepcopy(config)",
        "copy.copy(config)",
        "config.copy()",
        "dict(config)",
        "{**config}",
        "{'tag': 'init', **config}",
    ],
)
def test_a_copy_has_what_the_program_has_set(tmp_path: Path, copied: str, test: str) -> None:
    body = COPIED.format(copied=copied, change="mine.update({'tag': 'step'})", test=test)
    assert classes_sharded(tmp_path, body) == {"Net"}


def test_a_copy_has_the_option_that_the_program_has_set(tmp_path: Path) -> None:
    body = (
        "import argparse, copy, json, sys\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--engine', choices=['ddp', 'fsdp'])\n"
        "args = parser.parse_args()\n"
        "config = json.load(open(sys.argv[1]))\n"
        "config['engine'] = args.engine\n"
        "mine = copy.deepcopy(config)\n"
        "if args.engine == 'fsdp':\n"
        "    fully_shard(Net() if mine['engine'] == 'fsdp' else Block())\n"
    )
    assert classes_sharded(tmp_path, body) == {"Net"}


def test_what_is_set_in_a_copy_is_not_set_in_the_original(tmp_path: Path) -> None:
    body = COPIED.format(
        copied="copy.deepcopy(config)",
        change="mine['engine'] = mine['nested']['engine'] = 'ddp'",
        test="config['nested']['engine'] and config['engine']",
    )
    assert classes_sharded(tmp_path, body) == {"Net"}
