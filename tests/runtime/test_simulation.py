"""A simulated rank holds and sends exactly what rank 0 of a real run does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import fixture_runs
import pytest
from click.testing import CliRunner
from fixture_runs import FIXTURES, OUT, Case
from two_ranks import Outcome, TwoRanks

from fsdplint.cli.main import main

# Clipping and states; mixed precision; a mesh of two dimensions; CUDA, NCCL, broadcast weights and
# batches of a DataLoader.
CASES = (
    (Case("fsdp1/flat_script.py"), 4),
    (Case("fsdp1/config_driven/train.py"), 2),
    (Case("fsdp1/device_mesh.py"), 4),
    (Case("fsdp1_cuda/trainer_nccl.py", (*OUT, "--steps", "4")), 2),
)


def run(two_ranks: TwoRanks, files: dict[str, str], case: Case, world: int, real: bool) -> Outcome:
    outcome = two_ranks.run(
        files,
        args=case.args,
        world=world,
        env={"OUT_DIR": "out"},
        steps=2,
        account=True,
        simulate=None if real else world,
    )
    assert outcome.status == "ok", str(outcome)
    return outcome


@pytest.mark.sampled(1)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("case", "world"), CASES, ids=str)
def test_it_counts_what_a_real_run_does(
    case: Case, world: int, when: str, two_ranks: TwoRanks
) -> None:
    files = fixture_runs.texts(case)[when == "after"]
    real = run(two_ranks, files, case, world, True).records[0].accounts
    simulated = run(two_ranks, files, case, world, False).records[0].accounts
    assert len(real) == len(simulated) == 2
    for ours, theirs in zip(simulated, real, strict=True):
        # gloo keeps a tensor, or a copy of it, until its own thread is done with it.
        assert ours.pop("peak") == pytest.approx(theirs.pop("peak"), rel=0.2)
    assert simulated == real


def test_more_ranks_than_there_are(two_ranks: TwoRanks) -> None:
    case = Case("fsdp1/flat_script.py")
    held = {}
    for world in (8, 64):
        [_, last] = (
            run(two_ranks, fixture_runs.texts(case)[0], case, world, False).records[0].accounts
        )
        held[world] = last
    # FSDP1 cuts a flat parameter into equal parts: an eighth of it, but for padding.
    assert held[8]["parameters"] == pytest.approx(8 * held[64]["parameters"], rel=0.02)
    assert held[8]["optimizer"] == pytest.approx(8 * held[64]["optimizer"], rel=0.02)


BROADCAST = """
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions, get_state_dict, set_model_state_dict, set_state_dict
    )
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    state = model.state_dict() if rank == 0 else {}
    fully_shard(model)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, state, options=options)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(2):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        whole = StateDictOptions(full_state_dict=True)
        model_state, optimizer_state = get_state_dict(model, optimizer, options=whole)
        set_state_dict(
            model,
            optimizer,
            model_state_dict=model_state,
            optim_state_dict=optimizer_state,
            options=options,
        )
"""


def test_states_that_one_rank_sends_to_all(two_ranks: TwoRanks) -> None:
    real = two_ranks.run(BROADCAST, account=True)
    simulated = two_ranks.run(BROADCAST, account=True, simulate=2)
    larger = two_ranks.run(BROADCAST, account=True, simulate=16)
    for outcome in (real, simulated, larger):
        assert outcome.status == "ok", str(outcome)
    for ours, theirs in zip(simulated.records[0].accounts, real.records[0].accounts, strict=True):
        for key in ("parameters", "gradients", "optimizer"):
            assert ours[key] == theirs[key]
    assert larger.records[0].accounts[1]["calls"]["broadcast"] > 0


def test_what_depends_on_values_is_named(two_ranks: TwoRanks) -> None:
    outcome = two_ranks.run(
        """
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        x = torch.randn(8)
        print(float(x.sum()), bool((x > 0).all()), bool(x.isnan().any()), f"{x.max():.1f}")
        chosen = x[x > 0]
        """,
        simulate=16,
    )
    assert outcome.status == "raised"
    assert outcome.stdout == "1.0 True False 1.0\n"
    assert outcome.records[0].end is not None
    assert outcome.records[0].end["error"] == "DynamicOutputShapeException"
    assert outcome.records[0].end["error_at"] == [outcome.path, 8]


@pytest.mark.usefixtures("forked")
def test_the_command(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    shutil.copy(FIXTURES / "fsdp1" / "flat_script.py", script)
    out, page, summary = (tmp_path / f"simulated.{kind}" for kind in ("json", "html", "md"))
    files = ("--json", str(out), "--html", str(page), "--markdown", str(summary))
    arguments = ["prove", "--simulate", "--world-size", "64", *files, str(script)]
    result = CliRunner().invoke(main, [*arguments, "--", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    told = json.loads(out.read_text())
    assert told["world_size"] == 64
    assert "fully_shard" in told["diff"]
    for name in ("before", "after"):
        assert [step["step"] for step in told[name]["steps"]] == [1, 2]
        assert told[name]["steps"][1]["calls"]["reduce_scatter"] == 4
    # Each parameter is cut by its rows, which 64 ranks do not share evenly.
    held = [told[name]["steps"][1]["parameters"] for name in ("before", "after")]
    assert held[0] < held[1]
    assert "reduce_scatter a step" in result.output
    assert "rank 0 of 64, without values." in summary.read_text()
    assert "| reduce_scatter a step | 4 calls, " in summary.read_text()
    text = page.read_text()
    assert text.count("<svg") == 2 and "What rank 0 of 64 holds and sends." in text
    assert "fully_shard(model" in text and "How it ended" not in text


def test_both_options_are_needed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    for options in (["--simulate"], ["--world-size", "8"]):
        result = CliRunner().invoke(main, ["prove", *options, str(script)])
        assert result.exit_code == 2
        assert "need each other" in result.output
