"""The commands besides `check`, and how the program starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import BAD, run

import fsdplint
from fsdplint.registry.rules import documented_rules


def test_version_imports_little() -> None:
    program = "import sys\nfrom fsdplint.cli.main import main\nmain(['--version'], standalone_mode=False)\n"
    program += "print(sorted({'libcst', 'torch', 'pathspec', 'fsdplint.rule'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"fsdplint {fsdplint.__version__}", "[]"]


def test_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fsdplint", "--version"], capture_output=True, text=True
    )
    assert done.stdout == f"fsdplint {fsdplint.__version__}\n"


def test_an_output_that_is_not_utf8(folder: Path) -> None:
    (folder / "train.py").write_text(BAD.replace("keep this", "訓練"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "fsdplint", "train.py"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert done.returncode == 1, done.stderr
    assert b"\\u8a13" in done.stdout


@pytest.mark.parametrize("rule", documented_rules(), ids=lambda rule: rule.code)
def test_rule_pages(rule: type) -> None:
    result = run("rule", rule.code.lower())  # type: ignore[attr-defined]
    assert result.exit_code == 0
    assert result.output.startswith(f"# {rule.name} ({rule.code})\n")  # type: ignore[attr-defined]
    for title in ("What it does", "Why is this bad?", "Example"):
        assert f"\n## {title}\n" in result.output
    assert run("rule", rule.name).output == result.output  # type: ignore[attr-defined]


def test_documented_rules() -> None:
    text = run("rule", "--all").output
    data = json.loads(run("rule", "--all", "--output-format", "json").output)
    assert [one["code"] for one in data] == [rule.code for rule in documented_rules()]
    assert all(f"({one['code']})" in text and one["bad"] for one in data)
    one = json.loads(run("rule", "FSDP101", "--output-format", "json").output)
    assert one == data[0]
    assert run("rule", "--all", "--output-format", "markdown").output.startswith("| Code | Name |")


def test_rule_misuse() -> None:
    assert run("rule").exit_code == 2
    assert run("rule", "FSDP101", "--all").exit_code == 2
    unknown = run("rule", "FSDP1O1")
    assert unknown.exit_code == 2
    assert "did you mean FSDP101?" in unknown.stderr
    assert run("rule", "FSDP1").exit_code == 2


def test_prove_is_there() -> None:
    result = run("prove", "--help")
    assert result.exit_code == 0
    assert "--nproc-per-node" in result.output
    assert "prove" in run("--help").output
