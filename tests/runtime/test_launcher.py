"""Programs that hang, crash or end under torchrun: named, ended, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fsdplint.runtime.launch import processes
from fsdplint.runtime.launch.endings import ends_of
from fsdplint.runtime.launch.launcher import Launch, Run, launch
from fsdplint.runtime.launch.records import RankRecord

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
        '    raise ValueError("no\\ndata")\n'
        "dist.barrier()\n",
    )
    assert not result.ok
    raised = {end.rank: end for end in result.ends}[1]
    assert raised.status == "raised" and raised.where.endswith("program.py:6")
    assert raised.cause == "ValueError: no data"
    assert "ValueError: no\ndata" in raised.error and "ValueError: no" in result.output[1]


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ('print("done")\n', "ok", 0),
        ('sys.stderr.write("give --config"); sys.exit(3)\n', "exit", 1),
        ("os.kill(os.getpid(), 9)\n", "died", 1),
    ],
)
def test_how_a_program_ends(tmp_path: Path, text: str, status: str, code: int) -> None:
    result = run(tmp_path, text, ranks=1)
    assert (result.status, result.code) == (status, code)
    assert result.ok == (status == "ok")
    (end,) = result.ends
    if status == "exit":
        assert (end.cause, end.error) == ("exit code 3", "give --config")
        assert end.where.endswith("program.py:4")


def test_what_waits_takes_a_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, used = [0.0], [0]
    monkeypatch.setattr(processes.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(processes, "clock_ticks", lambda pids: used[0])
    idleness, hundredth = processes.Idleness(), os.sysconf("SC_CLK_TCK") / 100
    seen = []
    for second, busy in enumerate([0, 90, 90, 0, 1, 0, 1, 90, 0, 1]):
        now[0] = float(second)
        used[0] += int(busy * hundredth)
        seen.append(idleness.seconds([1, 2]))
    assert seen == [0, 0, 0, 1, 2, 3, 4, 0, 1, 2]
    assert idleness.seconds([]) == 0  # nobody there yet


def test_torchrun_is_killed(tmp_path: Path) -> None:
    text = "os.kill(os.getppid(), 9)\nwhile True:\n    time.sleep(0.01)\n"
    result = run(tmp_path, text, ranks=1)
    assert (result.status, result.code) == ("died", -9)
    assert result.problem == "torchrun was ended by SIGKILL"


TOLD = """\
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 100)  (SIGTERM)
[2]:
  rank      : 2 (local_rank: 2)
  exitcode  : -11 (pid: 102)  (SIGSEGV)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 101)  (SIGKILL)
"""


def test_who_died_and_who_was_only_stopped(tmp_path: Path) -> None:
    log = tmp_path / "torchrun.txt"
    log.write_text(TOLD)
    records = [RankRecord(rank, 3, {"pid": 100 + rank}) for rank in range(3)]
    ends = ends_of(records, tmp_path, False, log)
    assert [end.status for end in ends] == ["stopped", "died", "died"]
    assert ends[1].error == "killed by SIGKILL"
    assert ends[2].error == "killed by SIGSEGV"


# It tells its rank's process where the test looks, which a copy of it would not.
WAITING = """\
import os, sys, time
with open(sys.argv[1] + ".part", "w") as file:
    print(os.getpid(), *sys.argv[2:], file=file)
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(1000)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_fsdplint_itself_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    program, temporary, told = tmp_path / "train.py", tmp_path / "tmp", tmp_path / "told"
    program.write_text(WAITING)
    temporary.mkdir()
    command = [sys.executable, "-m", "fsdplint", "prove", "train.py", "--against", "train.py"]
    with subprocess.Popen(
        [*command, "--nproc-per-node", "1", "--", str(told), "--epochs", "3", "-v"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
        # Whatever started the tests in the background may have them ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        while not told.exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.05)
        family = processes.descendants(process.pid)
        rank, *arguments = told.read_text().split()
        assert int(rank) in family
        assert arguments == ["--epochs", "3", "-v"]
        process.send_signal(number)
        process.wait()
        if number == signal.SIGKILL:
            assert process.returncode == -number
            while any(processes.alive(pid) for pid in family):  # the kernel ends them
                time.sleep(0.05)
        else:
            assert process.returncode == 128 + number
            assert not any(processes.alive(pid) for pid in family)
            assert not list(temporary.glob("fsdplint-*"))
            assert process.stderr is not None
            assert "stopped; ending the ranks" in process.stderr.read()
