"""Running a program under torchrun with the recorder, and never waiting for ever."""

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

# Called once a second with the seconds since the start, for people who wait.
Tick = Callable[[float], None]

# Seconds without any work on any rank after which a run is taken to hang.
_STALL = 120.0
# Seconds that the launcher and the imports on the first rank may take: from a cold network disk,
# minutes are usual. The time of the program itself begins after that.
_START = 300.0
# Seconds that a rank is given to write down where it stands.
_ANSWER = 5.0
# Bytes that the record of a rank needs at least.
_ROOM = 1 << 20


@dataclass(frozen=True)
class Launch:
    """What to run and how.

    Attributes:
        target: the script, or the module's name if `module`.
        folder: the current folder of the ranks.
        record: where records and output go.
        torchrun: options for torchrun itself (--nnodes, --rdzv-endpoint, ...); without any it runs
            stand-alone on a free port.
        timeout: seconds that the program may take, from when its first rank has started.
        stall: seconds that all ranks may do nothing at all.
        start: seconds until the first rank has started.
        parameters: gather the full parameters at the end.
        simulate: the number of ranks of which one is simulated, without torchrun.
        oracle: plain data parallelism in place of sharding.
        ranks: of this node.
        nodes: which of how many nodes this is; `record` is a folder that all of them see.
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
        """The worst that happened to a rank."""
        found = {end.status for end in self.ends}
        if not found:
            return "not started"
        order = ("hung", "raised", "exit", "died", "stopped")
        return next((status for status in order if status in found), "ok")


class LaunchError(Exception):
    """The program could not be started at all; the text says why."""


def launch(what: Launch, tick: Tick = lambda seconds: None) -> Run:
    """Run a program to its end, or until it hangs or its time is over. Leaves no process behind.

    Raises:
        LaunchError: torchrun cannot be started, or nothing can be recorded.
    """
    started = time.monotonic()
    log = what.record / f"torchrun{what.nodes.suffix}.txt"
    try:
        what.record.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = _start(what, output)
            problem = _wait(process, what, tick)
    except OSError as error:
        raise LaunchError(f"cannot start torchrun: {error}") from error
    what.nodes.gather(what.record, what.ranks)
    refuse_lost(what.record)
    records = read_records(what.record)
    ends = ends_of(records, what.record, bool(problem), log)
    if not problem and process.returncode < 0:
        problem = f"torchrun was ended by {processes.signal_name(-process.returncode)}"
    run = Run(
        launch=what,
        ends=ends,
        records=records,
        seconds=time.monotonic() - started,
        code=process.returncode,
        problem=problem,
        output=_output(what.record) if what.simulate is None else {0: _tail(log)},
    )
    for end in ends:
        if end.status == "exit" and not end.error:  # what argparse writes, say
            end.error = _output(what.record, "stderr.log").get(end.rank, "")
    if not records and not run.problem:
        texts = [text.strip() for text in run.output.values() if text.strip()]
        text = texts[0] if texts else log.read_text(errors="replace").strip()
        run.problem = f"no rank was started:\n{text[-2000:]}"
    return run


def _start(what: Launch, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start torchrun in a session of its own, so that Ctrl-C is ours alone to handle."""
    here = os.getpid()
    return subprocess.Popen(
        _command(what),
        cwd=what.folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: processes.die_with_parent(here),
    )


def refuse_lost(record: Path) -> None:
    """Raise LaunchError where what happened on a rank could not be written down."""
    for rank, beat in read_beats(record).items():
        if beat.lost:
            raise LaunchError(
                f"the record of rank {rank} could not be written: {beat.lost} (in {record}); "
                "give --keep a folder on another disk, or set TMPDIR to one"
            )
    if not any(record.glob("rank*.jsonl")) and shutil.disk_usage(record).free < _ROOM:
        raise LaunchError(
            f"there is no space left in {record}; give --keep a folder on another disk, or set "
            "TMPDIR to one"
        )


