"""Runs many tiny programs on two ranks each, without the recorder and without importing torch twice.

A helper process imports torch, warms it up, and then forks itself for every rank of every program, as
`rank_server` does. So a rank finds torch imported and its caches filled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rank_server
from torch_warm_up import warm_up
from two_ranks import TwoRanks

TIMEOUT = 60.0


@dataclass(frozen=True)
class Ended:
    """How a program ended on two ranks.

    Attributes:
        status: "ok", "raised", "hung" or "aborted", as in `two_ranks`.
        output: the standard output of each rank.
        error: the ends of the standard errors of the ranks that failed.
    """

    status: str
    output: tuple[str, ...]
    error: str
    seconds: float


class PlainRanks(TwoRanks):
    """The helper process, started at the first use.

    Attributes:
        device: where programs for CUDA run: "cpu" (emulated) or "cuda".
    """

    device = "cpu"

    def run_files(
        self, files: Mapping[str, str], timeout: float = TIMEOUT, *, emulate: bool | None = None
    ) -> Ended:
        """Run the first of the files on two ranks.

        emulate: whether the program is for CUDA; by default whether the files mention it.
        """
        if emulate is None:
            emulate = any("cuda" in text for text in files.values())
        self._count += 1
        case = self._folder / f"case{self._count}"
        source, work, record = case / "program", case / "work", case / "record"
        for folder in (source, work, record):
            folder.mkdir(parents=True)
        for name, text in files.items():
            (source / name).write_text(text, encoding="utf-8")
        started = time.monotonic()
        answer = self.ask(
            {
                "script": str(source / next(iter(files))),
                "work": str(work),
                "record": str(record),
                "world": 2,
                "timeout": timeout,
                "device": self.device if emulate else "",
            }
        )
        return _ended(answer, record, time.monotonic() - started)

    def _start(self) -> subprocess.Popen[str]:
        here = Path(__file__).parent
        path = os.pathsep.join([str(here.parent.parent), str(here.parent)])
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            env.pop(name, None)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, __file__], stdin=pipe, stdout=pipe, text=True, env=env
        )


def _ended(answer: list[dict[str, Any]], record: Path, seconds: float) -> Ended:
    statuses = {rank["status"] for rank in answer}
    status = next((s for s in ("hung", "raised", "aborted", "killed") if s in statuses), "ok")

    def text(stream: str, rank: int) -> str:
        path = record / f"{stream}{rank}.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    failed = [rank["rank"] for rank in answer if rank["status"] != "ok"]
    error = "\n".join(
        [f"rank {rank}: {text('stderr', rank)[-3000:]}" for rank in failed]
        + [text("stack", rank["rank"]) for rank in answer if rank["status"] == "hung"]
    )
    return Ended(status, tuple(text("stdout", rank["rank"]) for rank in answer), error, seconds)


# The helper process -------------------------------------------------------------------------------


def _be_rank(
    rank: int, request: dict[str, Any], port_pipe: tuple[int, int], done: int, go: int
) -> None:
    """Everything that a rank does, in the forked process."""
    import faulthandler
    import select
    import signal
    import warnings

    os.setpgid(0, 0)
    rank_server.die_with_parent()
    rank_server.redirect(rank, request["record"])
    os.chdir(request["work"])
    store = rank_server.meet(rank, request, port_pipe)
    stack = open(os.path.join(request["record"], f"stack{rank}.txt"), "w")  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=False, chain=False)
    warnings.simplefilter("ignore")
    if request["device"]:
        from fsdplint.runtime.emulation import activation

        activation.choose(request["device"], 2)
    faulthandler.enable()
    code = _execute(request["script"])
    if code == 0:
        # A peer that is still in a collective would be disturbed.
        os.write(done, b"1")
        select.select([go], [], [], 1.0)
    del store
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _execute(script: str) -> int:
    sys.argv = [script]
    sys.path.insert(0, os.path.dirname(script))
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    module = type(sys)("__main__")
    module.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    try:
        exec(code, module.__dict__)
    except SystemExit as ended:
        return 0 if ended.code in (None, 0) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _main() -> None:
    import warnings

    rank_server.die_with_parent()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch

        torch.set_num_threads(1)
        from fsdplint.runtime.emulation import activation

        activation.install()
        if not torch.cuda.is_available():  # a rank cannot be forked from a process that uses CUDA
            warm_up()
    rank_server.serve(_be_rank)


if __name__ == "__main__":
    _main()
