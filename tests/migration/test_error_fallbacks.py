"""Optimizer states in code that runs only after an error of code that the migration rewrites."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest
from forms import migrated, refusals

from fsdplint.migration.analysis.error_fallbacks import is_fallback
from fsdplint.migration.changes import Changes
from fsdplint.source.source import Source

BEGIN = """
from torch.distributed.fsdp import FullStateDictConfig
model = FSDP(Net(), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
whole = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
"""
IN_HANDLER = """
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, whole):
    state = model.state_dict()
    try:
        steps = FSDP.optim_state_dict(model, optimizer)
    except Exception as error:
        print(error)
        steps = optimizer.state_dict()
"""
BEHIND_TEST = """
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, whole):
    state = model.state_dict()
    try:
        steps = FSDP.optim_state_dict(model, optimizer)
    except Exception as error:
        print(error)
        steps = None
if dist.get_rank() == 0:
    if {test}:
        steps = optimizer.state_dict()
    torch.save([state, steps], "state.pt")
"""
LOADED = """
saved = torch.load("state.pt")
try:
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, whole):
        optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, saved))
except Exception:
    optimizer.load_state_dict(saved)
"""
# Nothing that the handler follows is rewritten.
OTHER_ERROR = """
try:
    saved = torch.load("state.pt")
except FileNotFoundError:
    optimizer.load_state_dict(torch.load("older.pt"))
"""


@pytest.mark.parametrize("test", ["steps is None", "not steps"])
def test_a_fallback_behind_a_test_stays(tmp_path: Path, test: str) -> None:
    text = migrated(tmp_path, BEGIN + BEHIND_TEST.format(test=test))
    assert f"    if {test}:\n        steps = optimizer.state_dict()\n" in text


def test_a_fallback_in_the_handler_stays(tmp_path: Path) -> None:
    text = migrated(tmp_path, BEGIN + IN_HANDLER)
    assert "    print(error)\n    steps = optimizer.state_dict()\n" in text
    assert not refusals(tmp_path, BEGIN + IN_HANDLER)


def test_a_load_in_the_handler_stays(tmp_path: Path) -> None:
    text = migrated(tmp_path, BEGIN + LOADED)
    assert "except Exception:\n    optimizer.load_state_dict(saved)\n" in text


def test_other_unreached_code_blocks(tmp_path: Path) -> None:
    (reason,) = refusals(tmp_path, BEGIN + OTHER_ERROR)
    assert "does not reach this code with `optimizer.load_state_dict`" in reason


@pytest.mark.parametrize(
    ("code", "is_error"),
    [
        ("try:\n    x = api()\nexcept E:\n    x = None\nif x is None:\n    use()", True),
        ("x = None\ntry:\n    x = api()\nexcept E:\n    pass\nif not x:\n    use()", True),
        (
            "x = None\ntry:\n    if a:\n        x = api()\nexcept E:\n    pass\nif not x:\n    use()",
            False,
        ),
        (
            "x = None\nif a:\n    try:\n        x = api()\n    except E:\n        pass\nif not x:\n    use()",
            False,
        ),
        (
            "if a:\n    try:\n        x = api()\n    except E:\n        x = None\n    if not x:\n        use()",
            True,
        ),
        ("try:\n    x = api()\nexcept E:\n    x = other()\nif not x:\n    use()", False),
        ("try:\n    x = api()\nexcept E:\n    x = None\nif x:\n    use()", False),
        (
            "try:\n    x = api()\nexcept E:\n    x = None\nif x is None:\n    pass\nelse:\n    use()",
            False,
        ),
        ("try:\n    x = api()\nexcept E:\n    def later():\n        use()", False),
    ],
)
def test_what_only_an_error_leaves_none(code: str, is_error: bool) -> None:
    source = Source("a.py", code + "\n")
    calls = {
        one.func.value: one
        for one in source.descend(source.tree)
        if isinstance(one, cst.Call) and isinstance(one.func, cst.Name)
    }
    changes = Changes()
    changes.own(source, calls["api"])
    assert is_fallback(changes, source, calls["use"]) is is_error
