"""The examples of rules that need a GPU: run under torchrun with NCCL, on two ranks.

    python -m pytest tests/gpu

What must hold is what `tests/rules/test_examples.py` asks of the examples that run on a CPU: a bad
program shows its symptom, its fixed program is healthy, good programs end well.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsdplint.registry.example_files import examples_of
from fsdplint.registry.examples import Bad, Good, Symptom, without_markers
from fsdplint.registry.rule import Rule
from fsdplint.registry.rules import all_rules

NEEDS_GPU = "needs a GPU"
SECONDS = 180
RULES = [rule() for rule in all_rules() if any(e.skip == NEEDS_GPU for e in examples_of(rule).bad)]


@functools.cache
def gpus() -> int:
    """How many GPUs there are; asked in a process of its own, which leaves them alone after it."""
    code = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else 0


@pytest.fixture(autouse=True)
def _gpu() -> None:
    if gpus() == 0:
        pytest.skip("no GPU")


def bad_examples() -> Iterator[object]:
    for rule in RULES:
        for example in examples_of(type(rule)).bad:
            if example.skip == NEEDS_GPU:
                yield pytest.param(example, id=f"{rule.code}-{example.name}")


def good_examples() -> Iterator[object]:
    for rule in RULES:
        for example in examples_of(type(rule)).good:
            if example.skip == NEEDS_GPU:
                yield pytest.param(rule, example, id=f"{rule.code}-{example.name}")


# Runs a program after the ranks have shared out the GPUs, if there are fewer than ranks.
SHARING = """\
import os
import runpy
import sys

from fsdplint.runtime.emulation.shared_gpus import share_gpus

share_gpus(int(os.environ["LOCAL_WORLD_SIZE"]))
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def launched(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run a program on two ranks. A rank that waits for ever raises TimeoutExpired."""
    path, launcher = folder / "program.py", folder / "sharing.py"
    path.write_text(without_markers(code), encoding="utf-8")
    launcher.write_text(SHARING, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(launcher), str(path)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def shows(done: subprocess.CompletedProcess[str], symptom: Symptom) -> bool:
    if symptom.raises is not None and not re.search(symptom.raises, done.stderr):
        return False
    return symptom.prints is None or bool(re.search(symptom.prints, done.stdout, re.MULTILINE))


@pytest.mark.parametrize("example", list(bad_examples()))
def test_the_symptom_shows(example: Bad, tmp_path: Path) -> None:
    assert example.symptom is not None
    try:
        done = launched(tmp_path, example.code)
    except subprocess.TimeoutExpired:
        assert example.symptom.hangs
        return
    assert shows(done, example.symptom), done.stdout + done.stderr


@pytest.mark.parametrize("example", list(bad_examples()))
def test_the_fixed_program_is_healthy(example: Bad, tmp_path: Path) -> None:
    if example.fixed is None or example.healthy is None:
        pytest.skip("nothing fixes it")
    done = launched(tmp_path, example.fixed)
    assert done.returncode == 0, done.stderr
    assert re.search(example.healthy, done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize(("rule", "example"), list(good_examples()))
def test_a_good_example_runs(rule: Rule, example: Good, tmp_path: Path) -> None:
    done = launched(tmp_path, example.code)
    assert done.returncode == 0, f"{rule.code}: {example.why}\n{done.stderr}"
