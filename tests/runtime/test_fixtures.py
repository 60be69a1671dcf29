"""Every FSDP1 fixture trains after its migration as it did before, on two ranks (most with `--full-matrix` only).

Where a program can go on from a checkpoint, both forms of it go on from what either of them has saved.
A program that runs with and without CUDA devices is also written for CUDA and NCCL alone (`cuda_form.py`),
migrated in that form, and emulated: that trains to the bit as the program itself does without emulation.
"""

from __future__ import annotations

import math
from pathlib import Path

import fixture_runs
import pytest
import torch
from comparing import compared
from cuda_form import cuda_form
from fixture_runs import CASES, KERNELS, NOISE, OUT, ROUNDED, Case
from two_ranks import Outcome, TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

# The first case of each program that also runs without CUDA.
BOTH = tuple({case.path: case for case in reversed(CASES) if "cuda" not in case.path}.values())
OTHERS = tuple(case for case in CASES if case not in BOTH)
# What it draws on CUDA devices is drawn for whole parameters; without, each rank seeds its own part.
DRAWS_OTHERWISE = "fsdp2/meta_init.py"
# FSDP1 and FSDP2 put a parameter at different addresses. On some processors, a matrix product takes
# another kernel there, whose result differs in the last places.
LAST_PLACES = 1e-6
FSDP2 = {name: files for name, files in fixture_runs.programs(("fsdp2",)).items()}


def run(
    two_ranks: TwoRanks,
    files: dict[str, str],
    args: tuple[str, ...],
    first: Outcome | None = None,
    device: str = "cpu",
) -> Outcome:
    env = {"OUT_DIR": "out"}
    outcome = two_ranks.run(
        files, args=args, env=env, parameters=True, continuing=first, device=device
    )
    assert outcome.status == "ok", str(outcome)
    assert [record.troubles for record in outcome.records] == [[], []]
    return outcome


def run_without_cuda(two_ranks: TwoRanks, files: dict[str, str], args: tuple[str, ...]) -> Outcome:
    """As the program runs by itself on a machine without a CUDA device: nothing is emulated."""
    return run(two_ranks, files, args, device="cuda")


def losses_apart(before: Outcome, after: Outcome) -> float:
    """How far the losses are apart, relative to their size."""
    return max(
        abs(x - y) / abs(x)
        for ours, theirs in zip(before.records, after.records, strict=True)
        for a, b in zip(ours.measures, theirs.measures, strict=True)
        for x, y in zip(a["losses"], b["losses"], strict=True)
    )


def parameters_apart(before: Outcome, after: Outcome) -> float:
    """How far all parameters together are apart, relative to their size."""
    difference = size = 0.0
    for name, value in before.parameters.items():
        size += float(value.double().square().sum())
        difference += float((value.double() - after.parameters[name].double()).square().sum())
    return math.sqrt(difference / size)


def check(case: Case, before: Outcome, after: Outcome) -> None:
    comparison = compared(before, after)
    assert comparison.holds, comparison.differences
    if case.apart not in (ROUNDED, KERNELS):
        assert losses_apart(before, after) <= LAST_PLACES
    if case.apart not in (ROUNDED, KERNELS, NOISE):
        assert parameters_apart(before, after) <= LAST_PLACES


def check_equal(plain: Outcome, emulated: Outcome) -> None:
    """Bit by bit the same training, and checkpoints that agree."""
    comparison = compared(plain, emulated)
    assert comparison.holds, comparison.differences
    for ours, theirs in zip(plain.records, emulated.records, strict=True):
        assert ours.measures
        for key in ("losses", "norms"):
            assert [m.get(key) for m in ours.measures] == [m.get(key) for m in theirs.measures]
    assert plain.parameters.keys() == emulated.parameters.keys()
    for name, value in plain.parameters.items():
        assert torch.equal(value, emulated.parameters[name]), name


def check_all(
    case: Case, before: dict[str, str], after: dict[str, str], two_ranks: TwoRanks
) -> tuple[Outcome, Outcome]:
    ours, theirs = run(two_ranks, before, case.args), run(two_ranks, after, case.args)
    check(case, ours, theirs)
    if case.then is not None:
        resumed = run(two_ranks, before, case.then, ours)
        for files, first in ((after, ours), (before, theirs), (after, theirs)):
            check(case, resumed, run(two_ranks, files, case.then, first))
    return ours, theirs


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_it_trains_as_before(case: Case, two_ranks: TwoRanks) -> None:
    check_all(case, *fixture_runs.texts(case), two_ranks)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", BOTH, ids=str)
def test_its_form_for_cuda_trains_as_before_and_as_without_cuda(
    case: Case, two_ranks: TwoRanks, tmp_path: Path
) -> None:
    plain_before, plain_after = fixture_runs.texts(case)
    before = {name: cuda_form(text) for name, text in plain_before.items()}
    ours, theirs = check_all(case, before, migrated(before, tmp_path), two_ranks)
    check_equal(run_without_cuda(two_ranks, plain_before, case.args), ours)
    if case.apart:  # the others train as before within the last places
        check_equal(run_without_cuda(two_ranks, plain_after, case.args), theirs)


def migrated(files: dict[str, str], folder: Path) -> dict[str, str]:
    paths = {name: folder / name for name in files}
    for name, text in files.items():
        paths[name].write_text(text, encoding="utf-8")
    result = fix(Workspace(list(paths.values())), [rule() for rule in all_rules()])
    assert not [found for found in result.remaining if found.rule.code.startswith("FSDP2")]
    return {name: result.texts.get(path, files[name]) for name, path in paths.items()}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", FSDP2)
def test_fsdp2_in_its_form_for_cuda_trains_as_without_cuda(name: str, two_ranks: TwoRanks) -> None:
    script = next(file for file in FSDP2[name] if file.name == "train.py" or len(file.parts) == 2)
    files = [script, *(file for file in FSDP2[name] if file != script)]
    texts = {str(file.relative_to(script.parent)): fixture_runs.before(file) for file in files}
    emulated = run(two_ranks, {file: cuda_form(text) for file, text in texts.items()}, OUT)
    if name != DRAWS_OTHERWISE:
        check_equal(run_without_cuda(two_ranks, texts, OUT), emulated)


def test_every_program_is_run() -> None:
    run_ones = {"/".join(case.path.split("/")[:2]) for case in CASES}
    assert run_ones == set(fixture_runs.programs())
