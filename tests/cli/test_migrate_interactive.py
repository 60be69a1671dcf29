"""`fsdplint migrate --interactive`: each set of files is shown, and only what is wanted is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import FIXTURES, run


def two_programs(folder: Path) -> tuple[Path, Path]:
    text = (FIXTURES / "flat_script.py").read_text(encoding="utf-8")
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "train.py").write_text(text, encoding="utf-8")
    return folder / "one" / "train.py", folder / "two" / "train.py"


def test_interactive(folder: Path) -> None:
    """Each program is shown; what is refused stays, and is reported as without --fix."""
    one, two = two_programs(folder)
    before = one.read_bytes()
    result = run("migrate", "--interactive", ".", input="n\ny\n")
    assert result.exit_code == 1, result.output
    assert result.output.count("+fully_shard(model)") == 2
    assert "Migrate one/train.py? [y/N]: n" in result.output
    assert "Migrate two/train.py? [y/N]: y" in result.output
    assert "What changes in behaviour or cost:" in result.output
    assert one.read_bytes() == before
    assert b"fully_shard(model)" in two.read_bytes()
    assert "1 program migrated whole." in result.output
    assert "1 program can be migrated whole." in result.output
    again = run("migrate", "-i", ".", input="y\n")
    assert again.exit_code == 0
    assert one.read_bytes() == two.read_bytes()


def test_interactive_and_a_report(folder: Path) -> None:
    two_programs(folder)
    run("migrate", "-i", ".", "--report", "report.json", input="n\ny\n")
    first, second = json.loads((folder / "report.json").read_text())["programs"]
    assert (first["verdict"], second["verdict"]) == ("migratable", "migrated")
    assert first["prove"][0].startswith("fsdplint prove one/train.py")
    assert "--against" in second["prove"][0]


def test_interactive_that_is_interrupted_writes_nothing(folder: Path) -> None:
    one, two = two_programs(folder)
    before = one.read_bytes()
    result = run("migrate", "--interactive", ".", input="y\n")  # then the input ends
    assert result.exit_code == 1 and "Aborted" in result.output
    assert one.read_bytes() == two.read_bytes() == before


@pytest.mark.parametrize("option", ["--fix", "--diff", "--annotate"])
def test_interactive_and_other_options(folder: Path, option: str) -> None:
    assert run("migrate", "--interactive", option, ".").exit_code == 2
