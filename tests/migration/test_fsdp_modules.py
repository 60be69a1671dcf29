"""`FSDP.fsdp_modules`: what the program does with the modules."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import POLICY, plan

MODEL = f"model = FSDP(Net(), {POLICY})\n"
UNITS = "[m for m in model.modules() if isinstance(m, FSDPModule)]"
FORMS = {
    "numbered": (
        "for i, unit in enumerate(FSDP.fsdp_modules(model)):\n"
        '    print(f"{i} {type(unit.module).__name__} {unit is model}")',
        f"for i, unit in enumerate({UNITS}):\n"
        '    print(f"{i} {type(unit).__name__} {unit is model}")',
    ),
    "reversed": (
        "for unit in reversed(FSDP.fsdp_modules(model)):\n    print(unit._fsdp_wrapped_module)",
        f"for unit in reversed({UNITS}):\n    print(unit)",
    ),
    "a variable": (
        "def report():\n    units = FSDP.fsdp_modules(model)\n"
        "    print(len(units), [type(unit.module) for unit in units])\n\n\nreport()",
        f"def report():\n    units = {UNITS}\n"
        "    print(len(units), [type(unit) for unit in units])\n\n\nreport()",
    ),
}
BLOCKED = {
    "its weight": "for unit in FSDP.fsdp_modules(model):\n    print(unit.module.linear)",
    "the wrapper's handle": "for unit in FSDP.fsdp_modules(model):\n    print(unit._handle)",
    "stored": "for unit in FSDP.fsdp_modules(model):\n    model.unit = unit",
    "a variable of the file": "units = FSDP.fsdp_modules(model)\nprint(units[0]._handle)",
    "a variable that a function gets": (
        "def report():\n    units = FSDP.fsdp_modules(model)\n    show(units)\n\n\nreport()"
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_use_becomes(tmp_path: Path, before: str, after: str) -> None:
    found, text = plan(tmp_path, MODEL + before)
    assert [one.reason for one in found.blockers] == []
    assert text.endswith(textwrap.dedent(after) + "\n") or text.rstrip().endswith(after)
    notes = [note.text for note in found.notes]
    assert ("type(" in before) == any("`FSDP` before their names" in one for one in notes)


@pytest.mark.parametrize("before", list(BLOCKED.values()), ids=list(BLOCKED))
def test_other_uses_block(tmp_path: Path, before: str) -> None:
    found, _ = plan(tmp_path, MODEL + before)
    assert any("fsdp_modules" in one.reason for one in found.blockers)
