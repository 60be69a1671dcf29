"""Mistyped commands, completion, and the settings of commands that run programs."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from command import run

from fsdplint.cli.main import main
from fsdplint.cli.prove import prove_command, run_command


@pytest.mark.parametrize(
    ("word", "wanted"), [("chekc", "check"), ("migrat", "migrate"), ("valdiate", "validate")]
)
def test_a_mistyped_command(folder: Path, word: str, wanted: str) -> None:
    result = run(word, "train.py")
    assert result.exit_code == 2
    assert f"'{word}' is no command, file or folder. Did you mean '{wanted}'?" in result.output
    (folder / word).mkdir()  # a folder of that name is meant
    assert run(word).exit_code == 0


@pytest.mark.parametrize("word", ["training", "train.py", "src/check", "checkpoints"])
def test_a_missing_path_is_no_command(folder: Path, word: str) -> None:
    result = run(word)
    assert result.exit_code == 2
    assert "no such file or folder" in result.output and "Did you mean" not in result.output


def test_an_option_is_no_command(train: Path) -> None:
    assert run("--baseline", "missing.json", "train.py").exit_code == 2
    assert run("--diff", "train.py").exit_code == 1


def completions(*words: str) -> list[str]:
    complete = ShellComplete(main, {}, "fsdplint", "_FSDPLINT_COMPLETE")
    *before, last = words
    return [item.value for item in complete.get_completions(before, last)]


def test_completion() -> None:
    assert {"FSDP101", "FSDP103"} <= set(completions("rule", "FSDP10"))
    assert completions("rule", "optimizer-before") == ["FSDP103"]
    assert completions("check", "--select", "FSDP101,FSDP103")[0] == "FSDP101,FSDP103"
    assert "FSDP301" in completions("--ignore", "FSDP30")
    assert {"migrate", "plan", "skill"} <= set(completions(""))
    assert "--world-size" in completions("plan", "--wo")


SETTINGS = """
[tool.fsdplint.run]
nproc-per-node = 4
steps = 20
device = "cpu"

[tool.fsdplint.run.arguments]
"train.py" = ["--config", "small.yaml"]
"""


@pytest.mark.parametrize("command", [prove_command, run_command], ids=["prove", "run"])
def test_settings_of_runs(folder: Path, command: click.Command) -> None:
    (folder / "pyproject.toml").write_text(SETTINGS)

    def values(*arguments: str) -> tuple[object, ...]:
        with command.make_context(command.name, list(arguments)) as context:
            names = ("ranks", "steps", "device", "timeout", "args")
            return tuple(context.params[name] for name in names)

    small = ("--config", "small.yaml")
    assert values("train.py") == (4, 20, "cpu", 600.0, small)
    assert values("train.py", "--steps", "3", "--device", "auto") == (4, 3, "auto", 600.0, small)
    # What is the default on the command line is a choice, too.
    assert values("train.py", "--nproc-per-node", "2")[0] == 2
    assert values("train.py", "--", "--epochs", "1")[-1] == ("--epochs", "1")
    assert values("train.py", "--")[-1] == ()
    assert values("other.py")[-1] == ()


def test_wrong_settings_of_runs(folder: Path) -> None:
    (folder / "train.py").touch()
    (folder / "pyproject.toml").write_text("[tool.fsdplint.run]\nsteps = 0\n")
    result = run("prove", "train.py")
    assert result.exit_code == 2
    assert "[tool.fsdplint] run: steps must be a number from 1, is 0" in result.stderr


@pytest.mark.parametrize("command", [prove_command, run_command], ids=["prove", "run"])
def test_options_in_the_spelling_of_torchrun(folder: Path, command: click.Command) -> None:
    arguments = ["--nproc_per_node", "4", "--rdzv_id=a_b", "train.py", "--", "--rdzv_id=x_y"]
    with command.make_context(command.name, arguments) as context:
        assert (context.params["ranks"], context.params["rdzv_id"]) == (4, "a_b")
        assert context.params["args"] == ("--rdzv_id=x_y",)


def test_options_that_only_torchrun_has(folder: Path) -> None:
    (folder / "train.py").touch()
    for given in (["--master_port=29501"], ["--master-port", "29501"]):
        said = run("prove", *given, "train.py").stderr
        assert "option of torchrun: pass it as --torchrun=--master-port=29501" in said
    assert "pass it as --torchrun=--tee\n" in run("run", "--tee", "train.py").stderr
    assert "--standalone is not needed" in run("run", "--standalone", "train.py").stderr
    said = run("run", "train.py", "--learning_rate", "1").stderr
    assert "run train.py -- --learning_rate 1" in said
