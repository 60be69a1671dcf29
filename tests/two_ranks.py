"""Runs small training programs on two ranks under the recorder, fast.

torch is imported and warmed up once, in a helper process (`rank_server.py`) that forks itself for
every rank of every program, so that an ordinary case takes a fraction of a second. Use the fixture of the same name:

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
import json
import os
import re
import shutil
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
_SERVER = Path(__file__).with_name("rank_server.py")
# What gloo and the store say when the peer has gone or is busy with another collective.
_TRANSPORT = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|Timed out|timeout|EnforceNotMet|"
    r"Application timeout|wait timeout|op\.preamble|client socket has failed to connect",
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
        noise: float = 0.0,
        beside: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Run a program on `world` ranks and wait for its end, at most `timeout` seconds.

        parameters: also gather the full parameters at the end (`outcome.parameters`).
        continuing: start with the files that an earlier program left in its current folder.
        account: count the bytes of tensors and collectives (`records[0].accounts`).
        simulate: run only rank 0, of so many, without values.
        noise: change gradients by this share before each step.
        beside: the texts of files in the current folder of the program.
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
        for name, text in (beside or {}).items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(text, encoding="utf-8")
        script = source / next(iter(files))
        request = {
            "script": str(script),
            "args": list(args),
            "work": str(work),
            "record": str(record),
            "world": world if simulate is None else 1,
            "account": account,
            "simulate": simulate,
            "noise": noise,
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
        temporary = self._folder / "tmp"
        temporary.mkdir(exist_ok=True)
        env = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": path,
            "TMPDIR": str(temporary),
        }
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            env.pop(name, None)
        return subprocess.Popen(
            [sys.executable, str(_SERVER)],
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
    if not path.exists():
        return ""  # the rank did not come to the program
    for file, line in re.findall(r'File "([^"]+)", line (\d+)', path.read_text(errors="replace")):
        if Path(file).is_relative_to(folder):
            return f"{file}:{line}"
    return ""
