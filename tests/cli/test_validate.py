"""The command `fsdplint validate`."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fixture_runs import project

from fsdplint.cli.main import main

PROGRAMS = Path(__file__).parents[1] / "comparison" / "programs"
BEFORE, AFTER = PROGRAMS / "before.py", PROGRAMS / "after.py"


@functools.cache
def before() -> str:
    """`BEFORE` in a project of its own."""
    return str(project(BEFORE) / BEFORE.name)


def after() -> str:
    return str(AFTER)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["validate", *arguments])


def wrong(folder: Path) -> str:
    text = AFTER.read_text(encoding="utf-8").replace(", 0.5)", ", 0.505)")
    file = folder / "wrong.py"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_a_right_migration() -> None:
    result = run(before(), after())
    assert result.exit_code == 0
    assert "The migration keeps what could be followed:" in result.stdout


def test_a_difference_has_both_places(tmp_path: Path) -> None:
    result = run(before(), wrong(tmp_path))
    assert result.exit_code == 1
    first = result.stdout.splitlines()[0]
    assert first.startswith("differs       clipping bound: 0.5 [")
    assert "before.py:" in first
    assert "-> 0.505 [" in first
    assert "wrong.py:" in first


def test_exit_zero(tmp_path: Path) -> None:
    assert run(before(), wrong(tmp_path), "--exit-zero").exit_code == 0


def test_json(tmp_path: Path) -> None:
    result = run(before(), wrong(tmp_path), "--output-format", "json")
    data = json.loads(result.stdout)
    assert data["schema_version"] == 1
    (different,) = [one for one in data["facts"] if one["outcome"] == "differs"]
    assert different["topic"] == "clipping bound"
    assert different["before"]["value"] == "0.5"
    assert different["after"]["at"]["filename"].endswith("wrong.py")


def test_folders(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    shutil.copy(BEFORE, tmp_path / "old" / "train.py")
    shutil.copy(AFTER, tmp_path / "new" / "train.py")
    assert run(str(tmp_path / "old"), str(tmp_path / "new")).exit_code == 0


def test_a_program_without_sharding_is_not_checked(tmp_path: Path) -> None:
    file = tmp_path / "plain.py"
    file.write_text("print(1)\n", encoding="utf-8")
    result = run(str(file), after())
    assert result.exit_code == 2
    assert "no run of the program before shards a model" in result.stdout


def test_a_missing_file(tmp_path: Path) -> None:
    result = run(str(tmp_path / "none.py"), after())
    assert result.exit_code == 2
    assert "no such file, folder or revision" in result.stderr


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def git(*arguments: str) -> None:
        names = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    for program in (BEFORE, AFTER):
        shutil.copy(program, tmp_path / "train.py")
        git("add", "train.py")
        git("commit", "-qm", "a step")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def two_programs(repository: Path) -> Path:
    """A repository whose working tree has migrated one of two programs in a folder."""
    folder = repository / "programs"
    folder.mkdir()
    for name in ("train.py", "other.py"):
        shutil.copy(BEFORE, folder / name)
    text = (folder / "other.py").read_text(encoding="utf-8").replace(", 0.5)", ", 0.25)")
    (folder / "other.py").write_text(text, encoding="utf-8")
    names = ("-c", "user.name=a", "-c", "user.email=a@b")
    for arguments in (("add", "."), (*names, "commit", "-qm", "two programs")):
        subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True)
    shutil.copy(AFTER, folder / "train.py")
    return repository


@pytest.mark.parametrize("place", [".", "programs"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_file_is_compared_with_what_a_revision_has_in_its_place(
    two_programs: Path, monkeypatch: pytest.MonkeyPatch, place: str, turned: bool
) -> None:
    monkeypatch.chdir(two_programs / place)
    file = "train.py" if place == "programs" else "programs/train.py"
    result = run(file, "HEAD") if turned else run("HEAD", file)
    assert "other.py" not in result.stdout
    assert "HEAD:programs/train.py:" in result.stdout
    if not turned:
        assert result.exit_code == 0, result.output


def test_a_folder_is_compared_with_what_a_revision_has_in_its_place(
    two_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(two_programs / "programs")
    result = run("HEAD", ".", "--output-format", "json")
    places = {
        one[side]["at"]["filename"]
        for one in json.loads(result.stdout)["facts"]
        for side in ("before", "after")
        if one[side]["at"]
    }
    assert places == {"HEAD:programs/train.py", "HEAD:programs/other.py", "train.py", "other.py"}


def test_a_file_that_the_revision_lacks_is_compared_with_all_of_it(two_programs: Path) -> None:
    shutil.move(two_programs / "programs" / "train.py", two_programs / "new.py")
    result = run("HEAD", "new.py")
    assert "HEAD:programs/other.py:" in result.stdout


def test_a_file_outside_of_the_repository_is_compared_with_all_of_a_revision(
    two_programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "train.py"
    shutil.copy(AFTER, elsewhere)
    result = run("HEAD", str(elsewhere))
    assert "HEAD:programs/other.py:" in result.stdout
    result = run("HEAD", "HEAD", "--", str(elsewhere))
    assert result.exit_code == 2
    assert f"HEAD has no {elsewhere}" in result.stderr


def test_a_file_of_a_revision_that_cannot_be_read_has_the_name_of_the_revision(
    repository: Path,
) -> None:
    (repository / "broken.py").write_text("import torch.distributed.fsdp\n(", encoding="utf-8")
    for arguments in (
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"),
    ):
        subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True)
    result = run("HEAD", "train.py")
    assert "broken.py" not in result.stdout
    result = run("HEAD", "HEAD~1")
    (line,) = [one for one in result.stdout.splitlines() if "broken.py" in one]
    assert " HEAD:broken.py: " in line
    (repository / "train.py").unlink()
    result = run("HEAD:broken.py", ".")
    assert "HEAD:broken.py: syntax error" in result.stdout


def test_the_files_of_a_revision_are_removed(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    run("HEAD~1", "HEAD")
    assert list(temporary.iterdir()) == []


def test_further_paths_are_those_of_the_current_folder(
    two_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(two_programs / "programs")
    result = run("HEAD", "HEAD", "--", "other.py")
    assert "HEAD:programs/other.py:" in result.stdout
    assert "train.py" not in result.stdout


def test_the_files_of_two_revisions_may_have_other_names(repository: Path) -> None:
    shutil.move(repository / "train.py", repository / "new.py")
    for arguments in (
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"),
    ):
        subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True)
    result = run("HEAD~2:train.py", "HEAD:new.py")
    assert result.exit_code == 0, result.output
    assert "HEAD:new.py:" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("HEAD~1", "HEAD"),
        ("HEAD~1", "HEAD", "--", "train.py"),
        ("HEAD~1:train.py", "train.py"),
        ("HEAD~1:train.py", "HEAD:train.py"),
    ],
)
def test_revisions(repository: Path, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "HEAD~1:train.py:" in result.stdout
    assert [path.name for path in repository.iterdir() if path.name != ".git"] == ["train.py"]


def test_a_path_that_a_revision_lacks(repository: Path) -> None:
    result = run("HEAD~1", "HEAD", "--", "other.py")
    assert result.exit_code == 2
    assert "HEAD~1 has no other.py" in result.stderr


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name, program in (("old", BEFORE), ("new", AFTER)):
        (tmp_path / name).mkdir()
        shutil.copy(program, tmp_path / name / "train.py")
    broken = "from torch.distributed.fsdp import fully_shard\nprint 'x'\n"
    (tmp_path / "new" / "broken.py").write_text(broken, encoding="utf-8")
    result = run(str(tmp_path / "old"), str(tmp_path / "new"))
    assert result.exit_code == 0
    (line,) = [one for one in result.stdout.splitlines() if "broken.py" in one]
    assert line.startswith("not followed")


HELPERS = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        return self.up(x)


dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), Block(), Block())
model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()
with FSDP.summon_full_params(model, writeback=False):
    total = sum(p.double().sum().item() for p in model.parameters())
    print(total)
"""


