"""`fsdplint prove` on copies of the programs in `fixtures/programs/migrations`, several at a time."""

from __future__ import annotations

import collections
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parents[2] / "fixtures" / "programs" / "migrations"


def prove_all(device: str, only: str, workers: int, remaining: Callable[[], float]) -> list[str]:
    """Prove the migrations of the programs whose names have `only` in them.

    Args:
        device: "cuda" or "cpu", as for `fsdplint prove`.
        workers: the number of proofs at a time.
        remaining: gives the seconds that are left; a program is not run if there are none.

    Returns:
        A row of a table for each program: its name, the verdicts of its fixes, seconds.
    """
    names = sorted(path.name for path in PROGRAMS.iterdir() if only in path.name)
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda name: _row(name, device, remaining), names))


def _row(name: str, device: str, remaining: Callable[[], float]) -> str:
    began = time.monotonic()
    seconds = remaining()
    verdicts = "not run: no time was left"
    if seconds > 0:
        with tempfile.TemporaryDirectory() as folder:
            verdicts = _prove(name, Path(folder), device, min(240.0, max(60.0, seconds)))
    return f"| `{name}` | {verdicts} | {time.monotonic() - began:.0f} |"


def _prove(name: str, folder: Path, device: str, seconds: float) -> str:
    copy = folder / name
    shutil.copytree(PROGRAMS / name, copy)
    (copy / "pyproject.toml").touch()
    arguments = (copy / "args.txt").read_text(encoding="utf-8").split()
    data = folder / "proof.json"
    command = [sys.executable, "-m", "fsdplint", "prove", "train.py", "--device", device]
    command += ["--json", str(data), "--", *arguments]
    try:
        done = subprocess.run(
            command, cwd=copy, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end within {seconds:.0f} seconds"
    if not data.exists():
        return _cell((done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1])
    proof = json.loads(data.read_text(encoding="utf-8"))
    return _cell(_summary(proof))


def _summary(proof: dict[str, Any]) -> str:
    """The number of each verdict ("proven" alone if all are), and the first difference."""
    verdicts = collections.Counter(fix["verdict"] for fix in proof["fixes"])
    counts = ", ".join(f"{count} {name}" for name, count in sorted(verdicts.items()))
    if not verdicts:
        return "not run: no fix"
    if proof["proven"]:
        return f"proven ({counts})"
    for name in ("before", "after"):
        for rank in proof[name]["ranks"] if proof[name]["status"] != "ok" else ():
            if rank["error"]:
                return f"{counts}; {name}: {rank['error'].strip().splitlines()[-1]}"
    bad = [check for check in proof["checks"] if check["holds"] is False and check["binding"]]
    return "; ".join([counts, *(f"{check['name']}: {check['detail']}" for check in bad[:2])])


def _cell(text: str) -> str:
    return text[:300].replace("|", "/")
