"""Two runs compared: a faithful migration holds, a sabotaged one does not."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path

import fixture_runs
import pytest
import torch
from comparing import check, compared, side
from fixture_runs import Case
from migrations import SABOTAGED, SABOTAGED_FIXTURES, flat_after, flat_before, replaced
from two_ranks import Outcome, TwoRanks

from fsdplint.runtime.launch.records import RankRecord
from fsdplint.runtime.proof.checks import BFLOAT16, FLOAT32, Side, Tolerance
from fsdplint.runtime.proof.compare import clipping, norm, tolerance_of, units, unwrapped_names
from fsdplint.runtime.proof.compare_tensors import Noise, _difference, checkpoints, parameters
from fsdplint.trace import Clipped, FixedSite, Location, Trace

# Clips in every step, so that a lost clipping shows.
STRICT = (("MAX_NORM = 1.0", "MAX_NORM = 0.3"), ("STEPS = 8", "STEPS = 4"))


@pytest.fixture(scope="module")
def before(two_ranks: TwoRanks) -> Outcome:
    return two_ranks.run(replaced(flat_before(), STRICT), parameters=True)


def test_a_faithful_migration_holds(before: Outcome, two_ranks: TwoRanks) -> None:
    after = two_ranks.run(replaced(flat_after(), STRICT), parameters=True)
    comparison = compared(before, after)
    assert comparison.holds, comparison.differences
    bound = {one.name for one in comparison.checks if one.binding}
    assert bound == {
        "steps",
        "losses",
        "gradient norms",
        "gradient norms at the optimizer step",
        "clipping arguments",
        "parameter groups",
        "optimizers",
        "loss scale",
        "parameters",
        "optimizer state",
        "checkpoint checkpoints/model.pt",
        "sharded modules",
        "placement of parameters",
        "parameters between forward and backward",
        "parameters at the optimizer step",
        "trained parameters",
        "gradient divide factor",
        "bytes of parameters",
        "bytes of gradients",
        "bytes of optimizer state",
        "types of inputs and outputs",
        "mixed precision",
        "gradient reductions",
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SABOTAGED)
def test_a_sabotaged_migration_does_not(name: str, before: Outcome, two_ranks: TwoRanks) -> None:
    pairs, complaint = SABOTAGED[name]
    after = two_ranks.run(replaced(replaced(flat_after(), STRICT), pairs), parameters=True)
    comparison = compared(before, after)
    assert not comparison.holds
    failed = [one.name for one in comparison.differences]
    assert any(found.startswith(complaint) for found in failed), failed


@pytest.fixture(scope="module")
def runs(two_ranks: TwoRanks) -> Callable[[Case], Outcome]:
    """What a fixture does as it is: its second run where it has one, with the first one's files."""

    @functools.cache
    def run(case: Case) -> Outcome:
        return last_run(two_ranks, case, fixture_runs.texts(case)[0])

    return run


def last_run(two_ranks: TwoRanks, case: Case, files: dict[str, str]) -> Outcome:
    env = {"OUT_DIR": "out"}
    first = two_ranks.run(files, args=case.args, env=env, parameters=True)
    if case.then is None:
        return first
    return two_ranks.run(files, args=case.then, env=env, parameters=True, continuing=first)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SABOTAGED_FIXTURES)
def test_a_sabotaged_fixture_does_not(
    name: str, runs: Callable[[Case], Outcome], two_ranks: TwoRanks
) -> None:
    case, pairs, complaint = SABOTAGED_FIXTURES[name]
    files = fixture_runs.texts(case)[1]
    script = next(iter(files))
    files[script] = replaced(files[script], pairs)
    comparison = compared(runs(case), last_run(two_ranks, case, files))
    assert not comparison.holds
    failed = [one.name for one in comparison.differences]
    assert any(found.startswith(complaint) for found in failed), failed


def test_a_program_agrees_with_itself(before: Outcome, two_ranks: TwoRanks) -> None:
    again = two_ranks.run(replaced(flat_before(), STRICT), parameters=True)
    comparison = compared(before, again)
    assert comparison.holds
    assert "worst difference 0" in check(comparison, "parameters").detail


def test_units_have_the_names_of_the_model(before: Outcome) -> None:
    assert units(before.trace) == {"", "blocks.0", "blocks.1", "blocks.2"}
    assert set(unwrapped_names(before.trace).values()) > {"blocks.0.mlp.0", "head"}


def test_the_norm_is_that_of_the_whole_gradient(before: Outcome) -> None:
    """The program prints the norm that FSDP1's own clipping worked out."""
    printed = [line.split()[-1] for line in before.stdout.splitlines() if "grad_norm" in line]
    measured = [
        norm([record.measures[step] for record in before.records], "gradients") for step in range(4)
    ]
    assert measured == pytest.approx([float(text) for text in printed], abs=1e-4)
    clipped = norm([record.measures[0] for record in before.records], "stepped")
    assert clipped == pytest.approx(0.3, abs=1e-4)


def test_a_norm_of_sharded_and_whole_parts() -> None:
    lines = [
        {"gradients": {"sharded": 9.0, "whole": 4.0}},
        {"gradients": {"sharded": 3.0, "whole": 4.0}},
    ]
    assert norm(lines, "gradients") == pytest.approx(math.sqrt(9 + 3 + 4))


