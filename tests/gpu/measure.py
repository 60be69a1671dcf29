"""All that needs GPUs, as one command of at most ten minutes; writes `tests/gpu/RESULTS.md`.

    python tests/gpu/measure.py [--minutes 9] [--out FILE]

- the fixtures before and after their migration, with NCCL, a rank on each GPU (at most `--ranks`). With one
  GPU also two ranks on it;
- `fsdplint prove` on the programs of other authors (`fixtures/programs/migrations`), two ranks (`proofs.py`);
- FSDP1 against migrated FSDP2 on a transformer of about a billion parameters in bfloat16: time of a step and
  peak of memory, whole processes in turn;
- the examples of the rules that need a GPU (`pytest tests/gpu`).

What does not fit into the time is left out, and the report says so. `--device cpu` rehearses all of it with
a tiny model on emulated devices, and prints the report: its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path[:0] = [str(HERE), str(TESTS), str(TESTS / "migration"), str(TESTS / "runtime")]

import fixture_runs  # noqa: E402
import proofs  # noqa: E402
from comparing import compared  # noqa: E402
from two_ranks import Outcome, TwoRanks  # noqa: E402

from fsdplint.engine.fix import fix  # noqa: E402
from fsdplint.engine.workspace import Workspace  # noqa: E402
from fsdplint.registry.rules import all_rules  # noqa: E402

TINY = ("--dim", "32", "--heads", "2", "--layers", "2", "--vocabulary", "64", "--length", "16")
TINY += ("--batch", "2", "--warmup", "1", "--steps", "2")
ROUNDS = 2
RULES_SECONDS = 120.0
# FSDP1 and FSDP2 gather and reduce with these.
PROBE = """\
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
whole = torch.zeros(4, device="cuda")
dist.all_gather_into_tensor(whole, torch.ones(2, device="cuda"))
part = torch.zeros(2, device="cuda")
dist.reduce_scatter_tensor(part, whole)
dist.all_reduce(part)
dist.broadcast(part, 0)
assert part.tolist() == [4.0, 4.0], part
"""


@dataclass
class Report:
    """The parts of RESULTS.md, in order."""

    lines: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def say(self, *lines: str) -> None:
        self.lines += lines
        print(*lines, sep="\n", flush=True)


@dataclass
class Job:
    """What is asked for, and until when."""

    device: str
    ranks: int
    until: float
    only: str = ""
    workers: int = 4

    @property
    def emulated(self) -> bool:
        return self.device == "cpu"

    def left(self) -> float:
        return self.until - time.monotonic()


def gpus() -> list[str]:
    """The names of the GPUs; asked in a process of its own, which leaves them alone after it."""
    code = "import torch\nfor i in range(torch.cuda.device_count()):"
    code += " print(torch.cuda.get_device_name(i))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def about(job: Job, names: Sequence[str]) -> Iterator[str]:
    import torch

    yield "# What was measured on GPUs"
    yield ""
    yield "Written by `python tests/gpu/measure.py`."
    yield ""
    yield f"- date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC"
    if job.emulated:
        yield "- GPU: none. A rehearsal on emulated devices: no number here means anything."
    else:
        yield f"- GPU: {len(names)} x {names[0]}"
        yield f"- CUDA {torch.version.cuda}, driver {_driver()}"
    yield f"- torch {torch.__version__}, Python {sys.version.split()[0]}"


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.split("\n")[0].strip() or "unknown"


def migrated(files: Mapping[str, str]) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder, name) for name in files}
        for name, text in files.items():
            paths[name].write_text(text, encoding="utf-8")
        result = fix(Workspace(list(paths.values())), [rule() for rule in all_rules()])
        return {name: result.texts.get(path, files[name]) for name, path in paths.items()}


# Fixtures -----------------------------------------------------------------------------------------


def fixtures(job: Job, report: Report) -> None:
    report.say("", f"## Fixtures before and after, {job.ranks} rank(s), NCCL", "")
    _fixtures(job, report, gloo=False)
    if job.ranks > 1 and not job.emulated:
        return
    report.say("", "## Fixtures before and after, 2 ranks", "")
    two = replace(job, ranks=2)
    for gloo in (False, True):
        name = "gloo with CUDA tensors" if gloo else "NCCL"
        probe = _ranks().run({"probe.py": PROBE}, (), two, gloo=gloo)
        if probe.status == "ok":
            report.say(f"Both ranks use the same GPU, with {name}.", "")
            _fixtures(two, report, gloo=gloo)
            return
        error = (probe.error.strip() or str(probe)).splitlines()[-1]
        report.say(f"Not possible with {name}: `{error[:300]}`")


def _fixtures(job: Job, report: Report, gloo: bool) -> None:
    cases = {case.path: case for case in reversed(fixture_runs.CASES)}  # the first of each program
    chosen = [case for case in reversed(cases.values()) if job.only in case.path]
    lots = [chosen[i :: job.workers] for i in range(job.workers)]
    with ThreadPoolExecutor(job.workers) as pool:
        found = pool.map(lambda lot: _lot(lot, job, gloo), lots)
        lines = [line for of_one in found for line in of_one]
    report.say("| program | before and after | seconds |", "|---|---|---|", *sorted(lines))
    bad = [line for line in lines if "| agree" not in line and "| not run" not in line]
    report.failed += bad
    agreed = sum("| agree" in line for line in lines)
    report.say("", f"{agreed} of {len(lines)} agree.")


def _lot(cases: Sequence[fixture_runs.Case], job: Job, gloo: bool) -> list[str]:
    lines = []
    # The kernel ends a helper process together with the thread that started it.
    with contextlib.closing(_Ranks()) as ranks:
        for case in cases:
            began = time.monotonic()
            said = "not run: no time was left"
            if job.left() > 0:
                said = _case(case, job, gloo, ranks)
            lines.append(f"| `{case}` | {said} | {time.monotonic() - began:.0f} |")
    return lines


def _case(case: fixture_runs.Case, job: Job, gloo: bool, ranks: _Ranks) -> str:
    before, after = fixture_runs.texts(case)
    ours = ranks.run(before, case.args, job, gloo)
    theirs = ranks.run(after, case.args, job, gloo)
    for name, outcome in (("before", ours), ("after", theirs)):
        if outcome.status != "ok":
            error = (outcome.error.strip() or outcome.status).splitlines()[-1]
            return f"{name}: {outcome.status}, `{error[:200]}`".replace("|", "/")
    comparison = compared(ours, theirs)
    if comparison.holds:
        return "agree"
    return "differ: " + ", ".join(check.name for check in comparison.differences)


class _Ranks(TwoRanks):
    """Ranks on GPUs, or emulated."""

    def run(  # type: ignore[override]
        self, files: Mapping[str, str], args: Sequence[str], job: Job, gloo: bool = False
    ) -> Outcome:
        env = {"OUT_DIR": "out"}
        if gloo:
            files = {name: text.replace("nccl", "gloo") for name, text in files.items()}
        return super().run(
            files,
            args=args,
            env=env,
            parameters=True,
            timeout=120,
            world=job.ranks,
            device=job.device,
        )


_started: list[_Ranks] = []


def _ranks() -> _Ranks:
    """Those of the main thread; torch is imported once."""
    if not _started:
        _started.append(_Ranks())
    return _started[0]


# FSDP1 against FSDP2 ------------------------------------------------------------------------------


def large(job: Job, report: Report) -> None:
    before = {"large.py": (HERE / "large.py").read_text(encoding="utf-8")}
    texts = {"FSDP1": before, "FSDP2": migrated(before)}
    assert "fully_shard" in texts["FSDP2"]["large.py"]
    found: dict[str, list[dict[str, Any]]] = {"FSDP1": [], "FSDP2": []}
    for _ in range(1 if job.emulated else ROUNDS):
        for name, files in texts.items():
            found[name].append(_one_large(files["large.py"], job))
    size = found["FSDP1"][0]["parameters"]
    report.say(
        "", f"## FSDP1 against FSDP2: {size / 1e9:.2f} B parameters, bf16, {job.ranks} rank(s)", ""
    )
    report.say(
        "| | step, ms (median; fastest) | peak, GiB | first and last loss |", "|---|---|---|---|"
    )
    for name, runs in found.items():
        for run in runs:
            report.say(
                f"| {name} | {run['step_ms']:.1f}; {run['fastest_ms']:.1f} "
                f"| {run['peak_bytes'] / 2**30:.2f} "
                f"| {run['losses'][0]:.4f}, {run['losses'][1]:.4f} |"
            )
    step = _ratio(found, "step_ms")
    peak = "" if job.emulated else f", peak {_ratio(found, 'peak_bytes'):.3f} times"
    report.say("", f"FSDP2 in place of FSDP1: step {step:.3f} times{peak}.")


def _ratio(found: Mapping[str, list[dict[str, Any]]], key: str) -> float:
    first, second = (statistics.median(run[key] for run in found[n]) for n in ("FSDP1", "FSDP2"))
    return second / first


def _one_large(text: str, job: Job) -> dict[str, Any]:
    if job.emulated:
        outcome = _ranks().run({"large.py": text}, TINY, job)
        assert outcome.status == "ok", str(outcome)
        return dict(json.loads(outcome.ranks[0].stdout.splitlines()[-1]))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "large.py")
        script.write_text(text, encoding="utf-8")
        done = _torchrun(job.ranks, str(script), max(60.0, job.left()))
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _torchrun(ranks: int, script: str, timeout: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), script]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


# Rules --------------------------------------------------------------------------------------------


def rules(job: Job, report: Report) -> None:
    report.say("", "## Rules that need a GPU", "")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    command.append(str(HERE / "test_rules_gpu.py"))
    try:
        done = subprocess.run(
            command,
            cwd=TESTS.parent,
            env={**os.environ, "PYTHONPATH": f"{TESTS.parent}:{os.environ.get('PYTHONPATH', '')}"},
            capture_output=True,
            text=True,
            timeout=max(60.0, job.left()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        report.say("Not finished: no time was left.")
        return
    report.say("`pytest tests/gpu`: " + (done.stdout.strip().splitlines() or ["nothing"])[-1])
    if done.returncode:
        report.failed.append("pytest tests/gpu")
        report.say("", "```", *done.stdout.splitlines()[-40:], "```")


def programs(job: Job, report: Report) -> None:
    report.say("", "## Proofs of the programs of other authors, 2 ranks", "")
    lines = proofs.prove_all(job.device, job.only, job.workers, job.left)
    report.say("| program | verdicts | seconds |", "|---|---|---|", *lines)
    report.failed += [line for line in lines if "| proven" not in line and "| not run" not in line]


PARTS = {"large": large, "fixtures": fixtures, "programs": programs, "rules": rules}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--ranks", type=int, help="default: as many as there are GPUs")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", default="", help="fixtures whose name has this in it")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--workers", type=int, default=4, help="fixtures at a time")
    parser.add_argument("--out", type=Path, help="default: RESULTS.md beside this, for real GPUs")
    options = parser.parse_args(argv)
    names = gpus() if options.device == "cuda" else []
    if options.device == "cuda" and not names:
        print("no GPU here; --device cpu rehearses", file=sys.stderr)
        return 2
    ranks = options.ranks or len(names) or 2
    until = time.monotonic() + 60 * options.minutes
    job = Job(options.device, ranks, until, options.only, options.workers)
    report = Report()
    report.say(*about(job, names))
    # Without asking the driver whether there are devices: ranks are forked from this.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    if not job.emulated:
        os.environ["FSDPLINT_IDLE_SECONDS"] = "20"  # NCCL's start is no hang
    try:
        for part in options.parts.split(","):
            left = RULES_SECONDS if part == "fixtures" and "rules" in options.parts else 0.0
            try:
                PARTS[part](replace(job, until=job.until - left), report)
            except Exception:
                report.failed.append(part)
                report.say("", f"Failed: {part}", "```", traceback.format_exc()[-3000:], "```")
    finally:
        for one in _started:
            one.close()
    out = options.out or (None if job.emulated else HERE / "RESULTS.md")
    if out is not None:
        out.write_text("\n".join(report.lines) + "\n", encoding="utf-8")
    print(*report.failed, sep="\n", file=sys.stderr)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
