"""The functions of the package, as other programs call them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fsdplint
from fsdplint import api

BAD = """\
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Linear(4, 4)
fully_shard(model)
model.forward(1)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(BAD)
    return tmp_path


def test_check() -> None:
    checked = fsdplint.check("train.py")
    (one,) = checked.findings
    assert not checked.ok
    assert (one.code, one.severity, one.path) == ("FSDP101", "error", "train.py")
    assert (one.line, one.column, one.end_line, one.end_column) == (8, 1, 8, 17)
    assert one.url.endswith("/rules/direct-forward-call")
    assert one.fix is not None
    assert (one.fix.safety, one.fix.applicable) == ("safe", True)
    assert one.fix.edits == (api.Edit("train.py", 8, 1, 8, 14, "model"),)
    assert fsdplint.check(["train.py"], ignore=["FSDP101"]).ok


def test_texts_of_files_that_are_not_saved(folder: Path) -> None:
    assert fsdplint.check("train.py", texts={"train.py": BAD.replace(".forward", "")}).ok
    # Also of a file that another one imports, and of one that is not there yet.
    (folder / "pyproject.toml").touch()
    (folder / "parts.py").write_text("def call(model):\n    return model(1)\n")
    text = BAD.replace("model.forward(1)", "call(model)").replace(
        "import torch.", "from parts import call\nimport torch.", 1
    )
    (folder / "train.py").write_text(text)
    assert fsdplint.check(["train.py"]).ok
    texts = {"parts.py": "def call(model):\n    return model.forward(1)\n"}
    (one,) = fsdplint.check(["train.py"], texts=texts).findings
    assert (one.path, one.line) == ("parts.py", 2)
    (one,) = fsdplint.check(["new.py"], texts={"new.py": BAD}).findings
    assert (one.path, one.line) == ("new.py", 8)


def test_fix_writes_only_when_asked(folder: Path) -> None:
    fixed = fsdplint.fix("train.py")
    (change,) = fixed.changes
    assert (change.before, change.after) == (BAD, BAD.replace(".forward", ""))
    assert [one.code for one in fixed.fixed] == ["FSDP101"]
    assert fixed.remaining == ()
    assert (folder / "train.py").read_text() == BAD
    fixed.write()
    assert (folder / "train.py").read_text() == change.after
    with pytest.raises(api.FsdplintError, match=r"^train\.py was changed by someone else"):
        fixed.write()
    (folder / "train.py").unlink()
    with pytest.raises(api.FsdplintError, match=r"^train\.py cannot be written \(No such file"):
        fixed.write()


def test_a_string_is_one_selector(folder: Path) -> None:
    assert [one.code for one in fsdplint.check("train.py", select="FSDP1").findings] == ["FSDP101"]
    assert fsdplint.check("train.py", ignore="direct-forward-call").findings == ()
    assert fsdplint.fix("train.py", select="FSDP3", extend_select="FSDP1").changes


@pytest.mark.parametrize("paths", [b"x", None, 3, [b"x"], ["train.py", None]])
def test_what_is_no_path(paths: Any) -> None:
    wrong = paths[-1] if isinstance(paths, list) else paths
    text = f"paths: a string or os.PathLike, or several of them, not {wrong!r}"
    for function in (fsdplint.check, fsdplint.fix):
        with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
            function(paths)


def test_what_cannot_be_done(folder: Path) -> None:
    with pytest.raises(api.FsdplintError, match="unknown rule 'FSDP999'"):
        fsdplint.check("train.py", select=["FSDP999"])
    (problem,) = fsdplint.check("gone.py").problems
    assert (problem.code, problem.path) == ("FSDP901", "gone.py")
    with pytest.raises(api.FsdplintError, match="no such file or folder"):
        fsdplint.prove("gone.py")


def test_the_package_is_imported_without_any_of_it() -> None:
    code = "import sys, fsdplint; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "fsdplint" in run.stdout.split()
    for name in ("click", "libcst", "torch", "fsdplint.api", "fsdplint.rule", "dataclasses"):
        assert name not in run.stdout.split()
    with pytest.raises(AttributeError, match="no attribute 'chek'"):
        fsdplint.chek  # noqa: B018


def test_no_paths_and_empty_ones() -> None:
    checked = fsdplint.check([])
    assert checked.ok and checked.findings == () and checked.problems == ()
    assert fsdplint.fix(()).changes == ()
    for paths, found in (("", 0), (["", "train.py"], 1)):
        checked = fsdplint.check(paths)
        assert len(checked.findings) == found and not checked.ok
        (problem,) = checked.problems
        assert (problem.code, problem.path, problem.message) == (
            *("FSDP901", ""),
            "no such file or folder",
        )
        assert fsdplint.fix(paths).problems == checked.problems
