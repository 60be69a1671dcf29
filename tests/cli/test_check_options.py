"""The options of `fsdplint check` that ruff has as well."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from command import BAD, BOTH, FIXED, FIXTURES, TWICE, run

import fsdplint
from fsdplint.cli import watch
from fsdplint.cli.main import main
from fsdplint.report import terminal

# Output -------------------------------------------------------------------------------------------


def test_a_file_for_the_report(train: Path, folder: Path) -> None:
    result = run("train.py", "-o", "deep/out.json", "--output-format", "json")
    assert (result.exit_code, result.output) == (1, "")
    (found,) = json.loads((folder / "deep" / "out.json").read_text())
    assert found["code"] == "FSDP101"
    run("train.py", "--output-file", "out.txt", "--color", "always")
    assert (folder / "out.txt").read_text().startswith("train.py:10:8: FSDP101")
    (folder / "dir").mkdir()
    (folder / "dir" / "x").write_text("")
    wrong = run("train.py", "-o", "dir/x/y")
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("error: dir/x/y: cannot be written: ")


@pytest.mark.skipif(os.name != "posix", reason="needs a limit for files")
@pytest.mark.parametrize(
    ("command", "before"),
    [
        ("--no-cache -o known", "All checks passed.\n"),
        ("baseline -o known", '{"version": 1, "findings": {}}\n'),
    ],
)
def test_a_full_disk_takes_nothing_away(
    train: Path, folder: Path, command: str, before: str
) -> None:
    (folder / "known").write_text(before)
    shell = f'ulimit -f 0; exec "$0" -m fsdplint {command} train.py'
    environment = {**os.environ, "PYTHONPATH": str(Path(fsdplint.__file__).parents[1])}
    done = subprocess.run(
        ["bash", "-c", shell, sys.executable], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: known: cannot be written: File too large\n"
    assert (folder / "known").read_text() == before
    assert sorted(path.name for path in folder.iterdir()) == ["known", "train.py"]


def test_format_and_file_from_the_environment(train: Path, folder: Path) -> None:
    environment = {"FSDPLINT_OUTPUT_FORMAT": "pylint", "FSDPLINT_OUTPUT_FILE": "out"}
    assert CliRunner().invoke(main, ["train.py"], env=environment).output == ""
    assert (folder / "out").read_text().startswith("train.py:10: [FSDP101] ")


def test_statistics(folder: Path) -> None:
    (folder / "a.py").write_text(TWICE)
    (folder / "b.py").write_text(BOTH)
    result = run("--statistics", ".")
    assert result.exit_code == 1
    assert result.output == (
        "3\tFSDP101\t[*] direct-forward-call\n"
        "1\tFSDP107\t[ ] deepcopy-of-sharded\n"
        "Found 4 errors.\n"
        "[*] 3 fixable with --fix.\n"
    )
    assert json.loads(run("--statistics", "--output-format", "json", ".").output) == [
        {
            "code": "FSDP101",
            "name": "direct-forward-call",
            "count": 3,
            "fixable": True,
            "fixable_count": 3,
        },
        {
            "code": "FSDP107",
            "name": "deepcopy-of-sharded",
            "count": 1,
            "fixable": False,
            "fixable_count": 0,
        },
    ]
    wrong = run("--statistics", "--output-format", "github", ".")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    (folder / "a.py").write_text(FIXED)
    assert run("--statistics", "a.py").output == "All checks passed.\n"


def test_the_files_that_would_be_looked_at(train: Path, folder: Path) -> None:
    (folder / "b").mkdir()
    (folder / "b" / "x.py").write_text("x = 1\n")
    (folder / "b" / "notes.txt").write_text("")
    result = run("--show-files", "train.py", "b")
    assert (result.exit_code, result.output) == (0, f"{folder}/b/x.py\n{folder}/train.py\n")
    assert run("--show-files", "gone.py").exit_code == 2


def test_the_settings_of_a_file(train: Path, folder: Path) -> None:
    text = '[tool.fsdplint]\nselect = ["FSDP101", "FSDP103"]\ncheckpoint = "dcp"\n'
    (folder / "pyproject.toml").write_text(text)
    result = run("--show-settings", "--ignore", "FSDP103", "train.py")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == f"Settings of: {train}"
    assert 'rules = ["FSDP101"]' in lines
    assert 'checkpoint = "dcp"' in lines


def test_colours(train: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" not in run("train.py").output
    assert "\x1b[1;31mFSDP101\x1b[0m" in run("--color", "always", "train.py").output
    always = run("--color", "always", "--output-format", "concise", "train.py").output
    assert "\x1b[1;31mFSDP101\x1b[0m" in always
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("train.py").output
    assert "\x1b[" not in run("--color", "never", "train.py").output
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("train.py").output
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_HYPERLINK", "1")
    link = "\x1b]8;;https://fsdplint.readthedocs.io/rules/direct-forward-call\x1b\\"
    assert f"{link}\x1b[1;31mFSDP101\x1b[0m\x1b]8;;\x1b\\" in run("train.py").output
    assert "\x1b]8" not in run("--output-format", "json", "train.py").output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "6003"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "4205"}, False),
        ({"TERM": "xterm-256color", "WT_SESSION": "1"}, True),
        ({"TERM": "xterm-kitty", "FORCE_HYPERLINK": "0"}, False),
    ],
)
def test_terminals_with_links(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: bool
) -> None:
    monkeypatch.setattr(os, "environ", environment)
    assert terminal.links(Terminal()) is expected
    assert not terminal.links(io.StringIO())
    assert terminal.colours("auto", Terminal())


# Fixing -------------------------------------------------------------------------------------------


def test_what_was_fixed(train: Path) -> None:
    train.write_text(
        TWICE.replace("fully_shard(model)\n", "fully_shard(model)\nfully_shard(model)\n")
    )
    result = run("--fix", "--show-fixes", "train.py")
    assert result.output == (
        "Fixed 3 findings:\n- train.py:\n"
        "    2 \N{MULTIPLICATION SIGN} FSDP101 (direct-forward-call)\n"
        "    1 \N{MULTIPLICATION SIGN} FSDP111 (sharded-twice)\n\n"
        "Fixed 3 findings; none remains.\n"
    )
    assert run("--fix", "--show-fixes", "train.py").output == "All checks passed.\n"
    train.write_text(BAD)
    as_json = run("--fix", "--show-fixes", "--output-format", "json", "train.py")
    assert json.loads(as_json.output) == []


def test_fix_only(train: Path) -> None:
    train.write_text(BOTH)
    result = run("--fix-only", "train.py")
    assert (result.exit_code, result.output) == (0, "Fixed 1 finding.\n")
    assert train.read_text() == BOTH.replace("model.forward(", "model(")
    result = run("--fix-only", "train.py")
    assert (result.exit_code, result.output) == (0, "")
    assert run("--fix-only", "gone.py").exit_code == 2


def test_exit_codes_of_fixing(train: Path) -> None:
    assert run("--fix", "--exit-non-zero-on-fix", "train.py").exit_code == 1
    assert run("--fix", "--exit-non-zero-on-fix", "train.py").exit_code == 0
    train.write_text(BAD)
    assert run("--fix-only", "--exit-non-zero-on-fix", "train.py").exit_code == 1
    assert run("--fix", "--exit-zero", "--exit-non-zero-on-fix", "train.py").exit_code == 2


MODEL = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from loop import train
train(FSDP(nn.Linear(2, 2), use_orig_params=True))
"""
LOOP = """\
import torch
def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2)).sum().backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
"""

