"""What runs fsdplint elsewhere: hooks of pre-commit, the action, and the snippets of the page on CI."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
BAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

model = nn.Linear(4, 4)
fully_shard(model)
loss = model.forward(torch.randn(2, 4)).sum()
"""
PARTS = ("fsdplint", "rules", "pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml")


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def committed(folder: Path) -> str:
    git(folder, "init", "-q")
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "--no-verify", "-m", "x")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def hooks(tmp_path: Path) -> tuple[Path, str]:
    """A repository with what is here now, and its commit."""
    folder = tmp_path / "hooks"
    folder.mkdir()
    leave_out = shutil.ignore_patterns("__pycache__")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=leave_out, symlinks=True)
        else:
            shutil.copy(ROOT / part, folder / part)
    if (folder / "fsdplint" / "rules").is_symlink():  # of a checkout without installation
        (folder / "fsdplint" / "rules").unlink()
    return folder, committed(folder)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_hooks(tmp_path: Path, hooks: tuple[Path, str]) -> None:
    pytest.importorskip("pre_commit")
    repository, commit = hooks
    user = tmp_path / "user"
    user.mkdir()
    (user / "train.py").write_text(BAD)
    (user / "odd name.py").write_text("x = 1\n")
    (user / "vendor.py").write_text(BAD)
    (user / "pyproject.toml").write_text('[tool.fsdplint]\nexclude = ["vendor.py"]\n')
    (user / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {repository}\n  rev: {commit}\n"
        "  hooks:\n  - id: fsdplint\n    args: [--output-format, concise]\n  - id: fsdplint-fix\n"
    )
    committed(user)
    packages = sysconfig.get_paths()["purelib"]
    environment = {
        **os.environ,
        "PRE_COMMIT_HOME": str(tmp_path / "home"),
        "PRE_COMMIT_COLOR": "never",
        # What the hook needs is installed here; nothing is fetched.
        "PYTHONPATH": packages,
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # no isolation, in spite of the number
        "VIRTUALENV_NO_PERIODIC_UPDATE": "1",
    }

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", "--all-files"],
            cwd=user,
            env=environment,
            capture_output=True,
            text=True,
        )

    first = run()
    output = first.stdout + first.stderr
    assert first.returncode == 1, output
    found = re.findall(r"^(.+):7:8: FSDP101", output, re.MULTILINE)
    assert found == ["train.py"], output
    assert re.search(r"^fsdplint --fix\.+Failed\n.*\n- files were modified", output, re.MULTILINE)
    assert (user / "train.py").read_text() == BAD.replace(".forward", "")
    assert (user / "vendor.py").read_text() == BAD
    second = run()
    assert second.returncode == 0, second.stdout
    assert re.findall(r"^fsdplint.*\.(\w+)$", second.stdout, re.MULTILINE) == ["Passed", "Passed"]


# GitHub and GitLab --------------------------------------------------------------------------------


def validate(schema: str, text: str) -> None:
    """Check YAML against a schema that check-jsonschema brings."""
    vendored = resources.files("check_jsonschema.builtin_schemas.vendor") / f"{schema}.json"
    rules = json.loads(vendored.read_text(encoding="utf-8"))
    validator = jsonschema.validators.validator_for(rules)(rules)
    validator.validate(YAML(typ="safe").load(text))


def snippets() -> list[str]:
    text = (ROOT / "docs" / "editors-and-ci.md").read_text(encoding="utf-8")
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


def test_the_snippets_for_ci() -> None:
    (gitlab,) = (one for one in snippets() if "codequality" in one)
    validate("gitlab-ci", gitlab)
    with pytest.raises(jsonschema.ValidationError):
        validate("gitlab-ci", gitlab.replace("when: always", "when: sometimes"))
    workflows = [one for one in snippets() if "actions/checkout" in one]
    assert len(workflows) == 2
    action = YAML(typ="safe").load((ROOT / "action.yml").read_text())
    for steps in workflows:
        job = "on: push\njobs:\n  check:\n    runs-on: ubuntu-latest\n"
        validate("github-workflows", job + re.sub("^", "    ", steps, flags=re.MULTILINE))
        used = YAML(typ="safe").load(steps)["steps"][-1]["with"]
        assert set(used) <= set(action["inputs"])


