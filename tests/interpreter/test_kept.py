"""What is worked out once: the same as if it were not, and for as long as it is needed only."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from programs import program

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.interpreter import run as interpreter
from fsdplint.registry.rules import all_rules
from fsdplint.source.positions import children, code_children, descend
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import _LAYOUT

CODE = '''\
"""A file."""  # with a comment

import torch, os

# above
@decorated(a=1, )
class A(B, metaclass=C):
    x: int = {"a": [1, (2), *y], **z}
    def f(self, a, /, b=1, *, c: int = 2, **rest) -> None:
        return lambda q: f"{a!r:>{b}}" if not a[1:2, ::3] else (yield)

    async def g(self):
        async with a as b, c:
            del a.b.c; x += 1 ; pass
            print(not_this, [i for i in j if k for l in m], a < b <= c is not d)


'''
HEAD = """\
import argparse
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

args = argparse.ArgumentParser().parse_args()
model = nn.Linear(4, 4)
"""
TWO_ARMS = HEAD + "if args.sharded:\n    model = FSDP(model)\nmodel(torch.ones(4))\n"
BLOCKED = HEAD + "class Mine(FSDP):\n    pass\nmodel = Mine(model)\n"


def test_a_source_knows_what_is_below_each_node() -> None:
    source = Source("file.py", CODE)
    nodes = list(descend(source.tree))
    assert len(nodes) > 300
    for node in nodes:
        assert all(a is b for a, b in zip(source.descend(node), descend(node), strict=True))


def test_children_without_layout() -> None:
    for node in descend(Source("file.py", CODE).tree):
        if not isinstance(node, _LAYOUT):
            code = [child for child in children(node) if not isinstance(child, _LAYOUT)]
            assert all(a is b for a, b in zip(code_children(node), code, strict=True))


def test_no_configuration_is_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, bool]] = []
    whole = interpreter.Run.module_scope

    def counted(run: interpreter.Run, *args: object, **named: object) -> object:
        made.append(run.decisions.values_by_key)
        return whole(run, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(interpreter.Run, "module_scope", counted)
    path = tmp_path / "train.py"
    path.write_text(TWO_ARMS)
    program = load([path])
    assert len(program.traces) == 2
    assert len(made) == 2 and made[0] != made[1]


@pytest.mark.parametrize("code", [TWO_ARMS, BLOCKED])
def test_nothing_outlives_the_program(tmp_path: Path, code: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(code)
    program = load([path])
    assert check(program, [rule() for rule in all_rules()])
    gone = [weakref.ref(program), *(weakref.ref(one) for one in program.sources.values())]
    del program
    gc.collect()
    assert [one() for one in gone] == [None, None]


def test_no_run_is_kept(tmp_path: Path) -> None:
    parts = "class Used: ...\nclass Unused: ...\n"
    body = """
        import parts
        from parts import Used, Unused
        from others import name

        class Deferred: ...

        Used()
        torch.optim.SGD(fully_shard(nn.Linear(2, 2)).parameters())
    """
    before = alive()
    found = program(tmp_path, body, parts=parts, others="name = 1\n")
    assert found.traces and alive() == before


def alive() -> int:
    gc.collect()
    return sum(issubclass(type(one), interpreter.Run) for one in gc.get_objects())
