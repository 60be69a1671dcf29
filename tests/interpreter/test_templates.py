"""Names of which a part is unknown choose among the modules and members that they may mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

from fsdplint.interpreter import Program
from fsdplint.trace import Sharded

HEAD = """\
import argparse
import importlib
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--name")
args = parser.parse_args()
"""
MODEL = """\
from torch import nn


class {0}(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)


def build():
    return {0}()
"""
NAMES = {
    "f-string": 'f"zoo.{args.name}"',
    "sum": '"zoo." + args.name',
    "percent": '"zoo.%s" % args.name',
    "format": '"zoo.{}".format(args.name)',
    "variable": 'f"{prefix}.{args.name}"',
    "nested": 'f"{\'zoo\'}." + f"{args.name}"',
}


def built(found: Program) -> set[str]:
    """The classes of the modules that are sharded, over all traces."""
    return {
        trace.modules[event.module].class_name
        for trace in found.traces
        for event in trace.of(Sharded)
    }


@pytest.mark.parametrize("name", NAMES)
def test_module_of_a_partly_unknown_name(tmp_path: Path, name: str) -> None:
    found = program(
        tmp_path,
        f"""
        prefix = "zoo"
        module = importlib.import_module({NAMES[name]})
        model = module.build()
        optimizer = torch.optim.AdamW(model.parameters())
        fully_shard(model)
        model(torch.ones(8)).sum().backward()
        optimizer.step()
        """,
        header=HEAD,
        zoo__one=MODEL.format("One"),
        zoo__two="def other():\n    return 1\n",
    )
    assert "One" in built(found)
    assert findings(found, "FSDP103")


def test_module_in_a_package_of_a_partly_unknown_name(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        module = importlib.import_module(f".{args.name}_zoo.models", "nets")
        fully_shard(module.build())
        """,
        header=HEAD,
        nets____init__="",
        nets__small_zoo____init__="",
        nets__small_zoo__models=MODEL.format("Small"),
        nets__other____init__="",
        nets__other__models=MODEL.format("Other"),
    )
    assert "Small" in built(found) and "Other" not in built(found)


def test_the_part_is_what_the_program_tests(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        if args.name == "two":
            model = importlib.import_module(f"zoo.{args.name}").build()
            fully_shard(model)
        """,
        header=HEAD,
        zoo__one=MODEL.format("One"),
        zoo__two=MODEL.format("Two"),
    )
    assert "Two" in built(found) and "One" not in built(found)


@pytest.mark.parametrize(
    "call",
    [
        "getattr(nets, f'build_{args.name}')()",
        "getattr(nets, 'build_' + args.name)()",
        "vars(nets)['build_' + args.name]()",
    ],
)
def test_member_of_a_partly_unknown_name(tmp_path: Path, call: str) -> None:
    text = MODEL.format("Small").replace("build", "build_small")
    found = program(
        tmp_path,
        f"""
        import nets
        fully_shard({call})
        """,
        header=HEAD,
        nets=text + "\n\ndef count(model):\n    return len(list(model.parameters()))\n",
    )
    assert "Small" in built(found) and "Other" not in built(found)


def test_entry_of_a_partly_unknown_name(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        from one import build as one
        from two import build as two
        fully_shard({"one_net": one, "two_head": two}[f"{args.name}_net"]())
        """,
        header=HEAD,
        one=MODEL.format("One"),
        two=MODEL.format("Two"),
    )
    assert "One" in built(found) and "Two" not in built(found)


@pytest.mark.parametrize(
    "name", ["args.name", "f'zoo.{args.name}.{args.other}'", "f'zoo.{args.name:>3}'"]
)
def test_name_without_a_known_part_chooses_a_module_with_the_member(
    tmp_path: Path, name: str
) -> None:
    found = program(
        tmp_path,
        f"""
        module = importlib.import_module({name})
        fully_shard(module.build())
        """,
        header=HEAD,
        zoo__one=MODEL.format("One"),
        other=MODEL.format("Other").replace("build", "make"),
    )
    assert "One" in built(found) and "Other" not in built(found)
