"""The process that forks itself for every rank of a program, and watches the ranks.

It reads one request a line, in JSON, and answers with the status of each rank: "ok", "raised", "aborted"
(killed by a signal), "hung", or "killed" because its peer has failed. `two_ranks.py` starts it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_IDLE_SECONDS = float(os.environ.get("FSDPLINT_IDLE_SECONDS", "1.5"))
_GRACE_SECONDS = 2.5
_STALL_SECONDS = 1.0

# What a forked process does as a rank: gets the rank, the request, the pipe by which rank 0 tells the
# others its port, the end of a pipe to write to when the program is done, and one that is closed then.
BeRank = Callable[[int, dict[str, Any], tuple[int, int], int, int], None]


def serve(be_rank: BeRank) -> None:
    """Answer one request a line until the standard input ends."""
    do_not_ask_name_servers()
    for line in sys.stdin:
        print(json.dumps(_supervise(json.loads(line), be_rank)), flush=True)


def do_not_ask_name_servers() -> None:
    """Have the C library send no query to name servers, in this process and those that it starts.

    torch's store asks for the name of each peer's address when the peer connects. Where no server
    answers, all ranks wait for five seconds, which looks like a hang.
    """
    os.environ["RES_OPTIONS"] = "attempts:0"


def die_with_parent() -> None:
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
    closed: bool = False  # nobody writes to `done` any more: it ends
    failed: bool = False
    status: str = "running"


def _supervise(request: dict[str, Any], be_rank: BeRank) -> list[dict[str, Any]]:
    port_pipe = os.pipe()
    children = [_fork(rank, request, port_pipe, be_rank) for rank in range(request["world"])]
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


def _fork(
    rank: int, request: dict[str, Any], port_pipe: tuple[int, int], be_rank: BeRank
) -> _Child:
    done, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(done[0])
            os.close(go[1])
            be_rank(rank, request, port_pipe, done[1], go[0])
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(70)
    os.close(done[1])
    os.close(go[0])
    os.set_blocking(done[0], False)
    return _Child(rank, pid, done[0], go[1])


def _be_recorded_rank(
    rank: int, request: dict[str, Any], port_pipe: tuple[int, int], done: int, go: int
) -> None:
    """Everything that a rank under the recorder does, in the forked process."""
    os.setpgid(0, 0)
    die_with_parent()
    redirect(rank, request["record"])
    os.chdir(request["work"])
    keep = meet(rank, request, port_pipe)
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
        noise=request.get("noise", 0.0),
    )
    if options.simulate is not None:
        runner.as_rank_0_of(options.simulate)
    runner.start(options)
    code = runner.run(options)
    if code == 0:
        # Wait until all ranks are done: a peer that is still in a collective would be disturbed.
        os.write(done, b"1")
        select.select([go], [], [], 1.0)
    del keep
    runner.exit_process(code, pause=0)


def redirect(rank: int, folder: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(
            os.path.join(folder, f"{name}{rank}.txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644
        )
        os.dup2(file, number)


def meet(rank: int, request: dict[str, Any], port_pipe: tuple[int, int]) -> Any:
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
    leading: list[int] = []
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
        if now - checked > _STALL_SECONDS:
            idle_since = None  # this process stood still as well: the machine did
        if failed_at is None and any(child.failed for child in children):
            failed_at = now
        if now - checked >= 0.25:
            ranks = [child.pid for child in alive]
            before, leading = leading, [_cpu(pid) for pid in ranks]
            if leading == before:
                groups = _members(ranks)  # which reads about all processes of the machine
                current = [sum(_cpu(pid) for pid in groups)]
                idle = current == usage and all(_asleep(pid) for pid in groups)
                idle_since = (idle_since or now) if idle else None
                usage = current
            else:
                idle_since = None
            checked = now
        hung = idle_since is not None and now - idle_since > _IDLE_SECONDS
        if hung or now > deadline:
            _stop(alive, "hung")
            return
        if failed_at is not None and now - failed_at > _GRACE_SECONDS:
            _stop(alive, "killed")
            return
        _wait_for_news(alive)


def _wait_for_news(alive: list[_Child]) -> None:
    """Wait until a rank has come to its end, or for a moment."""
    ending = any(child.closed for child in alive)
    pipes = [child.done for child in alive if not child.closed]
    select.select(pipes, [], [], 0.005 if ending else 0.05)


def _poll(child: _Child) -> None:
    if child.status != "running":
        return
    if not child.closed:
        with contextlib.suppress(BlockingIOError):
            text = os.read(child.done, 1)
            child.finished, child.closed = child.finished or text == b"1", not text
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


def _main() -> None:
    die_with_parent()
    from fsdplint.runtime.launch.runner import prepare

    prepare()
    import torch
    from torch_warm_up import warm_up

    torch.set_num_threads(1)
    if not torch.cuda.is_available():  # a rank cannot be forked from a process that uses CUDA
        warm_up()
    serve(_be_recorded_rank)


if __name__ == "__main__":
    _main()
