"""Elements that leave a list, a set or a dict, or come in at a position."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Sharded

OPTIONS = {
    "pop": ("options.pop('a', None)", {"b"}),
    "pop of an unknown key": ("options.pop(args.key, None)", {"**"}),
    "del": ("del options['a']", {"b"}),
    "del of an unknown key": ("del options[args.key]", {"**"}),
    "del of two": ("del options['a'], options['b']", set()),
    "clear": ("options.clear()", set()),
    "popitem": ("options.popitem()", {"**"}),
    "none": ("options.keys()", {"a", "b"}),
}


@pytest.mark.parametrize(("removal", "keys"), OPTIONS.values(), ids=OPTIONS)
def test_options_that_are_removed(tmp_path: Path, removal: str, keys: set[str]) -> None:
    lines = ["import argparse", "args = argparse.ArgumentParser().parse_args()"]
    lines += ["options = {'a': 1, 'b': 2}", removal, "fully_shard(Net(), **options)"]
    found = list(events(program(tmp_path, "\n".join(lines)), Sharded))
    given = [event.options for event in found if isinstance(event, Sharded)]
    assert any(set(options) == keys for options in given)
    assert all(set(options) <= keys | {"**"} for options in given)


PARTS = {
    "pop": ("parts.pop()", ["Linear", "Embedding"]),
    "pop of the first": ("parts.pop(0)", ["Embedding", "LayerNorm"]),
    "pop of an unknown one": ("parts.pop(args.index)", []),
    "del": ("del parts[1]", ["Linear", "LayerNorm"]),
    "del of a slice": ("del parts[:2]", []),
    "remove": ("parts.remove(embed)", ["Linear", "LayerNorm"]),
    "clear": ("parts.clear()", []),
    "insert": ("parts.insert(0, nn.RMSNorm(8))", ["RMSNorm", "Linear", "Embedding", "LayerNorm"]),
    "reverse": ("parts.reverse()", ["LayerNorm", "Embedding", "Linear"]),
}


@pytest.mark.parametrize(("change", "names"), PARTS.values(), ids=PARTS)
def test_parts_in_a_list(tmp_path: Path, change: str, names: list[str]) -> None:
    lines = ["import argparse", "args = argparse.ArgumentParser().parse_args()"]
    lines += ["embed = nn.Embedding(8, 8)", "parts = [nn.Linear(8, 8), embed, nn.LayerNorm(8)]"]
    lines += [change, "for part in parts:", "    fully_shard(part)"]
    found = program(tmp_path, "\n".join(lines))
    for trace in found.traces:
        sharded = [trace.modules[event.module].class_name for event in trace.of(Sharded)]
        assert [name for name in sharded if "part" not in name] == names
    assert found.traces
