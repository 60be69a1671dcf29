"""Generated FSDP1 programs train after their migration as before, on two ranks.

`campaign.py` in this folder tries other seeds, and as many as it is told.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from generated_program import program
from plain_ranks import PlainRanks
from program_features import FEATURES, consistent, describe, differences, simplest
from program_outcomes import BLOCKED, ENLARGED, SAME, judge, migrate
from program_shrinking import shrink
from program_tolerance import compare

# Numbers of programs that FSDP1 runs and that are migrated whole. The first ones have together nearly all
# choices that the others have.
FIRST = (
    *(1004, 1008, 1012, 1016, 1018, 1027, 1048, 1072, 1100, 1101),
    *(1118, 1144),
)
OTHERS = (
    *(1006, 1029, 1039, 1044, 1045, 1050, 1051, 1054, 1062, 1076),
    *(1077, 1078, 1080, 1082, 1083, 1086, 1088, 1090, 1096, 1098),
    *(1099, 1108, 1109, 1110, 1114, 1116, 1133, 1148),
)


@pytest.fixture(scope="session")
def plain_ranks() -> Iterator[PlainRanks]:
    ranks = PlainRanks()
    yield ranks
    ranks.close()


@pytest.mark.parametrize("seed", FIRST)
def test_a_program_trains_as_before(seed: int, plain_ranks: PlainRanks) -> None:
    check(seed, plain_ranks)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", OTHERS)
def test_another_program_trains_as_before(seed: int, plain_ranks: PlainRanks) -> None:
    check(seed, plain_ranks)


@pytest.mark.parametrize("seed", OTHERS)
def test_another_program_is_migrated_whole(seed: int) -> None:
    outcome = migrate(program(describe(seed)))
    assert outcome.kind == SAME, outcome.reason


def check(seed: int, plain_ranks: PlainRanks) -> None:
    outcome = judge(describe(seed), plain_ranks)
    assert outcome.kind == SAME, outcome.reason


def test_a_seed_gives_the_same_program_each_time() -> None:
    assert program(describe(7)) == program(describe(7))
    assert program(describe(7)) != program(describe(8))


def test_each_choice_gives_code_that_compiles() -> None:
    for name, choices in FEATURES.items():
        for choice in choices:
            for file, text in program(consistent({**simplest(), name: choice})).items():
                compile(text, file, "exec")


def test_a_change_of_the_training_is_a_difference(plain_ranks: PlainRanks) -> None:
    description = consistent({**simplest(), "optimizer": "adamw"})
    files = program(description)
    outcome = migrate(files)
    assert outcome.kind == SAME
    wrong = {name: text.replace("lr=0.01", "lr=0.02") for name, text in outcome.after.items()}
    first, second = plain_ranks.run_files(files), plain_ranks.run_files(wrong)
    assert (first.status, second.status) == ("ok", "ok")
    difference = compare(description, first.output, second.output)
    assert difference is not None and "step 1 loss" in difference


def test_rounding_that_an_optimizer_enlarges_is_no_failure(plain_ranks: PlainRanks) -> None:
    description = describe(110097)
    outcome = judge(description, plain_ranks)
    assert outcome.kind == ENLARGED and not outcome.failed, outcome.reason


def test_a_program_that_waits_for_ever_is_ended(plain_ranks: PlainRanks) -> None:
    text = (
        "import torch.distributed as dist\n"
        'dist.init_process_group("gloo")\n'
        "if dist.get_rank() == 0:\n    dist.barrier()\n"
        "else:\n    dist.recv(__import__('torch').zeros(1), src=0)\n"
    )
    assert plain_ranks.run_files({"train.py": text}).status == "hung"


def test_shrinking_drops_what_the_failure_does_not_need(plain_ranks: PlainRanks) -> None:
    description = consistent({**simplest(), "layout": "functions", "clip": "infinite"})
    outcome = judge(description, plain_ranks)
    assert outcome.kind == BLOCKED
    small, _ = shrink(description, outcome, plain_ranks)
    assert differences(small) == {"clip": "infinite"}
