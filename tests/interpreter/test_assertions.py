"""`assert` on what a run has decided: what comes after a failed one belongs to no run."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import Collective, Ranks

PROGRAM = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--fsdp", action="store_true")
parser.add_argument("--precision", default="fp32")
args = parser.parse_args()

model = Net()
if args.fsdp:
    model = FSDP(model)
optimizer = torch.optim.AdamW(model.parameters())
scaler = None
if args.precision == "amp":
    {check}
    scaler = torch.amp.GradScaler("cuda")
loss = model(torch.ones(2, 8)).sum()
if scaler is not None:
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
else:
    loss.backward()
    optimizer.step()
"""
EXCLUDING = {
    "assert": "assert not args.fsdp, 'not both'",
    "assert of a conjunction": "assert args.precision and not args.fsdp",
    "raise": "if args.fsdp:\n        raise ValueError('not both')",
}
NOT_EXCLUDING = {
    "nothing": "pass",
    "of something else": "assert args.precision",
    "caught": "try:\n        assert not args.fsdp\n    except AssertionError:\n        pass",
    "on one rank": "if dist.get_rank() == 0:\n        assert not args.fsdp",
}


@pytest.mark.parametrize("check", EXCLUDING.values(), ids=EXCLUDING)
def test_a_failed_assertion_ends_the_run_for_rules(tmp_path: Path, check: str) -> None:
    found = program(tmp_path, PROGRAM.format(check=check))
    assert not findings(found, "FSDP407")


@pytest.mark.parametrize("check", NOT_EXCLUDING.values(), ids=NOT_EXCLUDING)
def test_other_assertions_do_not(tmp_path: Path, check: str) -> None:
    assert findings(program(tmp_path, PROGRAM.format(check=check)), "FSDP407")


@pytest.mark.parametrize(
    "test",
    [
        "torch.cuda.current_device() == local_rank",
        "local_rank < torch.cuda.device_count()",
        "dist.get_rank() % dist.get_world_size() == local_rank",
    ],
)
def test_a_check_of_each_rank_keeps_no_rank_away(tmp_path: Path, test: str) -> None:
    body = f"""
        import os

        local_rank = int(os.environ["LOCAL_RANK"])
        assert {test}
        dist.barrier()
        if dist.get_rank() == 0:
            dist.barrier()
    """
    found = program(tmp_path, body)
    assert {event.ranks for event in events(found, Collective)} == {Ranks.ALL, Ranks.ONE}
    assert findings(found, "FSDP501")


def test_ranks_that_left_before_do_not_go_on(tmp_path: Path) -> None:
    lines = [
        "if dist.get_rank() >= 8:",
        "    return",
        *PROGRAM.format(check="assert not args.fsdp").splitlines(),
    ]
    body = "def main():\n" + "".join(f"    {line}\n" for line in lines) + "main()\n"
    assert not findings(program(tmp_path, body), "FSDP407")
    body = body.replace("assert not args.fsdp", "pass")
    assert findings(program(tmp_path, body), "FSDP407")


def test_what_comes_after_a_failed_assertion_is_not_covered(tmp_path: Path) -> None:
    body = """
        import argparse

        parser = argparse.ArgumentParser()
        parser.add_argument("--fsdp", action="store_true")
        args = parser.parse_args()
        model = Net()
        if args.fsdp:
            fully_shard(model)
            assert not args.fsdp
            torch.save(model.state_dict(), "model.pt")
    """
    coverage = program(tmp_path, body).coverage
    left = [one.source.code(one.site.node) for one in coverage if one.gap is not None]
    assert any("torch.save" in code for code in left)
