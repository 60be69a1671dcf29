"""A sample of `sabotages.py`: right migrations are proven, a planted mistake is not.

`python tests/sabotage_verdicts.py` runs all of them; `sabotage/verdicts.md` has what came of it.
"""

from __future__ import annotations

import pytest
from sabotage_verdicts import Runner, is_right
from sabotages import HERE, PROVEN, RIGHT, SABOTAGED
from two_ranks import TwoRanks

SAMPLE = (
    "in bf16",
    "partly frozen",
    "a mesh that shards nothing",
    "a frozen part ignored",
    "inputs of blocks cast",
    "clipped at 0.505",
    "the weights saved in half precision",
)


@pytest.fixture(scope="module")
def runner(two_ranks: TwoRanks) -> Runner:
    return Runner(two_ranks)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample(name: str, runner: Runner) -> None:
    migration = {**RIGHT, **SABOTAGED}[name]
    result = runner.result(name, migration)
    assert is_right(result, migration), result.line()


def test_the_table_has_a_row_for_each() -> None:
    rows = (HERE / "verdicts.md").read_text(encoding="utf-8").splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    wanted = {f"right: {name}": PROVEN for name in RIGHT}
    wanted |= {f"sabotaged: {name}": one.verdict for name, one in SABOTAGED.items()}
    assert {name: verdict.removeprefix("1 ") for name, verdict, *_ in cells} == wanted
