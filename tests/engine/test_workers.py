"""Groups of files, examined by themselves and in several processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsdplint.config.command_line import CommandLine
from fsdplint.engine import workers
from fsdplint.engine.checker import Checker
from fsdplint.engine.group_check import GroupChecker
from fsdplint.engine.group_result import GroupResult
from fsdplint.engine.operations import check_files, fix_files
from fsdplint.engine.session import Session

WRAP = """from torch.distributed.fsdp import fully_shard


def wrap(model):
    fully_shard(model)
    return model
"""
TRAIN = """import torch
from lib{n} import wrap

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
wrap(model)
model.forward(torch.ones(1, 2))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "setup.py").write_text("")
    for n in range(4):
        (tmp_path / f"lib{n}.py").write_text(WRAP)
        (tmp_path / f"train{n}.py").write_text(TRAIN.format(n=n))
    return tmp_path


def told(**how: Any) -> list[tuple[str, int, str, str]]:
    result = check_files(Session([Path()]), **how)
    assert not result.problems
    return [
        (one.site.path, one.site.location().line, one.rule.code, one.message)
        for one in result.findings
    ]


def test_groups_are_examined_in_several_processes_as_in_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = told()
    assert {(path, code) for path, _, code, _ in alone} >= {("train0.py", "FSDP101")}
    assert len({path for path, *_ in alone}) == 4
    monkeypatch.setattr(workers, "WORTH_A_PROCESS", 1)
    ids = folder / "ids"
    ids.mkdir()
    real = GroupChecker.check

    def noted(self: GroupChecker, paths: list[Path]) -> GroupResult:
        (ids / f"{os.getpid()}").touch()
        return real(self, paths)

    monkeypatch.setattr(GroupChecker, "check", noted)
    assert told(processes=2) == alone
    assert str(os.getpid()) not in {path.name for path in ids.iterdir()}


def numbered(groups: list[Path]) -> GroupResult:
    return GroupResult(files=[f"{groups[0]} in {os.getpid()}"])


def in_processes(
    monkeypatch: pytest.MonkeyPatch, examine: Callable[[Any], GroupResult]
) -> list[str]:
    """The names of seven groups, and by which process each was examined."""
    monkeypatch.setattr(workers, "WORTH_A_PROCESS", 1)
    monkeypatch.setattr(workers, "_size", lambda path: 10)
    groups = [[Path(str(n))] for n in range(7)]
    return [one.files[0] for one in workers.check_groups(groups, examine, 2)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are forked on Linux")
def test_a_process_that_is_killed_takes_nothing_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.getpid()

    def deadly(group: list[Path]) -> GroupResult:
        if group[0].name in ("0", "3") and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return numbered(group)

    found = in_processes(monkeypatch, deadly)
    assert [one.split()[0] for one in found] == list("0123456")
    assert [n for n, one in enumerate(found) if one.endswith(f" {here}")] == [0, 3]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are forked on Linux")
def test_a_process_that_grew_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LARGE", 0)
    found = in_processes(monkeypatch, numbered)
    assert [one.split()[0] for one in found] == list("0123456")
    assert len({one.split()[-1] for one in found} - {str(os.getpid())}) == 7


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are forked on Linux")
def test_an_interruption_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(connections: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("multiprocessing.connection.wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_processes(monkeypatch, lambda group: time.sleep(60) or GroupResult())
    assert multiprocessing.active_children() == []


def test_fixes_are_the_same_for_all_at_once_and_one_by_one(folder: Path) -> None:
    line = CommandLine(unsafe_fixes=True)
    whole = fix_files(Session([Path()], line)).texts
    assert len(whole) == 4
    for n in range(4):
        alone = fix_files(Session([Path(f"train{n}.py"), Path(f"lib{n}.py")], line)).texts
        assert alone == {path: texts for path, texts in whole.items() if str(n) in path.name}


def test_a_defect_in_another_process_is_a_problem_of_its_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsdplint.engine import examine

    monkeypatch.setattr(workers, "WORTH_A_PROCESS", 1)
    real = examine.check

    def check(program: object, *arguments: object) -> object:
        if "lib2.py" in program.sources:  # type: ignore[attr-defined]
            raise AssertionError("a hole")
        return real(program, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(examine, "check", check)
    result = check_files(Session([Path()]), processes=2)
    assert {one.path for one in result.problems} == {"lib2.py", "train2.py"}
    assert {one.site.path for one in result.findings} >= {"train0.py", "train1.py", "train3.py"}


def test_an_outcome_is_the_same_when_it_was_written_down(folder: Path) -> None:
    (folder / "old.py").write_text(
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "model = FSDP(torch.nn.Linear(2, 2), device_id=0)\n"
        "if USE:\n    model.forward(torch.ones(1, 2))\n"
    )
    for outcome in Checker(Session([Path()], CommandLine(unsafe_fixes=True))).group_results():
        again = GroupResult.from_data(json.loads(json.dumps(outcome.as_data())))
        assert again.found == outcome.found
        assert again.files == outcome.files
        assert again.problems == outcome.problems
