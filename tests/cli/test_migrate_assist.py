"""`fsdplint migrate --assist`: what it says and writes, and what a second run says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from test_migrate import BLOCKED, BLOCKER, TRAIN

from fsdplint.cli.main import main

RAISES = "raise NotImplementedError("
CODE = "FSDP299-flat-parameter-internal"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


@pytest.fixture
def train(folder: Path) -> Path:
    file = folder / "train.py"
    file.write_text(BLOCKED)
    return file


def test_a_blocked_program_stays_without_the_option(train: Path) -> None:
    assert run("migrate", "--fix", "train.py").exit_code == 1
    assert train.read_text() == BLOCKED


def test_the_report_says_what_will_raise(train: Path) -> None:
    result = run("migrate", "--assist", "train.py")
    assert result.exit_code == 1, result.output
    assert train.read_text() == BLOCKED
    lines = result.output.splitlines()
    assert (
        lines[0] == "train.py: can be rewritten except for 1 place to decide (3 changes in 1 file)"
    )
    assert any(line.startswith(f"  train.py:21: To decide ({CODE})") for line in lines)
    assert any(line.startswith("    = then: ") for line in lines)
    assert "    = check: fsdplint validate ../before/train.py train.py" in lines
    assert lines[-3:] == [
        "1 program would be rewritten in part: 2 of 3 uses of FSDP1 (66 %).",
        "1 place raises NotImplementedError until you replace the code; then run this again.",
        "Nothing was written: --fix writes.",
    ]


def test_the_diff_shows_it(train: Path) -> None:
    result = run("migrate", "--assist", "--diff", "train.py")
    assert result.exit_code == 1
    assert f"\n+{RAISES}" in result.output
    assert f"\n+#     {BLOCKER}" in result.output
    assert train.read_text() == BLOCKED


def test_files_that_are_not_given_are_asked_for(folder: Path, train: Path) -> None:
    helper = "def clip(model):\n    model.clip_grad_norm_(1.0)\n"
    (folder / "clip.py").write_text(helper)
    text = BLOCKED.replace("model.clip_grad_norm_(1.0)", "clip(model)")
    train.write_text(f"from clip import clip\n{text}")
    for option in ("--fix", "--diff"):
        lines = run("migrate", "--assist", option, "train.py").output.splitlines()
        assert lines[-1] == "Name the files outside of the paths as well, or give --project."
        assert any(line.startswith("1 program would be rewritten in part") for line in lines)
        assert not any(line.startswith("Nothing was written") for line in lines)
        assert (folder / "clip.py").read_text() == helper
    run("migrate", "--assist", "--fix", "--project", "train.py")
    assert "clip_grad_norm_(model.parameters()" in (folder / "clip.py").read_text()


def test_json_and_markdown_have_the_places(train: Path) -> None:
    run("migrate", "--assist", "--fix", "train.py", "--report", "report.json")
    (program,) = json.loads(Path("report.json").read_text())["programs"]
    assert program["verdict"] == "partly migrated"
    assert program["sites"] == {"rewritten": 2, "all": 3}
    assert program["prove"] == []
    (place,) = program["open"]
    assert train.read_text().splitlines()[place["row"] - 1].startswith(RAISES)
    assert place["blocker"] == CODE
    assert place["lines"] == [BLOCKER.rstrip()]
    assert place["postcondition"] and place["checks"][1].startswith("fsdplint validate ")
    train.write_text(BLOCKED)
    run("migrate", "--assist", "--fix", "train.py", "--report", "report.md")
    text = Path("report.md").read_text()
    assert "### Code that raises" in text and f"```python\n{BLOCKER}```" in text


def test_a_second_run_names_the_places_and_changes_nothing(train: Path) -> None:
    assert run("migrate", "--assist", "--fix", "train.py").exit_code == 1
    text = train.read_text()
    assert "FullyShardedDataParallel" not in text
    for options in (["--assist", "--fix"], ["--fix"], []):
        again = run("migrate", *options, "train.py")
        assert again.exit_code == 1
        assert train.read_text() == text
        assert "Open since an earlier assisted migration:" in again.output
        assert f"To decide ({CODE})" in again.output


def test_a_decision_ends_it(train: Path) -> None:
    run("migrate", "--assist", "--fix", "train.py")
    lines = train.read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("# To decide"))
    end = next(n for n, line in enumerate(lines) if n > start and line.startswith("optimizer.step"))
    train.write_text("\n".join([*lines[:start], *lines[end:]]) + "\n")
    again = run("migrate", "--assist", "--fix", "train.py")
    assert (again.exit_code, again.output) == (
        0,
        "No use of FSDP1 was found; there is nothing to migrate.\n",
    )
    assert run("migrate", "--fix", "train.py").exit_code == 0


def test_a_target_that_is_too_old_blocks_the_whole_program(train: Path) -> None:
    result = run("migrate", "--assist", "--fix", "--target-torch", "2.3", "train.py")
    assert result.exit_code == 1
    assert train.read_text() == BLOCKED
    assert "the fix needs torch 2.6" in result.output


def test_a_program_without_blockers_is_migrated_whole(train: Path) -> None:
    train.write_text(TRAIN)
    assert run("migrate", "--assist", "--fix", "train.py").exit_code == 0
    assisted = train.read_text()
    train.write_text(TRAIN)
    run("migrate", "--fix", "train.py")
    assert train.read_text() == assisted


def test_the_program_fails_at_the_place(train: Path) -> None:
    run("migrate", "--assist", "--fix", "train.py")
    variables = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29673",
    }
    done = subprocess.run(
        [sys.executable, "train.py"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1].removeprefix("[rank0]: ")
    assert last.startswith("NotImplementedError: fsdplint: ") and last.endswith(f"({CODE})")
