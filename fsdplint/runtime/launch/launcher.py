"""Runs a program under torchrun with the recorder, within time limits."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fsdplint.runtime.launch import processes
from fsdplint.runtime.launch.endings import RankEnd, ends_of
from fsdplint.runtime.launch.machines import Nodes
from fsdplint.runtime.launch.records import RankRecord, read_records
from fsdplint.runtime.recorder.heartbeat import read_beats

# Called once a second with the seconds since the start, to show progress.
Tick = Callable[[float], None]

# Seconds without work on any rank after which a run counts as hung.
_STALL = 120.0
# Seconds for the launcher and the imports on the first rank: minutes are usual with a cold network
# disk. The time limit of the program starts afterwards.
_START = 300.0
# Seconds to wait until ranks have written their stacks.
_ANSWER = 5.0
# The least number of free bytes for a rank's record.
_ROOM = 1 << 20


@dataclass(frozen=True)
class Launch:
    """What to run and how.

    Attributes:
        target: the script, or the module's name if `module`.
        folder: the current folder of the ranks.
        record: where records and output go.
        torchrun: options for torchrun itself (--nnodes, --rdzv-endpoint, ...); without options it
            runs stand-alone on a free port.
        timeout: the most seconds of the program, counted from the start of its first rank.
        stall: the most seconds without work on any rank.
        start: the most seconds until the first rank starts.
        parameters: whether to gather the full parameters at the end.
        simulate: simulate one of this number of ranks, without torchrun.
        oracle: use plain data parallelism instead of sharding.
        noise: the share by which gradients are changed before each step; 0 for none.
        ranks: the ranks of this node.
        nodes: which of how many nodes this is; all nodes share the folder `record`.
    """

    target: str
    folder: Path
    record: Path
    args: tuple[str, ...] = ()
    module: bool = False
    ranks: int = 2
    timeout: float = 600.0
    stall: float = _STALL
    start: float = _START
    device: str = "auto"
    steps: int | None = None
    seed: int | None = None
    torchrun: tuple[str, ...] = ()
    parameters: bool = True
    simulate: int | None = None
    oracle: bool = False
    noise: float = 0.0
    nodes: Nodes = field(default_factory=Nodes)

    @property
    def world(self) -> int:
        """The ranks of all nodes."""
        return self.ranks * self.nodes.count


@dataclass
class Run:
    """One run of a program on all ranks."""

    launch: Launch
    ends: list[RankEnd]
    records: list[RankRecord]
    seconds: float
    code: int | None
    problem: str = ""
    output: dict[int, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return bool(self.ends) and all(end.status == "ok" for end in self.ends)

    @property
    def status(self) -> str:
        """The worst status of a rank."""
        found = {end.status for end in self.ends}
        if not found:
            return "not started"
        order = ("hung", "raised", "exit", "died", "stopped")
        return next((status for status in order if status in found), "ok")


class LaunchError(Exception):
    """The program could not be started or recorded; the text says why."""


def launch(job: Launch, tick: Tick = lambda seconds: None) -> Run:
    """Run a program until it ends, hangs or exceeds its time. Leaves no process behind.

    Raises:
        LaunchError: torchrun cannot be started, or a record cannot be written.
    """
    begin_time = time.monotonic()
    log = job.record / f"torchrun{job.nodes.suffix}.txt"
    try:
        job.record.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = _start(job, output)
            problem = _wait(process, job, tick)
    except OSError as error:
        raise LaunchError(f"cannot start torchrun: {error}") from error
    job.nodes.gather(job.record, job.ranks)
    check_record_written(job.record)
    records = read_records(job.record)
    ends = ends_of(records, job.record, bool(problem), log)
    if not problem and process.returncode < 0:
        problem = f"torchrun was ended by {processes.signal_name(-process.returncode)}"
    run = Run(
        launch=job,
        ends=ends,
        records=records,
        seconds=time.monotonic() - begin_time,
        code=process.returncode,
        problem=problem,
        output=_output(job.record) if job.simulate is None else {0: _tail(log)},
    )
    for end in ends:
        if end.status == "exit" and not end.error:  # for example the usage of argparse
            end.error = _output(job.record, "stderr.log").get(end.rank, "")
    if not records and not run.problem:
        texts = [text.strip() for text in run.output.values() if text.strip()]
        text = texts[0] if texts else log.read_text(errors="replace").strip()
        run.problem = f"no rank was started:\n{text[-2000:]}"
    return run


def _start(job: Launch, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start torchrun in its own session, so that only this process gets Ctrl-C."""
    here = os.getpid()
    return subprocess.Popen(
        _command(job),
        cwd=job.folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: processes.die_with_parent(here),
    )


def check_record_written(record: Path) -> None:
    """Check that all ranks could write their records.

    Raises:
        LaunchError: a record could not be written, or the disk is full.
    """
    for rank, beat in read_beats(record).items():
        if beat.write_error:
            raise LaunchError(
                f"the record of rank {rank} could not be written: {beat.write_error} (in "
                f"{record}); give --keep a folder on another disk, or set TMPDIR to one"
            )
    if not any(record.glob("rank*.jsonl")) and shutil.disk_usage(record).free < _ROOM:
        raise LaunchError(
            f"there is no space left in {record}; give --keep a folder on another disk, or set "
            "TMPDIR to one"
        )