def test_a_lost_clipping_that_no_norm_shows(tmp_path: Path) -> None:
    def side(calls: int, stepped: float) -> Side:
        norms = {"gradients": {"sharded": 4.0}, "stepped": {"sharded": stepped**2}}
        trace = Trace(producer="runtime")
        for line in range(calls):
            trace.add(Clipped(site=FixedSite(Location("train.py", line)), api="utils"))
        records = [RankRecord(0, 1, {}, measures=[{"step": 1, **norms}])]
        return Side(records, trace, tmp_path / "parameters.pt")

    (found,) = clipping(side(2, 2.0), side(0, 2.0), FLOAT32, True)
    assert found.binding and found.holds is False
    assert found.detail.startswith("2 calls before, 0 after; it changes no norm")
    (found,) = clipping(side(2, 1.0), side(1, 1.0), FLOAT32, True)
    assert not found.binding  # the norms show whether it is clipped, by whatever means
    (found,) = clipping(side(1, 2.0), side(1, 2.0), FLOAT32, True)
    assert found.holds and found.detail.startswith("1 call in both")


def test_tolerances() -> None:
    assert FLOAT32.holds(1.0, 1.00001) and not FLOAT32.holds(1.0, 1.0001)
    assert BFLOAT16.holds(1.0, 1.003) and not BFLOAT16.holds(1.0, 1.02)
    assert Tolerance(0, 0, "").holds(math.nan, math.nan)
    assert not FLOAT32.holds(1.0, math.nan)
    assert FLOAT32.holds(math.inf, math.inf) and not FLOAT32.holds(math.inf, 1.0)


def test_the_tolerance_is_that_of_the_least_precise_type(
    before: Outcome, two_ranks: TwoRanks
) -> None:
    assert tolerance_of(side(before)) is FLOAT32
    program = """
        import torch
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()
    """
    assert tolerance_of(side(two_ranks.run(program))) is BFLOAT16


def test_rounding_may_move_few_values_and_not_far() -> None:
    torch = pytest.importorskip("torch")
    noise = Noise(bound=torch.zeros(100), furthest=0.1, share=0.05)
    one, other = torch.zeros(100), torch.zeros(100)
    other[:5] = 0.09  # five of a hundred, a step away
    assert _difference(one, other, BFLOAT16, noise)[1] == ""
    assert _difference(one, other, BFLOAT16, None)[1].startswith("5 of 100 values differ")
    other[5] = 0.09
    assert _difference(one, other, BFLOAT16, noise)[1].startswith("6 of 100 values differ")
    other[1:] = 0.0
    other[0] = 0.2  # further than any gradient could have moved it
    assert _difference(one, other, BFLOAT16, noise)[1].startswith("1 of 100 values differ")


def test_a_buffer_of_another_type_differs_within_any_tolerance(tmp_path: Path) -> None:
    sides = []
    for name, dtype in (("before", torch.float32), ("after", torch.bfloat16)):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "parameters.pt"
        torch.save({"scale": torch.ones(4, dtype=dtype)}, file)
        sides.append(Side([], Trace(producer="runtime"), file))
    (found,) = parameters(*sides, BFLOAT16, {})
    assert found.holds is False
    assert "torch.float32 before, torch.bfloat16 after" in found.detail


@pytest.mark.parametrize(
    ("before", "after", "detail"),
    [
        (torch.rand(3), torch.rand(3).bfloat16(), "torch.float32 before, torch.bfloat16 after"),
        (torch.ones(3), None, "a tensor of 3 values before, None after"),
        (1, "1", "1 before, '1' after"),
        (None, 0, "None before, 0 after"),
    ],
)
def test_a_checkpoint_holds_the_same_types(
    tmp_path: Path, before: object, after: object, detail: str
) -> None:
    sides = []
    for name, value in (("before", before), ("after", after)):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "last.pt"
        torch.save({"state": value}, file)
        sides.append(Side([], Trace(producer="runtime"), file, {"last.pt": file}))
    (found,) = checkpoints(*sides, BFLOAT16, {})
    assert found.holds is False
    assert found.detail == f"state: {detail}"


def test_a_checkpoint_may_hold_equal_values_in_another_type(tmp_path: Path) -> None:
    """FSDP1 saves a buffer that it has cast in the type that it had; its values stay rounded."""
    sides = []
    for name, value in (("before", torch.ones(3)), ("after", torch.ones(3).bfloat16())):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "last.pt"
        torch.save({"buffer": value}, file)
        sides.append(Side([], Trace(producer="runtime"), file, {"last.pt": file}))
    (found,) = checkpoints(*sides, FLOAT32, {})
    assert found.holds, found.detail


def test_a_path_in_a_checkpoint_is_that_of_the_folder_that_was_copied(tmp_path: Path) -> None:
    sides = []
    for name in ("before", "after"):
        copy = tmp_path / name / "project"
        copy.mkdir(parents=True)
        file = copy / "last.pt"
        torch.save({"data": f"{copy}/data.json"}, file)
        copies = {str(copy): "/home/me/project"}
        sides.append(Side([], Trace(producer="runtime"), file, {"last.pt": file}, copies))
    (found,) = checkpoints(*sides, FLOAT32, {})
    assert found.holds, found.detail


TIED = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(8, 4)
        self.middle = nn.Linear(4, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.shared.weight

    def forward(self, ids):
        return self.head(self.middle(self.shared(ids)))


def train():
    model = SHARDED
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(2):
        model(torch.arange(8, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


dist.init_process_group("nccl")
torch.manual_seed(0)
train()
dist.destroy_process_group()
"""


def test_the_state_of_a_tied_weight_has_one_name(two_ranks: TwoRanks) -> None:
    """It is gathered though the function that trains has returned: its optimizer is kept."""
    before, after = (
        two_ranks.run(TIED.replace("SHARDED", how), parameters=True)
        for how in ("FSDP(Tied())", "fully_shard(Tied())")
    )
    comparison = compared(before, after)
    assert comparison.holds, comparison.differences
    assert check(comparison, "optimizer state").detail == "9 values agree"
