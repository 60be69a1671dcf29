"""Commands of `accelerate launch` in scripts and documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fsdplint.source.launch_commands import Launch, find_launches, launches_in

CONFIG = ("config_file", "fsdp.yaml")


def launch(
    program: str, *options: tuple[str, str], given: tuple[tuple[str, str], ...] = ()
) -> Launch:
    return Launch("run.sh", program, options, given)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("accelerate launch --config_file fsdp.yaml train.py", launch("train.py", CONFIG)),
        ("accelerate launch --config-file=fsdp.yaml src/train.py", launch("src/train.py", CONFIG)),
        ('accelerate launch --config_file "fsdp.yaml" train.py', launch("train.py", CONFIG)),
        ("accelerate launch \\\n  --config_file fsdp.yaml \\\n  train.py", launch("train.py", CONFIG)),
        ("# accelerate launch \\\n#   --config_file fsdp.yaml \\\n#   train.py", launch("train.py", CONFIG)),
        ("Run `accelerate launch --config_file fsdp.yaml train.py`.", launch("train.py", CONFIG)),
        ("python -m accelerate.commands.launch --config_file fsdp.yaml train.py", launch("train.py", CONFIG)),
        ("accelerate launch -m app.train --lr 1", launch("app/train.py", ("m", ""), given=(("lr", "1"),))),
        ("accelerate launch --use_fsdp train.py", launch("train.py", ("use_fsdp", ""))),
        ("A=1 accelerate launch --mixed_precision no train.py --fsdp --lr 1e-5",
         launch("train.py", ("mixed_precision", "no"), given=(("fsdp", ""), ("lr", "1e-5")))),
    ],
)  # fmt: skip
def test_a_command(text: str, found: Launch) -> None:
    assert list(launches_in(text, "run.sh")) == [found]


@pytest.mark.parametrize(
    "text",
    ["accelerate config", "accelerate launch --help", "torchrun train.py", "accelerate test"],
)
def test_no_command(text: str) -> None:
    assert list(launches_in(text, "run.sh")) == []


def test_a_command_above_another_one_has_its_further_lines() -> None:
    text = "# accelerate launch a.py \\\naccelerate launch $X/b.py \\\n  --fsdp\n"
    assert {one.program: one.switched_on for one in launches_in(text, "run.sh")} == {
        "a.py": {"fsdp"},
        "$X/b.py": {"fsdp"},
    }


@pytest.mark.parametrize(
    ("program", "started"),
    [
        ("train.py", {"scripts/train.py"}),  # beside the script
        ("../train.py", {"train.py"}),
        ("main/train.py", {"main/train.py"}),
        ("./main/train.py", {"main/train.py"}),
        ("$DIR/main/train.py", {"main/train.py"}),
        ("tune.py", {"main/tune.py"}),  # the only one
        ("test.py", set()),
        ("$PROGRAM.py", set()),
        ("une.py", set()),
    ],
)
def test_the_program_of_a_command(tmp_path: Path, program: str, started: set[str]) -> None:
    paths = (
        "train.py",
        "scripts/train.py",
        "main/train.py",
        "main/tune.py",
        "a/test.py",
        "test/test.py",
    )
    for path in map(tmp_path.joinpath, paths):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    command = replace(launch(program), file=str(Path("scripts", "run.sh")))
    found = {path for path in paths if command.starts(str(tmp_path / path), str(tmp_path))}
    assert found == started


def test_scripts_of_a_project(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "run.sh").write_text("accelerate launch train.py\n")
    (tmp_path / "README.md").write_text("    accelerate launch --use_fsdp train.py\n")
    (tmp_path / "notes.rst").write_text("accelerate launch other.py\n")
    (tmp_path / "bad.sh").write_bytes(b"accelerate launch \xff.py\n")
    found = [(one.file, one.program) for one in find_launches(str(tmp_path))]
    assert found == [("README.md", "train.py"), (str(Path("scripts", "run.sh")), "train.py")]
