"""The JSON of every command is as its published schema says, and holds what a program needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command import BAD, BOTH, FIXTURES, run
from json_schemas import DOCS, schemas, validate, validator

from fsdplint import __version__

BLOCKED = FIXTURES.parent / "fsdp1_blocked"


def report(*arguments: object) -> Any:
    result = run(*arguments)
    assert result.exit_code in (0, 1, 2), result.output
    return json.loads(result.stdout)


def notebook(text: str) -> str:
    cell = {"cell_type": "code", "source": text, "metadata": {}, "outputs": []}
    cells = [{**cell, "execution_count": None, "id": "a"}]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize("name", [*schemas().REPORTS])
def test_the_published_schemas_are_up_to_date(name: str) -> None:
    file = DOCS / "schemas" / f"{name}.json"
    wanted = schemas().text_of(name)
    assert file.read_text(encoding="utf-8") == wanted, "python docs/schemas.py writes it"
    described = [*json.loads(wanted)["$defs"].values(), json.loads(wanted)]
    for one in described:
        assert one["description"]
        assert [key for key, value in one["properties"].items() if "description" not in value] == []


def test_every_schema_is_published() -> None:
    assert {file.stem for file in (DOCS / "schemas").iterdir()} == {*schemas().REPORTS}


def test_a_check(folder: Path) -> None:
    (folder / "train.py").write_text(BOTH)
    (folder / "notes.ipynb").write_text(notebook(BAD))
    (folder / "broken.py").write_text("from torch.distributed.fsdp import (\n")
    data = report("--output-format", "json-full", ".")
    validate("check", data)
    summary = data["summary"]
    assert data["version"] == __version__
    assert [one["filename"] for one in data["problems"]] == ["broken.py"]
    assert {one["filename"] for one in data["findings"]} == {"train.py", "notes.ipynb"}
    assert any("cell" in one for one in data["findings"])
    severities = [one["severity"] for one in data["findings"]]
    assert summary["errors"] == severities.count("error") == len(severities) == 3
    assert (summary["warnings"], summary["notes"], summary["problems"]) == (0, 0, 1)
    assert summary["fixable"] == sum(one["fix"] is not None for one in data["findings"]) == 2
    assert summary["files"] == 3
    assert summary["text"].startswith("Found 3 errors.")
    assert summary["coverage"]["sites"] == data["coverage"]["sites"] > 0


def test_the_list_has_the_same_findings(folder: Path) -> None:
    (folder / "train.py").write_text(BOTH)
    (folder / "broken.py").write_text("from torch.distributed.fsdp import (\n")
    whole = report("--output-format", "json-full", ".")
    assert report("--output-format", "json", ".") == [*whole["problems"], *whole["findings"]]


def test_a_check_of_nothing(folder: Path) -> None:
    data = report("--output-format", "json-full", ".")
    validate("check", data)
    assert (data["findings"], data["summary"]["files"]) == ([], 0)


def test_a_check_of_fsdp1() -> None:
    """Findings of groups, with related places, blockers and notes."""
    programs = (FIXTURES / "flat_script.py", BLOCKED / "comm_hook.py")
    data = report("--output-format", "json-full", *programs)
    validate("check", data)
    assert any(one["blocker_codes"] for one in data["findings"])
    assert any(one["fix"] and one["fix"]["notes"] for one in data["findings"])


def test_the_coverage(train: Path) -> None:
    train.write_text(BAD + "\n\ndef unused(model):\n    torch.save(model, 'a.pt')\n")
    data = report("--coverage", "--output-format", "json", train)
    validate("coverage", data)
    assert data["sites"] > data["covered"] > 0
    assert report("--coverage", "--output-format", "json-full", train) == data


def test_the_statistics(folder: Path) -> None:
    (folder / "train.py").write_text(BOTH)
    (folder / "broken.py").write_text("from torch.distributed.fsdp import (\n")
    data = report("--statistics", "--output-format", "json-full", ".")
    validate("statistics", data)
    assert data["rules"] == report("--statistics", "--output-format", "json", ".")
    assert sum(one["count"] for one in data["rules"]) == 3
    assert (data["summary"]["errors"], data["summary"]["problems"]) == (2, 1)
    for _ in range(2):  # it may overwrite itself
        result = run("--statistics", "--output-format", "json-full", "-o", "counts.json", ".")
        assert result.exit_code == 2 and "counts.json" not in result.output  # a file is broken


def test_the_rules() -> None:
    for one in report("rule", "--all", "--output-format", "json"):
        validate("rule", one)
    validate("rule", report("rule", "FSDP103", "--output-format", "json"))


def migration(folder: Path, *arguments: object) -> Any:
    file = folder / "migration.json"
    run("migrate", *arguments, "--report", file, "--exit-zero")
    data = json.loads(file.read_text(encoding="utf-8"))
    validate("migration", data)
    return data


def test_what_is_open(folder: Path) -> None:
    """Each open place has its lines, its reason, what has to hold, and what checks it."""
    data = migration(folder, BLOCKED)
    open_places = [place for one in data["programs"] for place in one["blockers"]]
    blocked = {Path(place["filename"]).stem for place in open_places}
    assert {path.stem for path in BLOCKED.glob("*.py")} <= blocked
    for place in open_places:
        source = Path(place["filename"]).read_text(encoding="utf-8").splitlines()
        lines = source[place["row"] - 1 : place["end_row"]]
        assert lines and lines[: len(place["lines"])] == place["lines"]
        assert place["reason"] and place["advice"] and place["postcondition"].endswith(".")
        assert [one.split()[:2] for one in place["checks"]] == [
            ["fsdplint", "migrate"],
            ["fsdplint", "validate"],
        ]
    of_state = {
        x["postcondition"] for x in open_places if x["blocker"] == "FSDP202-local-state-one-way"
    }
    of_policy = {x["postcondition"] for x in open_places if "custom-policy" in x["blocker"]}
    assert "states" in of_state.pop() and "policy" in of_policy.pop()


def test_the_commands_that_check_an_open_place(folder: Path) -> None:
    """In a repository they can be run as they are: before the change, and after it."""

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)

    source = (BLOCKED / "batch_norm.py").read_text(encoding="utf-8")
    (folder / "sub").mkdir()
    program = folder / "sub" / "train.py"
    program.write_text(source, encoding="utf-8")
    git("init", "-q")
    git("add", "--all")
    git("commit", "-q", "-m", "x")
    (section,) = migration(folder, "sub")["programs"]
    (place,) = section["blockers"]
    migrate, validate_it = (one.split()[1:] for one in place["checks"])
    assert migrate == ["migrate", "sub/train.py"]
    assert validate_it == ["validate", "HEAD:sub/train.py", "sub/train.py"]
    assert place["reason"] in " ".join(run(*migrate).output.split())
    changed = source.replace("        _module_classes_to_ignore=(_BatchNorm, nn.GroupNorm),\n", "")
    assert changed != source
    program.write_text(changed, encoding="utf-8")
    assert place["reason"] not in " ".join(run(*migrate).output.split())
    same = run(*validate_it)
    assert same.exit_code in (0, 1), same.output
    assert "facts agree" in same.output


TRAINER = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, model):
        self.model = FSDP(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
"""
ENTRY = """\
import torch
import torch.distributed as dist
from torch import nn

from trainer import Trainer

if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = nn.Linear(8, 8)
    trainer = Trainer(model)
    trainer.model(torch.randn(2, 8)).sum().backward()
    trainer.optimizer.step()
    torch.save(model.state_dict(), "NAME.pt")
"""