def _command(job: Launch) -> list[str]:
    command = [sys.executable]
    if job.simulate is None:
        options = [*job.torchrun]
        if job.nodes.count > 1 or not options:
            options = [*job.nodes.torchrun(job.record.parent.name), *options]
        command += ["-m", "torch.distributed.run", *options]
        command += ["--nproc-per-node", str(job.ranks)]
        command += ["--redirects", "3", "--log-dir", str(job.record / f"logs{job.nodes.suffix}")]
    command += ["-m", "fsdplint.runtime", "--record", str(job.record), "--device", job.device]
    if job.simulate is not None:
        command += ["--simulate", str(job.simulate)]
    if job.oracle:
        command.append("--oracle")
    if job.noise:
        command += ["--noise", str(job.noise)]
    if job.steps is not None:
        command += ["--steps", str(job.steps)]
    if job.seed is not None:
        command += ["--seed", str(job.seed)]
    if not job.parameters:
        command.append("--no-parameters")
    if job.module:
        command.append("-m")
    return [*command, job.target, *job.args]


def _environment() -> dict[str, str]:
    env = dict(os.environ)
    # If this process itself runs under a launcher, torchrun's ranks must not join that job.
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK"):
        env.pop(name, None)
    env.setdefault("OMP_NUM_THREADS", "1")
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env[processes.LAUNCHED] = "1"
    try:
        importlib.metadata.distribution("fsdplint")
    except importlib.metadata.PackageNotFoundError:
        home = str(Path(__file__).resolve().parents[3])
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [home, env.get("PYTHONPATH", "")]))
    return env


# Waiting ------------------------------------------------------------------------------------------


def _wait(process: subprocess.Popen[bytes], job: Launch, tick: Tick) -> str:
    """Wait for torchrun, and end all processes at a time limit; returns the problem, or ""."""
    running, begin_time = False, time.monotonic()
    deadline = begin_time + job.start
    family: dict[int, str] = {}
    idleness, checked = processes.Idleness(), 0.0
    problem = ""
    try:
        while process.poll() is None:
            now = time.monotonic()
            if now - checked >= 1.0:
                checked = now
                family.update((pid, processes.start_time(pid)) for pid in _descendants(process))
                known = _pids(job.record)
                if known and not running:
                    running, deadline = True, now + job.timeout
                # Count all descendants of torchrun: ranks may wait for a rank that is importing, or
                # for processes that ranks have started (data loaders).
                idle = idleness.seconds(family if known else ())
                if sys.platform == "linux" and idle > job.stall:
                    problem = f"no rank has done anything for {job.stall:.0f} seconds"
                if any(beat.write_error for beat in read_beats(job.record).values()):
                    break
                tick(now - begin_time)
            if now > deadline and running:
                problem = f"still running after {job.timeout:g} seconds"
            elif now > deadline:
                problem = f"no rank has started within {job.start:g} seconds"
            if problem:
                _request_stacks(job.record, family)
                break
            time.sleep(0.05)
    finally:
        family.update((pid, processes.start_time(pid)) for pid in _descendants(process))
        # The system may reuse the id of a process: compare the start times.
        own = [pid for pid, when in family.items() if processes.start_time(pid) == when]
        processes.end([pid for pid in own if processes.alive(pid)])
        if process.poll() is None:
            processes.end([process.pid])
        process.wait()
    return problem


def _descendants(process: subprocess.Popen[bytes]) -> list[int]:
    return processes.descendants(process.pid)


def _pids(record: Path) -> list[int]:
    """The process ids in the records of the ranks."""
    found = []
    for path in record.glob("rank*.jsonl"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            match = re.search(rb'"pid": (\d+)', file.readline())
            if match is not None:
                found.append(int(match[1]))
    return found


def _request_stacks(record: Path, family: dict[int, str]) -> None:
    """Make every rank write its stack, even in a blocked collective."""
    pids = [pid for pid in _pids(record) if pid in family]
    processes.send(pids, signal.SIGUSR1)
    until = time.monotonic() + _ANSWER
    while time.monotonic() < until:
        time.sleep(0.3)  # the last line may not be complete yet
        if sum(path.stat().st_size > 0 for path in record.glob("stack*.txt")) >= len(pids):
            break


# Output -------------------------------------------------------------------------------------------


def _output(record: Path, stream: str = "std*.log") -> dict[int, str]:
    """The output of each rank, to both streams or to one, by rank."""
    found: dict[int, str] = {}
    for path in sorted(record.glob(f"logs*/*/attempt_*/*/{stream}")):
        with contextlib.suppress(OSError, ValueError):
            rank = int(path.parent.name)
            found[rank] = found.get(rank, "") + _tail(path)
    return found


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-20000:]
