"""Uses of FSDP1's wrapper that are left are found unless a test keeps them from running."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint.migration.analysis.missed_uses import _is_guarded
from fsdplint.migration.context import attributes
from fsdplint.source.files import read_source

TESTS = {
    'if hasattr(model, "no_sync"):\n    USE': True,
    'if fp16 and hasattr(model, "clip_grad_norm_"):\n    USE': True,
    'if not hasattr(model, "no_sync"):\n    pass\nelse:\n    USE': True,
    'hasattr(model, "no_sync") and USE': True,
    'x = USE if hasattr(model, "no_sync") else None': True,
    'if hasattr(args, "no_sync"):\n    USE': False,
    'if hasattr(model, "clip_limit"):\n    USE': False,
    'if not hasattr(model, "no_sync"):\n    USE': False,
    'if hasattr(model, "no_sync"):\n    pass\nelse:\n    USE': False,
    'if fp16 or hasattr(model, "no_sync"):\n    USE': False,
    'if hasattr(model, "no_sync") and fp16:\n    pass\nelse:\n    USE': False,
    'if has("hasattr("):\n    USE': False,
}


@pytest.mark.parametrize(("text", "tested"), list(TESTS.items()))
def test_a_test_of_the_object_itself(text: str, tested: bool, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(text).replace("USE", "model.clip_grad_norm_(1.0)") + "\n")
    source = read_source(path)
    (use,) = [node for node in attributes(source) if node.attr.value == "clip_grad_norm_"]
    assert _is_guarded(source, use) is tested
