"""Running `fsdplint prove` on a program as a user would, and a row of a table of what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HEADER = (
    "| program | fixes | exit code | steps | what differs | seconds |\n|---|---|---|---|---|---|"
)


@dataclass
class Result:
    """What became of a program; `problem` where there is no proof."""

    name: str
    verdicts: Counter[str] = field(default_factory=Counter)
    code: int = -1
    steps: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    problem: str = ""

    def line(self) -> str:
        verdicts = ", ".join(f"{count} {name}" for name, count in sorted(self.verdicts.items()))
        cells = [self.name, verdicts or self.problem, str(self.code), str(self.steps)]
        cells += ["; ".join(self.failed) or "-", f"{self.seconds:.0f}"]
        return "| " + " | ".join(cells) + " |"


Run = Callable[[Sequence[str], Path], tuple[int, str]]


def in_a_process(
    command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run fsdplint in a folder; gives its exit code and what it wrote."""
    done = subprocess.run(
        [sys.executable, "-m", "fsdplint", *command],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def prove(
    name: str,
    script: Path,
    args: Sequence[str],
    options: Sequence[str],
    run: Run = in_a_process,
) -> Result:
    """Prove a script in its own folder, where `proof.json` and `proof.txt` say what came of it.

    args: those of the script. options: those of `fsdplint prove`. run: how it is run.
    """
    found = Result(name)
    report = script.parent / "proof.json"
    command = ["prove", script.name, "--json", report.name, *options, "--", *args]
    began = time.monotonic()
    found.code, written = run(command, script.parent)
    found.seconds = time.monotonic() - began
    (script.parent / "proof.txt").write_text(written, encoding="utf-8")
    if not report.exists():
        found.problem = (written.strip().splitlines() or ["nothing was written"])[-1][:200]
        return found
    proof = json.loads(report.read_text(encoding="utf-8"))
    found.verdicts = Counter(fix["verdict"] for fix in proof["fixes"])
    found.steps = max(
        (len(rank) for rank in (proof.get("before") or {}).get("steps", [])), default=0
    )
    found.failed = [
        check["name"] for check in proof["checks"] if check["binding"] and check["holds"] is False
    ]
    return found
