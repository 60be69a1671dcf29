"""Programs that hang, crash or end under torchrun: named, ended, nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsdplint.shim import processes
from fsdplint.shim.launcher import Launch, Run, launch

START = "import os, sys, time\nimport torch\nimport torch.distributed as dist\n"


def run(tmp_path: Path, text: str, **options: object) -> Run:
    script = tmp_path / "program.py"
    script.write_text(START + text)
    values: dict[str, object] = {"timeout": 60.0, **options}
    before = set(processes.descendants(os.getpid()))
    result = launch(
        Launch(target=str(script), folder=tmp_path, record=tmp_path / "record", **values)  # type: ignore[arg-type]
    )
    left = set(processes.descendants(os.getpid())) - before
    assert not [pid for pid in left if processes.alive(pid)], "processes are left behind"
    return result


def test_a_hang_is_named_on_each_rank(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        'dist.init_process_group("gloo")\n'
        "if dist.get_rank() == 0:\n"
        "    dist.barrier()\n"
        "else:\n"
        "    time.sleep(1000)\n",
        stall=5.0,
    )
    assert not result.ok and result.status == "hung"
    assert result.problem == "no rank has done anything for 5 seconds"
    assert [end.status for end in result.ends] == ["hung", "hung"]
    assert [end.where.rpartition("/")[2] for end in result.ends] == ["program.py:6", "program.py:8"]
    assert "torch.distributed.barrier" in result.ends[0].last
    assert "process-group-init" in result.ends[1].last


def test_an_endless_loop_ends_with_its_time(tmp_path: Path) -> None:
    result = run(tmp_path, "while True:\n    pass\n", ranks=1, timeout=5.0)
    assert result.status == "hung"
    assert result.problem == "still running after 5 seconds"
    assert result.ends[0].where.rpartition("/")[2] in ("program.py:4", "program.py:5")


def test_the_time_begins_when_a_rank_has_started(tmp_path: Path) -> None:
    result = run(tmp_path, 'print("done")\n', ranks=1, timeout=0.0, start=0.0)
    assert result.status == "not started"
    assert result.problem == "no rank has started within 0 seconds"


def test_a_rank_that_raises_and_one_that_dies(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        'dist.init_process_group("gloo")\n'
        "if dist.get_rank() == 1:\n"
        '    raise ValueError("no data")\n'
        "dist.barrier()\n",
    )
    assert not result.ok
    raised = {end.rank: end for end in result.ends}[1]
    assert raised.status == "raised" and raised.where.endswith("program.py:6")
    assert "ValueError: no data" in raised.error
    assert "no data" in result.output[1]


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ('print("done")\n', "ok", 0),
        ("sys.exit(3)\n", "exit", 1),
        ("os.kill(os.getpid(), 9)\n", "died", 1),
    ],
)
def test_how_a_program_ends(tmp_path: Path, text: str, status: str, code: int) -> None:
    result = run(tmp_path, text, ranks=1)
    assert (result.status, result.code) == (status, code)
    assert result.ok == (status == "ok")
