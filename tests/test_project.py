"""Fixes over the files of a project: who calls what they change, and what may be written."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from journals import leave_journal

from fsdplint.cli.main import main

WRAP = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model):
    return FSDP(model)
"""
LOOP = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, optimizer, batches):
    assert isinstance(model, FSDP)
    for batch in batches:
        model(batch).sum().backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
"""
TRAIN = """\
import torch
import torch.nn as nn
from lib.loop import train
from lib.wrap import shard


def main():
    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl")
    model = shard(nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, [torch.randn(2, 4)])


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of which lib/ holds the wrapping and the loop, and train.py calls both."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "wrap.py").write_text(WRAP)
    (tmp_path / "lib" / "loop.py").write_text(LOOP)
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def texts(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.py"))
    }


@pytest.mark.parametrize("named", ["lib/loop.py", "lib/wrap.py", "train.py"])
def test_a_file_alone_is_judged_with_its_project(project: Path, named: str) -> None:
    """Whichever file is named, the migration is of all of them, and it says what must change."""
    before = texts(project)
    done = run("--fix", named)
    assert texts(project) == before
    if named != "train.py":
        other = {"lib/loop.py": "lib/wrap.py", "lib/wrap.py": "lib/loop.py"}[named]
        assert done.exit_code == 1
        assert f"the fix also changes {other}: name these files as well" in done.output
    done = run("--fix", "--project", named)
    assert done.exit_code == 0, done.output
    after = texts(project)
    assert "fully_shard(model)" in after["lib/wrap.py"]
    assert "isinstance(model, FSDPModule)" in after["lib/loop.py"]
    assert "clip_grad_norm_(model.parameters(), 1.0)" in after["lib/loop.py"]
    for name, text in after.items():
        ast.parse(text)
        assert (f"Changed with them: {name}" in done.output.replace(", lib/wrap.py", "")) == (
            name == ({"lib/loop.py": "lib/wrap.py"}.get(named, "lib/loop.py"))
        )
    assert run("--fix", "--project", ".").exit_code == 0
    assert texts(project) == after


def test_what_is_found_in_callers_alone_is_not_shown(project: Path) -> None:
    path = project / "train.py"
    path.write_text(
        path.read_text().replace(
            "    train(", '    torch.save(model.state_dict(), "model.pt")\n    train('
        )
    )
    assert "FSDP207" in run("--output-format", "concise", "train.py").output
    done = run("--output-format", "concise", "lib/wrap.py")
    assert "FSDP201" in done.output
    assert "\ntrain.py:" not in done.output  # but it is named as what has to change along


def test_an_excluded_file_is_never_changed(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.fsdplint]\nexclude = ["lib/loop.py"]\n')
    before = texts(project)
    assert run("--fix", "--project", "train.py").exit_code == 1
    assert texts(project) == before


def test_an_interrupted_write_is_completed_by_the_next_run(project: Path) -> None:
    """Of a migration of two files one was written when the process was killed."""
    wrap, loop = project / "lib" / "wrap.py", project / "lib" / "loop.py"
    old = {path: path.read_bytes() for path in (wrap, loop)}
    assert run("--fix", ".").exit_code == 0
    new = {path: path.read_bytes() for path in (wrap, loop)}
    assert new[wrap] != old[wrap] and new[loop] != old[loop]
    wrap.write_bytes(old[wrap])
    journal = leave_journal(project, *((path, old[path], new[path]) for path in (loop, wrap)))
    for reading in (("train.py",), ("--diff", "--fix", "train.py"), ("migrate", ".")):
        done = run(*reading)
        assert done.exit_code == 2
        assert "an interrupted run of fsdplint has to be completed" in done.stderr
        assert "`fsdplint --fix .` completes it" in done.stderr
        assert journal.exists() and wrap.read_bytes() == old[wrap]
    done = run("--fix", "train.py")
    assert done.exit_code == 0, done.output
    assert f"{Path('lib', 'wrap.py')}: written now" in done.output
    assert {path: path.read_bytes() for path in (wrap, loop)} == new
    assert not journal.exists()


def test_an_interrupted_write_that_cannot_be_completed(project: Path) -> None:
    loop = project / "lib" / "loop.py"
    journal = leave_journal(project, (loop, b"", b""))
    done = run("--fix", "train.py")
    assert done.exit_code == 2
    assert "loop.py was changed since" in done.output
    assert journal.exists()


def test_a_file_of_settings_is_migrated_with_those_who_use_them(project: Path) -> None:
    """What the file named holds is no finding, and yet it has to change with the others."""
    (project / "lib" / "settings.py").write_text(
        "import torch\nfrom torch.distributed.fsdp import MixedPrecision\n\n"
        "half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)\n"
    )
    wrap = project / "lib" / "wrap.py"
    text = WRAP.replace("FSDP(model)", "FSDP(model, mixed_precision=half)")
    wrap.write_text(f"from lib.settings import half\n{text}")
    assert run("--fix", "--project", "lib/settings.py").exit_code == 0
    after = texts(project)
    assert "half = MixedPrecisionPolicy(param_dtype" in after["lib/settings.py"]
    assert "fully_shard(model, mp_policy=half" in after["lib/wrap.py"]