ELSE = """\
from torch.distributed.fsdp import fully_shard
other = nn.Linear(2, 2)
fully_shard(other)
other.forward(torch.ones(2))
"""


@pytest.mark.parametrize("options", [(), ("--fix",), ("--diff",)])
def test_the_files_that_have_to_change_as_well_are_named(
    folder: Path, options: Sequence[str]
) -> None:
    """Also where something else is fixed in the file."""
    (folder / "main.py").write_text(MODEL + ELSE)
    (folder / "loop.py").write_text(LOOP)
    result = run(*options, "main.py", "--output-format", "concise")
    assert result.exit_code == 1
    assert (
        "2 findings can only be fixed together with loop.py: name it as well, or use --project.\n"
    ) in result.output
    fixed = options == ("--fix",)
    assert (folder / "main.py").read_text() == MODEL + (
        ELSE.replace(".forward(", "(") if fixed else ELSE
    )
    assert (folder / "loop.py").read_text() == LOOP
    both = run(*options, "main.py", "loop.py", "--output-format", "concise")
    assert "together with" not in both.output


def test_a_diff_says_why_a_migration_is_not_in_it(folder: Path) -> None:
    inside = "torch.distributed.fsdp._runtime_utils._lazy_init(model, model)\n"
    text = MODEL.replace("from loop import train\n", "").replace("train(FSDP", "model = (FSDP")
    (folder / "main.py").write_text(text + inside)
    result = run("--diff", "main.py")
    assert (result.exit_code, result.stdout) == (0, "")
    first, second = result.stderr.splitlines()
    assert first.startswith("main.py:4: FSDP201 Not migrated, because of main.py:5 (`_runtime")
    assert second == "1 finding would remain."


