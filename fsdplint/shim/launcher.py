"""Running a program under torchrun with the recorder, and never waiting for ever."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsdplint.shim import processes
from fsdplint.shim.nodes import Nodes
from fsdplint.shim.records import Line, RankRecord, read_records

# Seconds without any processor time on any rank after which a run is taken to hang.
_STALL = 60.0
# Seconds that the launcher and the imports on the first rank may take: from a cold network disk,
# minutes are usual. The time of the program itself begins after that.
_START = 300.0
# Seconds that a rank is given to write down where it stands.
_ANSWER = 5.0


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
class RankEnd:
    """How the program ended on one rank.

    Attributes:
        status: "ok", "raised", "exit" (a code other than 0), "hung" (it was still running when the
            run was ended), "died" (killed by a signal), "stopped" (because another rank failed).
        where: the user's line: of the exception, or where a hung rank stands.
        last: what it did last, in words.
        error: the traceback.
    """

    rank: int
    status: str
    where: str = ""
    last: str = ""
    error: str = ""


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


def launch(what: Launch) -> Run:
    """Run a program to its end, or until it hangs or its time is over. Leaves no process behind.

    Raises:
        LaunchError: torchrun cannot be started.
    """
    what.record.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    log = what.record / f"torchrun{what.nodes.suffix}.txt"
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                _command(what),
                cwd=what.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=processes.die_with_parent if sys.platform == "linux" else None,
            )
        except OSError as error:
            raise LaunchError(f"cannot start torchrun: {error}") from error
        problem = _wait(process, what)
    what.nodes.gather(what.record, what.ranks)
    records = read_records(what.record)
    run = Run(
        launch=what,
        ends=[],
        records=records,
        seconds=time.monotonic() - started,
        code=process.returncode,
        problem=problem,
        output=_output(what.record) if what.simulate is None else {0: _tail(log)},
    )
    run.ends = _ends(run)
    if not records and not run.problem:
        texts = [text.strip() for text in run.output.values() if text.strip()]
        text = texts[0] if texts else log.read_text(errors="replace").strip()
        run.problem = f"no rank was started:\n{text[-2000:]}"
    return run


def _command(what: Launch) -> list[str]:
    command = [sys.executable]
    if what.simulate is None:
        options = [*what.torchrun]
        if what.nodes.count > 1 or not options:
            options = [*what.nodes.torchrun(what.record.parent.name), *options]
        command += ["-m", "torch.distributed.run", *options]
        command += ["--nproc-per-node", str(what.ranks)]
        command += ["--redirects", "3", "--log-dir", str(what.record / f"logs{what.nodes.suffix}")]
    command += ["-m", "fsdplint.shim", "--record", str(what.record), "--device", what.device]
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
    try:
        importlib.metadata.distribution("fsdplint")
    except importlib.metadata.PackageNotFoundError:
        home = str(Path(__file__).resolve().parents[2])
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [home, env.get("PYTHONPATH", "")]))
    return env


# Waiting ------------------------------------------------------------------------------------------


def _wait(process: subprocess.Popen[bytes], what: Launch) -> str:
    """Wait for torchrun; end everything where it takes too long. Gives what went wrong."""
    running = False
    deadline = time.monotonic() + what.start
    family: dict[int, str] = {}
    usage, changed, checked = -1, time.monotonic(), 0.0
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
                ranks = [pid for pid in known if pid in family]
                # While a rank is still importing, those that wait for it are not hung.
                starting = len(ranks) < (what.ranks if what.simulate is None else 1)
                used = processes.ticks(list(family) if starting else ranks)
                if used != usage or not ranks:
                    usage, changed = used, now
                if sys.platform == "linux" and now - changed > what.stall:
                    problem = f"no rank has done anything for {what.stall:.0f} seconds"
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


# What became of the ranks -------------------------------------------------------------------------


def _ends(run: Run) -> list[RankEnd]:
    ends = [_end(record, run) for record in run.records]
    if any(end.status in ("raised", "exit") for end in ends):
        # torchrun ends all ranks when one fails: the others are not to blame.
        for end in ends:
            if end.status == "died":
                end.status = "stopped"
    return ends


def _end(record: RankRecord, run: Run) -> RankEnd:
    last = describe_last(record)
    if record.end is not None:
        where = record.end.get("error_at")
        return RankEnd(
            record.rank,
            str(record.end["status"]),
            where=f"{where[0]}:{where[1]}" if where else "",
            last=last,
            error=str(record.end.get("traceback", "")),
        )
    where = _stack_line(run.launch.record / f"stack{record.rank}.txt")
    status = "hung" if run.problem else "died"
    return RankEnd(record.rank, status, where=where or _line(record.events), last=last)


def _stack_line(path: Path) -> str:
    """The user's innermost line in a stack that faulthandler wrote."""
    from fsdplint.shim.sites import USER, kind_of

    with contextlib.suppress(OSError):
        text = path.read_text(errors="replace")
        for file, line in re.findall(r'File "([^"]+)", line (\d+)', text):
            if kind_of(file) == USER:
                return f"{file}:{line}"
    return ""


def _line(events: Sequence[Line]) -> str:
    if events and events[-1].get("at"):
        at = events[-1]["at"]
        return f"{at[0]}:{at[1]}"
    return ""


def describe_last(record: RankRecord) -> str:
    """The last event of a rank in words: "collective torch.distributed.barrier at train.py:12"."""
    if not record.events:
        return "nothing"
    event = record.events[-1]
    what = event.get("api") or event.get("via") or ""
    module = record.modules.get(event.get("module") or "")
    subject = f" of {module['class_name']}" if module else ""
    return " ".join(filter(None, [event["kind"], str(what)])) + subject + " at " + _line([event])


def _output(record: Path) -> dict[int, str]:
    """What each rank printed (both streams), by rank."""
    found: dict[int, str] = {}
    for path in sorted(record.glob("logs*/*/attempt_*/*/std*.log")):
        with contextlib.suppress(OSError, ValueError):
            rank = int(path.parent.name)
            found[rank] = found.get(rank, "") + _tail(path)
    return found


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-20000:]
