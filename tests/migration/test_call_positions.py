"""Statements that hold a constructor call in another way than `model = FSDP(...)`."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

POLICY = "auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=local_rank"
LOOP = """\
for module in reversed(list(model.modules())):
    if isinstance(module, Block):
        fully_shard(module)
"""
BODIES = {
    "a choice": (
        f"model = Net()\nmodel = FSDP(model, {POLICY}) if args.fsdp else model\n",
        "model = Net()\nif args.fsdp:\n"
        + textwrap.indent(LOOP, "    ")
        + "    fully_shard(model)\n",
    ),
    "a choice of another": (
        f"inner = Net()\nmodel = None if args.plain else FSDP(inner, {POLICY})\n",
        "inner = Net()\nif args.plain:\n    model = None\nelse:\n"
        + textwrap.indent(LOOP.replace("model", "inner"), "    ")
        + "    model = fully_shard(inner)\n",
    ),
    "a choice of what is there": (
        f"model = Net()\nmodel = model if args.plain else FSDP(model, {POLICY})\n",
        "model = Net()\nif not (args.plain):\n"
        + textwrap.indent(LOOP, "    ")
        + "    fully_shard(model)\n",
    ),
    "the first of several": (
        f"model = Net()\nmodel, rest = FSDP(model, {POLICY}), print()\n",
        "model = Net()\n" + LOOP + "model, rest = fully_shard(model), print()\n",
    ),
    "the second of several": (
        f"rest, model = print(), FSDP(Net(), {POLICY})\n",
        "rest = print()\nmodel = Net()\n" + LOOP + "fully_shard(model)\n",
    ),
    "the head of a test": (
        f"model = Net()\nif (model := FSDP(model, {POLICY})) is None:\n    print()\n",
        "model = Net()\n" + LOOP + "if (model := fully_shard(model)) is None:\n    print()\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), list(BODIES.values()), ids=list(BODIES))
def test_lines_are_put_before_the_call(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == after.strip()


BLOCKED = {
    "after another call": f"model = Net()\nrest, model = print(), FSDP(model, {POLICY})\n",
    "after a test": f"if args.fsdp and (model := FSDP(Net(), {POLICY})):\n    print()\n",
    "in an elif": f"if args.plain:\n    model = Net()\nelif (model := FSDP(Net(), {POLICY})):\n"
    "    print()\n",
    "in a loop": f"while (model := FSDP(Net(), {POLICY})) is None:\n    print()\n",
    "two calls": f"model = FSDP(Net(), {POLICY}) if args.one else FSDP(Net())\n",
}


@pytest.mark.parametrize("body", BLOCKED.values(), ids=BLOCKED)
def test_what_is_executed_before_the_call_blocks(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, body)
    assert found.blockers