def test_what_the_own_migration_writes_is_known(tmp_path: Path) -> None:
    """What someone changes in it is not."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    for file in (before, after):
        file.write_text(HELPERS, encoding="utf-8")
    migrated = CliRunner().invoke(main, ["migrate", "--fix", str(after)])
    assert migrated.exit_code == 0, migrated.output

    def changed() -> list[str]:
        result = run(str(before), str(after), "--output-format", "json")
        facts = json.loads(result.stdout)["facts"]
        return [one["after"]["value"] for one in facts if one["outcome"] != "agrees"]

    assert changed() == []
    text = after.read_text(encoding="utf-8")
    start = text.rindex("model.modules()")
    text = f"{text[:start]}model.children(){text[start + len('model.modules()') :]}"
    after.write_text(text, encoding="utf-8")
    assert any("model.children()" in one for one in changed())


def test_units_that_an_unknown_policy_hides_are_one_fact(tmp_path: Path) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    text = HELPERS.replace("ModuleWrapPolicy({Block})", "policies.mine()", 1)
    before.write_text(f"import policies\n{text}", encoding="utf-8")
    shards = "for block in model[1:]:\n    fully_shard(block)\nfully_shard(model[0])\n"
    start, end = text.index("model = FSDP("), text.index("optimizer =")
    new = f"{text[:start]}{shards}fully_shard(model)\n{text[end:]}"
    new = new[: new.index("with FSDP")].replace("FullyShardedDataParallel as FSDP", "fully_shard")
    after.write_text(new, encoding="utf-8")
    result = run(str(before), str(after), "--output-format", "json")
    units = [one for one in json.loads(result.stdout)["facts"] if one["topic"] == "unit"]
    hidden = [one for one in units if one["reason"] == "the wrap policy is unknown"]
    assert [(one["subject"], one["after"]["value"]) for one in hidden] == [("model", "3 units")]