def test_the_action_is_one() -> None:
    text = (ROOT / "action.yml").read_text()
    validate("github-actions", text)
    with pytest.raises(jsonschema.ValidationError):
        validate("github-actions", text.replace("shell: bash", "", 1))


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("version", ["", "0.1.0"])
def test_the_steps_of_the_action(tmp_path: Path, version: str) -> None:
    """They are run as the runner would, with a Python that only takes down what it is asked."""
    action = YAML(typ="safe").load((ROOT / "action.yml").read_text())
    install, check, summarise = action["runs"]["steps"]
    temporary, tools = tmp_path / "temp dir", tmp_path / "tools"
    temporary.mkdir()
    tools.mkdir()
    asked = tmp_path / "asked"
    python = tools / "python3"
    python.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" >> "{asked}"\n'
        'if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi\n'
    )
    python.chmod(0o755)
    (tmp_path / "src dir").mkdir()
    (tmp_path / "src dir" / "train.py").write_text(BAD)
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(temporary),
        "GITHUB_ACTION_PATH": "/the action",
        "GITHUB_WORKSPACE": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "VERSION": version,
    }

    def step(one: dict[str, str], **more: str) -> subprocess.CompletedProcess[str]:
        # As the runner calls a step whose shell is bash.
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", one["run"]],
            cwd=tmp_path,
            env={**environment, **more},
            capture_output=True,
            text=True,
        )

    assert step(install).returncode == 0
    wanted = "fsdplint==0.1.0" if version else "/the action"
    assert asked.read_text().splitlines() == [
        f"-m venv {temporary}/fsdplint",
        f"-m pip install --quiet {wanted}",
    ]
    if version:
        return
    program = temporary / "fsdplint" / "bin" / "fsdplint"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fsdplint "$@"\n')
    program.chmod(0o755)
    inputs = {name: one["default"] for name, one in action["inputs"].items()}
    format_of = {"FSDPLINT_OUTPUT_FORMAT": inputs["output-format"]}
    found = step(check, ARGS=inputs["args"], **format_of)
    assert found.returncode == 1, found.stderr
    where = f"{tmp_path}/src dir/train.py"
    assert found.stdout.startswith(
        f"::error title=fsdplint (FSDP101),file={where},line=7,col=8,endLine=7,endColumn="
    )
    quiet = step(check, ARGS="--ignore FSDP101 .", **format_of)
    assert (quiet.returncode, quiet.stdout) == (0, "")
    # One more line, and a name with a space.
    lines = "--ignore 'FSDP101'\n\n  \"src dir/train.py\"\n"
    quiet = step(check, ARGS=lines, **format_of)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    # The summary of the job, and the comment on the pull request, which is renewed.
    summary, calls = tmp_path / "summary.md", tmp_path / "calls"
    (tmp_path / "proof.md").write_text("## Proof of `train.py`\n")
    gh = tools / "gh"
    gh.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" >> "{calls}"\n'
        f'case "$*" in *--paginate*) cat "{tmp_path}/ids" 2>/dev/null; true;; esac\n'
    )
    gh.chmod(0o755)
    given = {
        "ARGS": ".",
        "SUMMARY": "true",
        "COMMENT": "true",
        "PROOF": "proof.md",
        "PULL_REQUEST": "7",
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_REPOSITORY": "o/r",
    }
    assert step(summarise, **given).returncode == 0
    text = summary.read_text()
    assert text.startswith("<!-- fsdplint -->\n## fsdplint\n")
    assert "| error | `src dir/train.py:7` | [FSDP101](" in text
    assert text.endswith("\n## Proof of `train.py`\n")
    body = f"body=@{temporary}/fsdplint.md"
    first, second = calls.read_text().splitlines()
    assert first.startswith("api --paginate repos/o/r/issues/7/comments --jq ")
    assert second == f"api --method POST repos/o/r/issues/7/comments -F {body}"
    (tmp_path / "ids").write_text("31\n32\n")
    assert step(summarise, **given).returncode == 0
    renewed = calls.read_text().splitlines()[-1]
    assert renewed == f"api --method PATCH repos/o/r/issues/comments/31 -F {body}"
    calls.unlink()
    assert step(summarise, **given | {"PULL_REQUEST": "", "SUMMARY": "false"}).returncode == 0
    assert not calls.exists() and summary.read_text() == text + text
    program.write_text('#!/bin/sh\nfor one; do echo "<$one>"; done\n')
    assert step(check, ARGS="").stdout.splitlines() == ["<check>"]
    split = step(check, ARGS='--a "b c"\nd\\ e \'f "g\'').stdout.splitlines()
    assert split == ["<check>", "<--a>", "<b c>", "<d e>", '<f "g>']
    unclosed = step(check, ARGS="'src")
    assert unclosed.returncode == 1
    assert (unclosed.stdout, "unmatched" in unclosed.stderr) == ("", True)