def test_a_migration_as_others_apply_it(folder: Path) -> None:
    """The fixes in SARIF and in reviewdog's format come to what --fix writes."""
    text = "é = 1\n" + (FIXTURES / "flat_script.py").read_text()
    (folder / "train.py").write_text(text)
    (run_,) = json.loads(run("--output-format", "sarif", "train.py").output)["runs"]
    changes = [fix["artifactChanges"] for one in run_["results"] for fix in one["fixes"]]
    assert len(changes) == 3 and all(one == changes[0] for one in changes)
    lines = text.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + column - 1

    by_sarif = text
    for one in reversed(changes[0][0]["replacements"]):
        at = one["deletedRegion"]
        start = offset(at["startLine"], at["startColumn"])
        end = offset(at["endLine"], at["endColumn"])
        by_sarif = by_sarif[:start] + one["insertedContent"]["text"] + by_sarif[end:]
    diagnostics = json.loads(run("--output-format", "rdjson", "train.py").output)["diagnostics"]
    (suggestion,) = (one for found in diagnostics for one in found.get("suggestions", ()))

    def byte_offset(at: dict[str, int]) -> int:
        return sum(len(line.encode()) for line in lines[: at["line"] - 1]) + at["column"] - 1

    data = text.encode()
    first, last = (byte_offset(suggestion["range"][end]) for end in ("start", "end"))
    by_rdjson = data[:first] + suggestion["text"].encode() + data[last:]
    assert run("--fix", "train.py").exit_code == 0
    fixed = (folder / "train.py").read_text()
    assert fixed != text
    assert by_sarif == fixed
    assert by_rdjson.decode() == fixed


# Watching, completion -----------------------------------------------------------------------------


def test_watching(train: Path, folder: Path) -> None:
    seen: list[str] = []

    def job() -> None:
        seen.append(train.read_text())
        if len(seen) == 2:
            raise SystemExit(2)  # wrong settings do not end it

    (folder / "pyproject.toml").write_text("[tool.fsdplint]\nexclude = ['out']\n")
    (folder / "out").mkdir()

    def wait(look: watch.TakeSnapshot, before: watch.Snapshot) -> None:
        (folder / "out" / f"{len(seen)}.py").touch()
        assert look() == before  # what is excluded is not looked at
        if len(seen) == 3:
            raise KeyboardInterrupt
        train.write_text(f"x = {len(seen)} + 0\n" * len(seen))
        assert look() != before
        watch.wait_for_change(look, before)

    watch.watch([folder], job, wait=wait)
    assert seen == [BAD, "x = 1 + 0\n", "x = 2 + 0\n" * 2]


def test_watching_from_the_command_line(train: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "wait_for_change", interrupt)
    result = run("--watch", "train.py")
    assert result.exit_code == 0
    assert "train.py:10:8: FSDP101" in result.stdout
    assert "Watching for changes" in result.stderr


def complete(words: str, count: int) -> list[str]:
    environment = {
        "_FSDPLINT_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(count),
    }
    result = CliRunner().invoke(main, [], prog_name="fsdplint", env=environment)
    return [line.removeprefix("plain,") for line in result.output.splitlines()]


def test_completion() -> None:
    for shell in ("bash", "zsh", "fish"):
        result = run("generate-shell-completion", shell)
        assert (result.exit_code, "_FSDPLINT_COMPLETE" in result.output) == (0, True)
    assert complete("fsdplint mig", 1)[0] == "migrate"
    assert complete("fsdplint tr", 1) == complete("fsdplint check tr", 2) == ["file,tr"]
    assert complete("fsdplint --select FSDP102", 2) == ["FSDP102"]
    assert "--select" in complete("fsdplint --s", 1)
    assert complete("fsdplint check --select FSDP10", 3)[:2] == ["FSDP101", "FSDP102"]
    assert complete("fsdplint check --ignore FSDP101,direct", 3) == ["FSDP101,FSDP101"]
    assert complete("fsdplint check --output-format s", 3) == ["sarif"]


def test_the_help_is_in_sections() -> None:
    lines = run("check", "--help").output.splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    wanted = ["Fixing:", "Rules:", "Known findings:", "Files:", "Output:", "Options:"]
    assert titles == wanted
    at = [next(n for n, line in enumerate(lines) if option in line) for option in ("--fix ", "-h,")]
    assert lines.index("Fixing:") < at[0] < lines.index("Rules:")
    assert at[1] > lines.index("Options:")
    commands = run("--help").output.split("Commands:")[1].split()
    names = [word for word in commands if word in ("check", "migrate", "prove", "run", "rule")]
    assert names[0] == "check"


BLOCKED_TWICE = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import _runtime_utils

model = FSDP(torch.nn.Linear(8, 8))
_runtime_utils._lazy_init(model, model)
model(torch.ones(8)).sum().backward()
model.clip_grad_norm_(1.0)
"""


def test_the_advice_for_a_program_is_given_once(tmp_path: Path) -> None:
    file = tmp_path / "main.py"
    file.write_text(BLOCKED_TWICE)
    output = run("check", file, "--no-cache", "--color", "never").output
    assert "FSDP201" in output and "FSDP204" in output
    assert output.count("Not migrated, because of") == 1
    assert f"The advice at {file}:5 applies here, too." in " ".join(output.split())
