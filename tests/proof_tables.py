"""Running `fsdplint prove` on a program as a user would, and a row of a table of what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
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


def prove(
    name: str,
    script: Path,
    args: Sequence[str],
    options: Sequence[str],
    env: Mapping[str, str] | None = None,
) -> Result:
    """Prove a script in its own folder, where `proof.json` and `proof.txt` say what came of it.

    args: those of the script. options: those of `fsdplint prove`.
    """
    found = Result(name)
    report = script.parent / "proof.json"
    command = [sys.executable, "-m", "fsdplint", "prove", script.name, "--json", report.name]
    began = time.monotonic()
    done = subprocess.run(
        [*command, *options, "--", *args],
        cwd=script.parent,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    found.seconds = time.monotonic() - began
    found.code = done.returncode
    (script.parent / "proof.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    if not report.exists():
        found.problem = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1][:200]
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