def test_the_checks_are_about_the_program_of_the_place(folder: Path) -> None:
    (folder / "trainer.py").write_text(TRAINER)
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text(ENTRY.replace("NAME", name))
    (section,) = migration(folder, ".")["programs"]
    checked = {one["filename"]: one["checks"][1].split()[-1] for one in section["blockers"]}
    assert checked == {"one.py": "one.py", "two.py": "two.py"}
    (section,) = migration(folder, "--assist", ".")["programs"]
    checked = {one["filename"]: one["checks"][1].split()[-1] for one in section["open"]}
    assert checked == {"one.py": "one.py", "two.py": "two.py"}


@pytest.mark.parametrize("fix", [(), ("--fix",)])
def test_a_migration(folder: Path, fix: tuple[str, ...]) -> None:
    text = (FIXTURES / "flat_script.py").read_text(encoding="utf-8")
    (folder / "train.py").write_text(text, encoding="utf-8")
    (folder / "broken.py").write_text("from torch.distributed.fsdp import (\n")
    data = migration(folder, *fix, ".")
    (program,) = data["programs"]
    assert program["verdict"] == ("migrated" if fix else "migratable")
    assert program["changes"] and len(data["problems"]) == 1
    before = program["validate"].split()[2]
    assert before.endswith("before/train.py")


def test_a_validation(tmp_path: Path) -> None:
    programs = Path(__file__).parents[1] / "comparison" / "programs"
    files = (programs / "before.py", programs / "after.py")
    data = report("validate", *files, "--output-format", "json")
    validate("validation", data)
    assert data["agrees"] > 10
    shutil.copytree(programs, tmp_path / "programs")
    validate("validation", report("validate", programs, tmp_path, "--output-format", "json"))


def test_the_published_schema_allows_new_keys_and_no_missing_ones(train: Path) -> None:
    data = report("--output-format", "json-full", train)
    published = jsonschema.Draft202012Validator(schemas().schema_of("check"))
    published.validate(data | {"later": 1})
    with pytest.raises(jsonschema.ValidationError):
        validator("check").validate(data | {"later": 1})
    for key in data:
        with pytest.raises(jsonschema.ValidationError):
            published.validate({name: value for name, value in data.items() if name != key})


def test_a_migration_is_the_same_from_the_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that changes the requirements of the project."""
    monkeypatch.delenv("FSDPLINT_NO_CACHE", raising=False)
    text = (FIXTURES / "flat_script.py").read_text(encoding="utf-8")
    (folder / "train.py").write_text(text, encoding="utf-8")
    (folder / "requirements.txt").write_text("torch>=2.1\n")
    for file in folder.iterdir():
        os.utime(file, (1e9, 1e9))  # what was just written is not remembered
    first = report("--output-format", "json-full", ".")
    assert any(one["fix"] for one in first["findings"])
    assert report("--output-format", "json-full", ".") == first
