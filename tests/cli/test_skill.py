"""The skill for coding agents: its form, and that each of its commands does what it says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from command import FIXTURES, run
from json_schemas import validate
from ruamel.yaml import YAML
from two_ranks import TwoRanks

from fsdplint.cli.skill import text
from fsdplint.runtime.proof.verdicts import Verdict

BEFORE, MIGRATED = "as committed", "migrated"
# The exit code of each command, and the state of the program that it is run on.
COMMANDS = {
    "fsdplint check train.py --output-format json-full": (1, BEFORE),
    "fsdplint rule FSDP103": (0, BEFORE),
    "fsdplint plan train.py --output-format json": (0, BEFORE),
    "fsdplint check --diff train.py": (1, BEFORE),
    "fsdplint check --fix train.py": (0, BEFORE),
    "fsdplint migrate . --report migration.json": (1, BEFORE),
    "fsdplint migrate --fix .": (0, BEFORE),
    "fsdplint validate HEAD:train.py train.py --output-format json": (0, MIGRATED),
    "fsdplint prove train.py --json proof.json": (0, BEFORE),
    "git worktree add ../before HEAD": (0, BEFORE),
    "fsdplint prove ../before/train.py --against train.py": (0, MIGRATED),
    "fsdplint run train.py --steps 3 --output-format json-full": (1, BEFORE),
}


def commands() -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```", text(), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


def git(folder: Path, *arguments: str) -> int:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, check=True
    ).returncode


def test_the_command_prints_it() -> None:
    result = run("skill")
    assert (result.exit_code, result.stdout) == (0, text())


def test_the_front_matter() -> None:
    _, front, body = text().split("---\n", 2)
    data = YAML(typ="safe").load(front)
    assert set(data) == {"name", "description"}
    # What readers of skills accept.
    assert re.fullmatch(r"[a-z0-9-]{1,64}", data["name"])
    assert 100 < len(data["description"]) <= 1024 and "<" not in data["description"]
    assert body.startswith("\n# fsdplint\n")
    assert len(text().splitlines()) < 200


def test_what_it_names_exists() -> None:
    """The options, the verdicts and the keys of the JSON."""
    schemas = [
        json.loads(file.read_text(encoding="utf-8"))
        for file in (Path(__file__).parents[2] / "docs" / "schemas").iterdir()
    ]
    keys = {
        key
        for schema in schemas
        for one in (schema, *schema["$defs"].values())
        for key in one["properties"]
    }
    values = {verdict.value for verdict in Verdict}
    values |= {"error", "warning", "info", "safe", "unsafe", "migratable", "blocked"}
    values |= {"agrees", "differs", "not_followed", "noqa", "ignore", "full_tensor", "HEAD"}
    known = {run("check", "--help").output, run("prove", "--help").output}
    prose = re.sub(r"^```.*?^```", "", text().split("---\n", 2)[2], flags=re.DOTALL | re.MULTILINE)
    for word in re.findall(r"`([^`]+)`", prose):
        if word.startswith("fsdplint "):
            name = word.split()[1]
            assert run(name, "--help").exit_code == 0, word
        elif word.startswith("--"):
            option = word.split()[0]
            assert option == "--" or any(re.search(rf"{option}\b", one) for one in known), word
        elif re.fullmatch(r"[a-z_ ]+", word):
            assert word in keys | values | {"prove", "run", "validate"}, word


def test_every_command_is_run_here() -> None:
    assert commands() == [*COMMANDS]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_ranks: TwoRanks) -> Path:
    """A repository with an FSDP1 program. Its runs use the ranks that the tests share."""
    pytest.importorskip("torch")
    from forked import launcher

    for module in ("program_pair", "run_once"):
        monkeypatch.setattr(f"fsdplint.runtime.proof.{module}.launch", launcher(two_ranks))
    folder = tmp_path / "project"
    folder.mkdir()
    source = (FIXTURES / "flat_script.py").read_text(encoding="utf-8")
    source = source.replace("STEPS = 8", "STEPS = 3")
    (folder / "train.py").write_text(source, encoding="utf-8")
    git(folder, "init", "-q")
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "-m", "x")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OUT_DIR", "out")
    return folder


def test_the_commands_do_what_they_say(project: Path) -> None:
    for command, (code, state) in COMMANDS.items():
        git(project, "checkout", "-q", "train.py")
        if state is MIGRATED:
            assert run("migrate", "--fix", ".").exit_code == 0
        program, *arguments = shlex.split(command)
        if program == "git":
            assert git(project, *arguments) == code
            continue
        result = run(*arguments)
        assert result.exit_code == code, f"{command}\n{result.output}"
        if "json-full" in command:
            validate("check", json.loads(result.stdout))
        elif command.startswith("fsdplint plan"):
            validate("plan", json.loads(result.stdout))
        elif command.startswith("fsdplint validate"):
            data = json.loads(result.stdout)
            validate("validation", data)
            assert data["differs"] == 0 < data["agrees"]
    validate("migration", json.loads((project / "migration.json").read_text(encoding="utf-8")))
    proof = json.loads((project / "proof.json").read_text(encoding="utf-8"))
    validate("proof", proof)
    assert {fix["verdict"] for fix in proof["fixes"]} == {"proven"}