def _command(what: Launch) -> list[str]:
    command = [sys.executable]
    if what.simulate is None:
        options = [*what.torchrun]
        if what.nodes.count > 1 or not options:
            options = [*what.nodes.torchrun(what.record.parent.name), *options]
        command += ["-m", "torch.distributed.run", *options]
        command += ["--nproc-per-node", str(what.ranks)]
        command += ["--redirects", "3", "--log-dir", str(what.record / f"logs{what.nodes.suffix}")]
    command += ["-m", "fsdplint.runtime", "--record", str(what.record), "--device", what.device]
    if what.simulate is not None:
        command += ["--simulate", str(what.simulate)]
    if what.oracle:
        command.append("--oracle")
    if what.steps is not None:
        command += ["--steps", str(what.steps)]
    if what.seed is not None:
        command += ["--seed", str(what.seed)]
    if not what.parameters:
        command.append("--no-parameters")
    if what.module:
        command.append("-m")
    return [*command, what.target, *what.args]


def _environment() -> dict[str, str]:
    env = dict(os.environ)
    # A launcher around us must not make torchrun's ranks think that they belong to it.
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


def _wait(process: subprocess.Popen[bytes], what: Launch, tick: Tick) -> str:
    """Wait for torchrun; end everything where it takes too long. Gives what went wrong."""
    running, started = False, time.monotonic()
    deadline = started + what.start
    family: dict[int, str] = {}
    idleness, checked = processes.Idleness(), 0.0
    problem = ""
    try:
        while process.poll() is None:
            now = time.monotonic()
            if now - checked >= 1.0:
                checked = now
                family.update((pid, processes.started(pid)) for pid in _below(process))
                known = _pids(what.record)
                if known and not running:
                    running, deadline = True, now + what.timeout
                # Of all below torchrun: a rank that is still importing, and what ranks have started
                # (loaders of data), may be what the others wait for.
                idle = idleness.seconds(family if known else ())
                if sys.platform == "linux" and idle > what.stall:
                    problem = f"no rank has done anything for {what.stall:.0f} seconds"
                if any(beat.lost for beat in read_beats(what.record).values()):
                    break
                tick(now - started)
            if now > deadline and running:
                problem = f"still running after {what.timeout:g} seconds"
            elif now > deadline:
                problem = f"no rank has started within {what.start:g} seconds"
            if problem:
                _ask_where(what.record, family)
                break
            time.sleep(0.05)
    finally:
        family.update((pid, processes.started(pid)) for pid in _below(process))
        # A process id is only ours as long as it is the process that we saw started.
        ours = [pid for pid, when in family.items() if processes.started(pid) == when]
        processes.end([pid for pid in ours if processes.alive(pid)])
        if process.poll() is None:
            processes.end([process.pid])
        process.wait()
    return problem


def _below(process: subprocess.Popen[bytes]) -> list[int]:
    return processes.descendants(process.pid)


def _pids(record: Path) -> list[int]:
    """The processes of the ranks, as they wrote them down."""
    found = []
    for path in record.glob("rank*.jsonl"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            match = re.search(rb'"pid": (\d+)', file.readline())
            if match is not None:
                found.append(int(match[1]))
    return found


def _ask_where(record: Path, family: dict[int, str]) -> None:
    """Have every rank write down where it stands; works inside a blocked collective too."""
    pids = [pid for pid in _pids(record) if pid in family]
    processes.send(pids, signal.SIGUSR1)
    until = time.monotonic() + _ANSWER
    while time.monotonic() < until:
        time.sleep(0.3)  # also lets the last line be written to its end
        if sum(path.stat().st_size > 0 for path in record.glob("stack*.txt")) >= len(pids):
            break


# What they printed --------------------------------------------------------------------------------


def _output(record: Path, stream: str = "std*.log") -> dict[int, str]:
    """What each rank printed (to both streams, or to one), by rank."""
    found: dict[int, str] = {}
    for path in sorted(record.glob(f"logs*/*/attempt_*/*/{stream}")):
        with contextlib.suppress(OSError, ValueError):
            rank = int(path.parent.name)
            found[rank] = found.get(rank, "") + _tail(path)
    return found


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-20000:]
