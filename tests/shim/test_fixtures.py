"""Every FSDP1 fixture trains after its migration as it did before, on two ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from comparing import compared
from two_ranks import Outcome, TwoRanks

from fsdplint import engine
from fsdplint.program import load
from fsdplint.rule import all_rules

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
OUT = ("--out", "out")


@dataclass(frozen=True)
class Case:
    """A fixture with its arguments; `then` are those of a second run in the same folder."""

    path: str
    args: tuple[str, ...] = OUT
    then: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return " ".join((self.path, *(arg for arg in self.args if arg not in OUT)))


CASES = (
    Case("fsdp1/flat_script.py"),
    Case("fsdp1/argparse_functions.py", (*OUT, "--stop-after", "1"), (*OUT, "--resume")),
    Case("fsdp1/argparse_functions.py", (*OUT, "--strategy", "grad_op")),
    Case("fsdp1/trainer_class.py"),
    Case("fsdp1/trainer_class.py", (*OUT, "--precision", "fp32")),
    Case("fsdp1/package/train.py", (*OUT, "--stop-at", "4"), (*OUT, "--resume")),
    Case("fsdp1/config_driven/train.py"),
    Case("fsdp1/config_driven/train.py", (*OUT, "--config", "fsdp_fp32")),
    Case("fsdp1/config_driven/train.py", (*OUT, "--config", "debug_plain")),
    Case("fsdp1/size_policy.py"),
    Case("fsdp1/size_policy.py", (*OUT, "--min-num-params", "5000")),
    Case("fsdp1/lambda_policy.py", ()),
    Case("fsdp1/vit_two_space.py"),
    Case("fsdp1/vit_two_space.py", (*OUT, "--no-bf16")),
    Case("fsdp1/vit_two_space.py", (*OUT, "--no-checkpointing")),
    Case("fsdp1_cuda/llama_style.py"),
    Case("fsdp1_cuda/llama_style.py", (*OUT, "--low_cpu_fsdp", "--fsdp_activation_checkpointing")),
    Case("fsdp1_cuda/llama_style.py", (*OUT, "--sharding_strategy", "HYBRID_SHARD")),
    Case(
        "fsdp1_cuda/trainer_nccl.py", (*OUT, "--steps", "4"), (*OUT, "--resume", "out/encoder.pt")
    ),
    Case("fsdp1_cuda/trainer_nccl.py", (*OUT, "--precision", "fp16")),
)


def texts(script: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The files of a program, the script first, as they are and as they are after all fixes."""
    files = list(dict.fromkeys([script, *(Path(path) for path in load([script]).sources)]))
    fixed = engine.fix(files, [rule() for rule in all_rules()], unsafe=True)
    before = {str(p.relative_to(script.parent)): p.read_text(encoding="utf-8") for p in files}
    after = {str(p.relative_to(script.parent)): text for p, text in fixed.texts.items()}
    return before, {**before, **after}


def run(
    two_ranks: TwoRanks, files: dict[str, str], args: tuple[str, ...], first: Outcome | None = None
) -> Outcome:
    env = {"OUT_DIR": "out"}
    return two_ranks.run(files, args=args, env=env, parameters=True, continuing=first)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_trains_as_before(case: Case, two_ranks: TwoRanks) -> None:
    before, after = texts(FIXTURES / case.path)
    if before == after:
        pytest.skip("its migration is blocked")
    assert "FullyShardedDataParallel" not in "".join(after.values())
    ours, theirs = run(two_ranks, before, case.args), run(two_ranks, after, case.args)
    comparison = compared(ours, theirs)
    assert comparison.holds, comparison.failed
    if case.then is not None:
        ours = run(two_ranks, before, case.then, ours)
        theirs = run(two_ranks, after, case.then, theirs)
        comparison = compared(ours, theirs)
        assert comparison.holds, comparison.failed
