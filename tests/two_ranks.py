"""Runs small training programs on two ranks under the recorder, fast.

torch is imported and warmed up once, in a helper process that forks itself for every rank of every
program, so that an ordinary case takes a fraction of a second. Use the fixture of the same name:

    def test_no_sync(two_ranks):
        outcome = two_ranks.run('''
            import torch.distributed as dist
            dist.init_process_group("gloo")
            ...
        ''')
        assert outcome.status == "raised"
        assert "no_sync" in outcome.error
        findings = list(MyRule().check(outcome.trace))      # a runtime trace
        assert [f.site.location().line for f in findings] == [12]

`run` takes the program's text (indentation is removed), or a dict of file names and texts whose
first one is run. The program finds RANK, WORLD_SIZE, MASTER_PORT, ... in its environment as under
torchrun, and an empty folder of its own as the current one. An `Outcome` has:

    status   "ok", "raised" (some rank ended with an exception), "hung" (some rank waited for ever),
             "aborted" (some rank was killed by a signal, as gloo does when its peer is elsewhere)
    error    the tracebacks of all ranks that raised
    stdout, stderr   of all ranks; `outcome.ranks[1].stdout` for one
    ranks    per rank: status (also "killed": stopped because its peer failed), stdout, stderr,
             error, where (for a hung rank: the user's file and line)
    trace    the merged fsdplint.trace.Trace
    records  the raw records (with measures)
    path     the program's path as it stands in the trace's sites

and `outcome.shows(symptom)` tells whether a `fsdplint.rule.Symptom` was seen.

A hang is noticed when no rank has used the CPU for a second and a half, so a program must not
sleep; a collective gives up after 20 seconds in any case.

What the programs write is removed with `close`, at the end of the process, or, if it was killed, by
the next process that runs programs.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsdplint.registry.examples import Symptom
    from fsdplint.runtime.launch.records import RankRecord
    from fsdplint.trace import Trace

_ROOT = Path(__file__).resolve().parent.parent
_IDLE_SECONDS = float(os.environ.get("FSDPLINT_IDLE_SECONDS", "1.5"))
_GRACE_SECONDS = 2.5
# What gloo and the store say when the peer has gone or is busy with another collective.
_TRANSPORT = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|Timed out|timeout|EnforceNotMet|"
    r"Application timeout|wait timeout|op\.preamble",
    re.IGNORECASE,
)


@dataclass
class RankOutcome:
    """How the program ended on one rank, and what it printed."""

    rank: int
    status: str
    stdout: str = ""
    stderr: str = ""
    error: str = ""
    where: str = ""


@dataclass
class Outcome:
    """How a program ended on all ranks; see the module's docstring."""

    path: str
    ranks: list[RankOutcome]
    records: list[RankRecord]
    trace: Trace
    seconds: float
    folder: Path | None = None
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        found = {rank.status for rank in self.ranks}
        return next((s for s in ("hung", "aborted", "raised", "killed") if s in found), "ok")

    @property
    def error(self) -> str:
        return "\n".join(rank.error for rank in self.ranks if rank.error)

    @property
    def stdout(self) -> str:
        return "".join(rank.stdout for rank in self.ranks)

    @property
    def stderr(self) -> str:
        return "".join(rank.stderr for rank in self.ranks)

    @property
    def stuck(self) -> bool:
        """Whether a rank waited for ever, or the transport broke because its peer was elsewhere."""
        return self.status in ("hung", "aborted") or bool(_TRANSPORT.search(self.error))

    def shows(self, symptom: Symptom) -> bool:
        """Whether all that a symptom names was seen."""
        if symptom.raises is not None and not re.search(symptom.raises, self.error):
            return False
        if symptom.prints is not None and not re.search(symptom.prints, self.stdout, re.MULTILINE):
            return False
        return self.stuck or not symptom.hangs

    def __str__(self) -> str:
        parts = [f"{self.status} after {self.seconds:.1f} s"]
        for rank in self.ranks:
            parts.append(f"--- rank {rank.rank}: {rank.status} {rank.where}")
            parts.extend(text for text in (rank.stdout, rank.stderr[-3000:]) if text)
        return "\n".join(parts)


