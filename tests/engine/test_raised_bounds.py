"""Migrations of projects whose requirements allow a torch without FSDP2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsdplint.config.command_line import CommandLine
from fsdplint.engine.changes import Changes
from fsdplint.engine.migration import MigrationRun
from fsdplint.engine.operations import check_files, fix_files
from fsdplint.engine.session import Session
from fsdplint.source.files import read_bytes

PROGRAM = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("nccl")
torch.cuda.set_device(0)
model = FSDP(torch.nn.Linear(4, 4))
"""


def _fixed(folder: Path, name: str, content: str, target: str | None = None) -> Changes:
    (folder / ".git").mkdir()
    (folder / name).write_bytes(content.encode())
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text(PROGRAM)
    return fix_files(Session([folder / "src" / "train.py"], CommandLine(target_torch=target)))


RAISED = {
    "a line": ("requirements.txt", "numpy\ntorch>=2.1\n", "numpy\ntorch>=2.6\n"),
    "three numbers, a comment, CRLF": (
        "requirements.txt",
        "# torch>=2.1.0\r\ntorch >= 2.1.0  # tested\r\n",
        "# torch>=2.1.0\r\ntorch >= 2.6.0  # tested\r\n",
    ),
    "a bound that is excluded": ("requirements.txt", "torch>2.0,<3\n", "torch>=2.6,<3\n"),
    "a compatible release": ("requirements.txt", "torch~=2.1\n", "torch~=2.6\n"),
    "pyproject": (
        "pyproject.toml",
        '[project]\nname = "x"\ndependencies = ["torch>=2", "numpy"]\n'
        '[project.optional-dependencies]\nall = ["torch>=2"]\n',
        '[project]\nname = "x"\ndependencies = ["torch>=2.6", "numpy"]\n'
        '[project.optional-dependencies]\nall = ["torch>=2.6"]\n',
    ),
    "setup.cfg": (
        "setup.cfg",
        "[options]\ninstall_requires =\n    torch>=1.13.1\n    torchvision>=0.14\n",
        "[options]\ninstall_requires =\n    torch>=2.6.0\n    torchvision>=0.14\n",
    ),
}


@pytest.mark.parametrize(("name", "before", "after"), list(RAISED.values()), ids=list(RAISED))
def test_a_lower_bound_is_raised(tmp_path: Path, name: str, before: str, after: str) -> None:
    changes = _fixed(tmp_path, name, before)
    assert {path.name for path in changes.contents} == {name, "train.py"}
    assert changes.contents[tmp_path / name] == (before.encode(), after.encode())


KEPT = {
    "a pin": "torch==2.1.0\n",
    "an upper bound": "torch>=2.1,<2.4\n",
    "a compatible patch release": "torch~=2.1.0\n",
    "a library that goes with an older torch": "torch>=2.1\ntorchvision==0.16.0\n",
}


@pytest.mark.parametrize("content", list(KEPT.values()), ids=list(KEPT))
def test_a_pin_is_a_question(tmp_path: Path, content: str) -> None:
    changes = _fixed(tmp_path, "requirements.txt", content)
    assert not changes.contents
    (finding,) = changes.result.findings
    assert "the fix needs torch 2.6; requirements.txt asks for torch" in finding.blocker


@pytest.mark.parametrize("content", ["torch>=2.6\n", "numpy\n", "torch\n"])
def test_other_requirements_stay(tmp_path: Path, content: str) -> None:
    changes = _fixed(tmp_path, "requirements.txt", content)
    assert {path.name for path in changes.contents} == {"train.py"}


def test_target_torch_answers_the_question(tmp_path: Path) -> None:
    changes = _fixed(tmp_path, "requirements.txt", "torch==2.1.0\n", "2.9")
    assert {path.name for path in changes.contents} == {"train.py"}


def test_the_report_names_the_bound(tmp_path: Path) -> None:
    _fixed(tmp_path, "requirements.txt", "torch>=2.1\n")
    run = MigrationRun([tmp_path / "src" / "train.py"], None).migrate()
    (section,) = run.report.sections
    assert not section.obstacles and not section.outside
    assert [
        one.after for one in section.changes if one.titles == ["Require a torch with FSDP2"]
    ] == [["torch>=2.6"]]
    assert read_bytes(tmp_path / "requirements.txt") == b"torch>=2.1\n"


HOOK = (
    PROGRAM
    + """\
model.register_comm_hook(None, print)
print(model._flat_param.shape)
print(model._flat_param.numel())
"""
)
PIN = "the fix needs torch 2.6; requirements.txt asks for torch==2.1"


def _report(folder: Path, program: str, *, assist: bool) -> list[str]:
    (folder / ".git").mkdir()
    (folder / "requirements.txt").write_text("torch==2.1\n")
    (folder / "train.py").write_text(program)
    migrated = MigrationRun([folder / "train.py"], assist=assist).migrate()
    (section,) = migrated.report.sections
    assert section.is_blocked and not migrated.contents
    return [one.reason for one in section.obstacles]


@pytest.mark.parametrize("assist", [False, True])
def test_a_pin_hides_no_other_blocker(tmp_path: Path, assist: bool) -> None:
    """It is named last, and an assisted migration does not promise what the pin prevents."""
    reasons = _report(tmp_path, HOOK, assist=assist)
    assert ["register_comm_hook" in one for one in reasons] == [True, False, False, False]
    assert ["_flat_param" in one for one in reasons] == [False, True, True, False]
    assert reasons[-1].startswith(PIN)


def test_a_check_names_the_same_blockers_each_once(tmp_path: Path) -> None:
    _report(tmp_path, HOOK, assist=False)
    found = check_files(Session([tmp_path / "train.py"], CommandLine())).findings
    helps = [one.help for one in found if one.rule.code == "FSDP201"]
    (text,) = [one for one in helps if "because of" in one]
    assert text.count("register_comm_hook") == text.count("_flat_param") == text.count(PIN) == 1
    assert text.index("register_comm_hook") < text.index("_flat_param") < text.index(PIN)
    assert "train.py:8 (" in text and "train.py:9, 10 (" in text


def test_the_file_is_shown_as_the_program_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fixed(tmp_path, "requirements.txt", "torch>=2.1\n")
    monkeypatch.chdir(tmp_path / "src")
    run = MigrationRun([Path("train.py")], None).migrate()
    (section,) = run.report.sections
    shown = {change.place.path for change in section.changes}
    assert shown == {"train.py", os.path.join("..", "requirements.txt")}
