"""The fixtures, migrated: the text that comes out, and that a second run changes nothing.

`expected` holds the migrated form of each fixture; that it trains like the fixture is shown by the tests
of the proof.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fsdplint.engine import fix
from fsdplint.rule import all_rules

HERE = Path(__file__).parent
FIXTURES = HERE.parent.parent / "fixtures" / "fsdp1"
EXPECTED = HERE / "expected"
RULES = [rule() for rule in all_rules()]

PROGRAMS = {
    "flat_script": ["flat_script.py"],
    "trainer_class": ["trainer_class.py"],
    "argparse_functions": ["argparse_functions.py"],
    "lambda_policy": ["lambda_policy.py"],
    "size_policy": ["size_policy.py"],
    "vit_two_space": ["vit_two_space.py"],
    "config_driven": ["config_driven/train.py", "config_driven/configs.py"],
    "package": [
        "package/train.py",
        "package/checkpoint.py",
        "package/config.py",
        "package/loop.py",
        "package/model.py",
        "package/wrapping.py",
    ],
}
programs = pytest.mark.parametrize("files", list(PROGRAMS.values()), ids=list(PROGRAMS))


def migrated(root: Path, files: list[str]) -> dict[str, str]:
    """The texts of the files after `--fix`."""
    result = fix([root / name for name in files], RULES)
    return {
        name: result.texts.get(root / name, (root / name).read_text(encoding="utf-8"))
        for name in files
    }


@programs
def test_a_fixture_is_migrated(files: list[str]) -> None:
    texts = migrated(FIXTURES, files)
    for name in files:
        assert texts[name] == (EXPECTED / name).read_text(encoding="utf-8")


@programs
def test_every_use_of_fsdp1_is_gone(files: list[str]) -> None:
    result = fix([FIXTURES / name for name in files], RULES)
    assert {f.rule.code for f in result.applied} >= {"FSDP201"}
    assert not [f for f in result.remaining if f.rule.code.startswith("FSDP2")]


@programs
def test_a_second_run_changes_nothing(files: list[str]) -> None:
    assert fix([EXPECTED / name for name in files], RULES).texts == {}


@programs
def test_no_name_is_undefined_or_left_over(files: list[str]) -> None:
    for name in files:
        assert complaints(EXPECTED / name) <= complaints(FIXTURES / name)


def complaints(path: Path) -> set[str]:
    """What ruff says of names that are unused or undefined."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", str(path)]
    command += ["--output-format", "concise", "--no-cache"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {line.partition(": ")[2] for line in output.splitlines() if line.startswith(str(path))}


def test_a_part_of_a_project_is_not_migrated_alone() -> None:
    """Without the file that wraps the model, or with only that one, nothing is changed."""
    package = FIXTURES / "package"
    assert fix([package / "checkpoint.py"], RULES).texts == {}
    assert fix([package / "loop.py"], RULES).texts == {}
    assert fix([package / "wrapping.py"], RULES).texts == {}
    assert fix([package / "train.py"], RULES).texts == {}


CUDA = HERE.parent.parent / "fixtures" / "fsdp1_cuda"


@pytest.mark.parametrize("name", ["llama_style.py", "trainer_nccl.py"])
def test_a_program_for_gpus_is_migrated(name: str, tmp_path: Path) -> None:
    before = CUDA / name
    after = tmp_path / name
    after.write_text(migrated(CUDA, [name])[name], encoding="utf-8")
    text = after.read_text(encoding="utf-8")
    compile(text, name, "exec")
    for gone in ("FSDP(", "StateDictType", "MixedPrecision(", "ShardingStrategy", "no_sync"):
        assert gone not in text
    assert "torch.cuda.set_device" in text
    assert complaints(after) <= complaints(before)
    assert fix([after], RULES).texts == {}