class TwoRanks:
    """The helper process, started at the first use."""

    def __init__(self) -> None:
        from fsdplint.runtime.launch.workplace import workplace

        self._process: subprocess.Popen[str] | None = None
        self._stack = contextlib.ExitStack()
        self._folder = self._stack.enter_context(workplace("ranks", None))
        self._count = 0
        atexit.register(self.close)

    def run(
        self,
        program: str | Mapping[str, str],
        *,
        args: Sequence[str] = (),
        timeout: float = 300.0,
        world: int = 2,
        device: str = "cpu",
        steps: int | None = None,
        parameters: bool = False,
        env: Mapping[str, str] | None = None,
        continuing: Outcome | None = None,
        account: bool = False,
        simulate: int | None = None,
    ) -> Outcome:
        """Run a program on `world` ranks and wait for its end, at most `timeout` seconds.

        parameters: also gather the full parameters at the end (`outcome.parameters`).
        continuing: start with the files that an earlier program left in its current folder.
        account: count the bytes of tensors and collectives (`records[0].accounts`).
        simulate: run only rank 0, of so many, without values.
        """
        files = {"program.py": program} if isinstance(program, str) else dict(program)
        self._count += 1
        case = self._folder / f"case{self._count}"
        source, work, record = case / "program", case / "work", case / "record"
        for folder in (source, work, record):
            folder.mkdir(parents=True)
        if continuing is not None and continuing.folder is not None:
            shutil.copytree(continuing.folder / "work", work, dirs_exist_ok=True)
        for name, text in files.items():
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), encoding="utf-8")
        script = source / next(iter(files))
        request = {
            "script": str(script),
            "args": list(args),
            "work": str(work),
            "record": str(record),
            "world": world if simulate is None else 1,
            "account": account,
            "simulate": simulate,
            "timeout": timeout,
            "device": device,
            "steps": steps,
            "parameters": parameters,
            "env": dict(env or {}),
        }
        started = time.monotonic()
        answer = self.ask(request)
        outcome = _outcome(script, record, work, answer, time.monotonic() - started)
        outcome.folder = case
        return outcome

    def ask(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Have the helper run what is asked for; gives the status of each rank."""
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = self._start()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the helper process that forks the ranks has died; see its stderr")
        return list(json.loads(line))

    def _start(self) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            env.pop(name, None)
        return subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    def close(self) -> None:
        """End the helper process and remove all that the programs wrote."""
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None
        self._stack.close()


def _outcome(
    script: Path, record: Path, work: Path, answer: list[dict[str, Any]], seconds: float
) -> Outcome:
    from fsdplint.runtime.launch.merge import merge
    from fsdplint.runtime.launch.records import read_records

    records = read_records(record)
    ends = {r.rank: r.end for r in records}
    ranks = []
    for entry in answer:
        rank = int(entry["rank"])
        end = ends.get(rank) or {}
        status = entry["status"]
        if end.get("status") == "ok":
            # What happens to the process after the program has ended is not the program's doing.
            status = "ok"
        elif end and status == "aborted":
            status = "raised"
        where = ""
        if status == "hung":
            where = _user_line(record / f"stack{rank}.txt", script.parent)
        ranks.append(
            RankOutcome(
                rank=rank,
                status=status,
                stdout=(record / f"stdout{rank}.txt").read_text(errors="replace"),
                stderr=(record / f"stderr{rank}.txt").read_text(errors="replace"),
                error=str(end.get("traceback", "")),
                where=where,
            )
        )
    outcome = Outcome(str(script), ranks, records, merge(records), seconds)
    if (record / "parameters.pt").exists():
        import torch

        outcome.parameters = torch.load(record / "parameters.pt")
    return outcome


def _user_line(path: Path, folder: Path) -> str:
    """file:line of the innermost frame of the program in a stack that faulthandler wrote."""
    for file, line in re.findall(r'File "([^"]+)", line (\d+)', path.read_text(errors="replace")):
        if Path(file).is_relative_to(folder):
            return f"{file}:{line}"
    return ""


# The helper process -------------------------------------------------------------------------------


def _serve() -> None:
    """Answer one request a line until the standard input ends."""
    _die_with_parent()
    from fsdplint.runtime.launch.runner import prepare

    prepare()
    import torch
    from torch_warm_up import warm_up

    torch.set_num_threads(1)
    warm_up()
    for line in sys.stdin:
        answer = _supervise(json.loads(line))
        print(json.dumps(answer), flush=True)


def _die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@dataclass
class _Child:
    rank: int
    pid: int
    done: int  # readable when the program has come to its end
    go: int  # closed to let the process end
    finished: bool = False
    failed: bool = False
    status: str = "running"


def _supervise(request: dict[str, Any]) -> list[dict[str, Any]]:
    port_pipe = os.pipe()
    children = [_fork(rank, request, port_pipe) for rank in range(request["world"])]
    for end in port_pipe:
        os.close(end)
    try:
        _watch(children, request)
    finally:
        for child in children:
            _kill(child)
            os.close(child.done)
            if child.go >= 0:
                os.close(child.go)
    return [{"rank": child.rank, "status": child.status} for child in children]


def _fork(rank: int, request: dict[str, Any], port_pipe: tuple[int, int]) -> _Child:
    done, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(done[0])
            os.close(go[1])
            _be_rank(rank, request, port_pipe, done[1], go[0])
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(70)
    os.close(done[1])
    os.close(go[0])
    os.set_blocking(done[0], False)
    return _Child(rank, pid, done[0], go[1])


def _be_rank(
    rank: int, request: dict[str, Any], port_pipe: tuple[int, int], done: int, go: int
) -> None:
    """Everything that a rank does, in the forked process."""
    os.setpgid(0, 0)
    _die_with_parent()
    _redirect(rank, request["record"])
    os.chdir(request["work"])
    keep = _meet(rank, request, port_pipe)
    os.environ.update(request["env"])
    from fsdplint.runtime.launch import runner

    options = runner.Options(
        record=request["record"],
        device=request["device"],
        steps=request["steps"],
        target=request["script"],
        args=tuple(request["args"]),
        parameters=request["parameters"],
        account=request.get("account", False),
        simulate=request["simulate"],
        seed=request.get("seed"),
        oracle=request.get("oracle", False),
    )
    if options.simulate is not None:
        runner.as_rank_0_of(options.simulate)
    runner.start(options)
    code = runner.run(options)
    if code == 0:
        # Wait until all ranks are done: a peer that is still in a collective would be disturbed.
        os.write(done, b"1")
        import select

        select.select([go], [], [], 1.0)
    del keep
    runner.exit_process(code, pause=0)


def _redirect(rank: int, folder: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(
            os.path.join(folder, f"{name}{rank}.txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644
        )
        os.dup2(file, number)


def _meet(rank: int, request: dict[str, Any], port_pipe: tuple[int, int]) -> Any:
    """Set the environment of torchrun. Rank 0 holds the store, on a port that is surely free."""
    from torch.distributed import TCPStore

    store, world = None, request["world"]
    if rank == 0:
        store = TCPStore("127.0.0.1", 0, world, is_master=True, wait_for_workers=False)
        os.write(port_pipe[1], f"{store.port:06d}".encode() * (world - 1))
        port = store.port
    else:
        port = int(os.read(port_pipe[0], 6))
    for end in port_pipe:
        os.close(end)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(world),
        GROUP_RANK="0",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_RESTART_COUNT="0",
        TORCHELASTIC_RUN_ID="none",
        FSDPLINT_GROUP_TIMEOUT="20",
    )
    return store


def _watch(children: list[_Child], request: dict[str, Any]) -> None:
    """Wait until all ranks have ended, or must be ended."""
    deadline = time.monotonic() + request["timeout"]
    failed_at: float | None = None
    idle_since: float | None = None
    usage: list[int] = []
    checked = time.monotonic()
    while True:
        for child in children:
            _poll(child)
        alive = [child for child in children if child.status == "running"]
        if not alive:
            return
        if all(child.finished or child.status != "running" for child in children):
            for child in children:
                if child.go >= 0:
                    os.close(child.go)
                    child.go = -1
        now = time.monotonic()
        if failed_at is None and any(child.failed for child in children):
            failed_at = now
        if now - checked >= 0.25:
            groups = _members([child.pid for child in alive])
            current = [sum(_cpu(pid) for pid in groups)]
            idle = current == usage and all(_asleep(pid) for pid in groups)
            idle_since = (idle_since or now) if idle else None
            usage, checked = current, now
        hung = idle_since is not None and now - idle_since > _IDLE_SECONDS
        if hung or now > deadline:
            _stop(alive, "hung")
            return
        if failed_at is not None and now - failed_at > _GRACE_SECONDS:
            _stop(alive, "killed")
            return
        time.sleep(0.005)


def _poll(child: _Child) -> None:
    if child.status != "running":
        return
    if not child.finished:
        with contextlib.suppress(BlockingIOError):
            child.finished = os.read(child.done, 1) == b"1"
    pid, code = os.waitpid(child.pid, os.WNOHANG)
    if pid == 0:
        return
    if os.WIFSIGNALED(code):
        child.status = "aborted"
    else:
        child.status = "ok" if os.WEXITSTATUS(code) == 0 else "raised"
    child.failed = child.status != "ok" and not child.finished


def _stop(children: list[_Child], status: str) -> None:
    """Have these ranks write down where they stand, then kill them."""
    for child in children:
        with contextlib.suppress(OSError):
            os.kill(child.pid, signal.SIGUSR1)
    time.sleep(0.1)
    for child in children:
        # All stop before the first is killed, or the others would raise for want of their peer.
        with contextlib.suppress(OSError):
            os.kill(child.pid, signal.SIGSTOP)
    for child in children:
        child.status = status
        _kill(child)


def _kill(child: _Child) -> None:
    """Kill a rank with all that it started; the group may outlive the rank itself."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child.pid, 0)


def _members(leaders: list[int]) -> list[int]:
    """The ranks and all that they started: the processes of their groups."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(fields[2]) in leaders:
                    found.append(int(entry.name))
    return found


def _cpu(pid: int) -> int:
    """Clock ticks that a process has used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return -1
    return int(fields[11]) + int(fields[12])


def _asleep(pid: int) -> bool:
    """Whether no thread of a process is running or waits for a processor."""
    try:
        states = [
            (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
            for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return False
    return all(state == "S" for state in states)


if __name__ == "__main__":
    _serve()