def test_who_else_uses_what_changes_along_is_looked_at_too(project: Path) -> None:
    """`norms.py` does not speak of FSDP1, changes along with train.py, and eval.py uses it too."""
    (project / "norms.py").write_text("def clip(model):\n    return model.clip_grad_norm_(1.0)\n")
    train = project / "train.py"
    train.write_text(
        TRAIN.replace("    train(model", "    clip(model)\n    train(model").replace(
            "from lib.wrap", "from norms import clip\nfrom lib.wrap"
        )
    )
    (project / "eval.py").write_text(
        train.read_text()
        .replace("from lib.loop import train\n", "")
        .replace("    train(", "    print(")
    )
    done = run("--fix", "--project", "train.py")
    assert done.exit_code == 0, done.output
    assert "clip_grad_norm_(model.parameters(), 1.0)" in (project / "norms.py").read_text()


def test_a_function_of_a_program_that_nobody_calls_is_left_over(project: Path) -> None:
    train = project / "train.py"
    train.write_text(
        TRAIN.replace(
            "def main", "def shard_frozen(model):\n    return FSDP(model)\n\n\ndef main"
        ).replace(
            "import torch\n",
            "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n",
            1,
        )
    )
    assert run("--fix", ".").exit_code == 0
    assert "FSDP(" not in train.read_text()


def test_no_import_of_fsdp1_stays_for_a_star_of_the_package(project: Path) -> None:
    """`__init__.py` speaks of FSDP in a comment, and has all names of wrap.py."""
    (project / "lib" / "__init__.py").write_text("# Everything about FSDP.\nfrom .wrap import *\n")
    assert run("--fix", ".").exit_code == 0
    assert "FullyShardedDataParallel" not in (project / "lib" / "wrap.py").read_text()


SETTINGS = """\
from dataclasses import dataclass

from torch.distributed.fsdp import ShardingStrategy


@dataclass
class NAME:
    strategy: ShardingStrategy = ShardingStrategy.MEMBER
"""


@pytest.fixture
def settings(project: Path) -> Path:
    """The project, with settings of two classes that could be given to `shard` by name."""
    for file, name, member in (("one", "One", "FULL_SHARD"), ("two", "Two", "SHARD_GRAD_OP")):
        text = SETTINGS.replace("NAME", name).replace("MEMBER", member)
        (project / f"{file}.py").write_text(text)
    wrap = project / "lib" / "wrap.py"
    wrap.write_text(
        WRAP.replace("(model):", "(model, settings):").replace(
            "FSDP(model)", "FSDP(model, sharding_strategy=settings.strategy)"
        )
    )
    train = TRAIN.replace("4, 4))", "4, 4), One())")
    train = train.replace("from lib.loop", "from one import One\nfrom lib.loop")
    (project / "train.py").write_text(train)
    return project


def test_settings_that_keep_the_enum_block(settings: Path) -> None:
    """A migration that misses the other class would break a program that gives it by name."""
    before = texts(settings)
    done = run("--fix", "--project", "train.py")
    assert texts(settings) == before
    words = " ".join(done.output.split())
    assert (
        "`strategy` is `ShardingStrategy` in `Two` of two.py too, which no program that wraps a model "
        "imports" in words
    )
    (settings / "two.py").unlink()
    assert run("--fix", "--project", "train.py").exit_code == 0
    assert '"FULL_SHARD"' in (settings / "one.py").read_text()


@pytest.mark.parametrize("named", ["train.py", "other.py", "one.py", "two.py", "lib/wrap.py"])
def test_settings_of_another_script_are_migrated_with_it(settings: Path, named: str) -> None:
    """Both scripts give their settings to the same function: whichever file is named."""
    train = (settings / "train.py").read_text()
    (settings / "other.py").write_text(train.replace("One", "Two").replace("one", "two"))
    done = run("--fix", "--project", named)
    assert done.exit_code == 0, done.output
    for name, text in texts(settings).items():
        assert "ShardingStrategy" not in text, name
    assert 'strategy: str = "SHARD_GRAD_OP"' in (settings / "two.py").read_text()


def test_settings_of_a_program_of_its_own_stay(settings: Path) -> None:
    """Another program has its own function that wraps the model, in a file that it imports."""
    (settings / "own.py").write_text((settings / "lib" / "wrap.py").read_text())
    train = (settings / "train.py").read_text().replace("from lib.loop import train\n", "")
    train = train.replace("One", "Two").replace("one", "two").replace("lib.wrap", "own")
    (settings / "other.py").write_text(train.replace("    train(", "    print("))
    done = run("--fix", "train.py", "one.py", "lib")
    assert done.exit_code == 0, done.output
    assert '"FULL_SHARD"' in (settings / "one.py").read_text()
    assert "ShardingStrategy.SHARD_GRAD_OP" in (settings / "two.py").read_text()
