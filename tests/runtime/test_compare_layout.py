"""What is sharded how, and the settings of training that are compared exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from comparing import check

from fsdplint.runtime.launch.records import RankRecord
from fsdplint.runtime.proof.checks import BFLOAT16, Comparison, Side
from fsdplint.runtime.proof.compare import compare
from fsdplint.trace import Trace

pytestmark = pytest.mark.whole

Unit = dict[str, Any]
SHAPES = {"up.weight": [7, 4], "up.bias": [7]}
NUMBERS = 35  # in these


def unit(ranks: int, cut: int, *, flat: bool = False, **changed: Any) -> Unit:
    """Both parameters, sharded over `cut` ranks in as many copies as there are."""
    rows = NUMBERS if cut == 1 else 20  # of seven rows the first of two ranks has four
    return {
        "name": "up",
        "over": list(range(cut)) if cut > 1 else [],
        "copies": list(range(0, ranks, cut)) if cut < ranks else [],
        "flat": flat,
        "dims": [] if flat else [0],
        "offload": False,
        "divide": float(ranks),
        "bytes": 4 * (18 if flat and cut > 1 else rows),
        "backward": "sharded",
        "step": "sharded",
        "inputs": ["torch.float32"],
        "outputs": ["torch.float32"],
        "parameters": {name: [shape, "torch.float32", True] for name, shape in SHAPES.items()},
        **changed,
    }


def measure(**changed: Any) -> dict[str, Any]:
    return {
        "step": 1,
        "optimizer": "o1",
        "class": "AdamW",
        "losses": [1.0],
        "gradients": {"sharded": 1.0},
        "stepped": {"sharded": 1.0},
        "clips": [{"by": "norm", "bound": 0.5, "norm_type": 2.0}],
        "scaler": None,
        "collectives": {"reduce_scatter": 1},
        "bytes": 8,
        "local_bytes": {"gradients": 70, "optimizer state": 140},
        "parameters": 2,
        "updated": 2,
        "rates": [0.1],
        "settings": [{"betas": [0.9, 0.95]}],
        "dtypes": ["torch.bfloat16"],
        "seconds": 0.1,
        **changed,
    }


def side(folder: Path, units: list[Unit], ranks: int = 2, **changed: Any) -> Side:
    names = [[name for one in units for name in one["parameters"]]]
    layout = {"step": 1, "units": units, "groups": {"o1": changed.pop("groups", names)}}
    records = [
        RankRecord(rank, ranks, {}, measures=[measure(**changed)], layouts=[layout])
        for rank in range(ranks)
    ]
    return Side(records, Trace(producer="runtime"), folder / "parameters.pt")


@pytest.fixture
def before(tmp_path: Path) -> Side:
    return side(tmp_path, [unit(2, 2, flat=True)])


def only(before: Side, after: Side) -> Comparison:
    """What differs but for the parameters, of which there are none here."""
    comparison = compare(before, after, same_units=True)
    return Comparison([one for one in comparison.checks if one.name != "parameters"])


def failed(before: Side, after: Side) -> list[str]:
    return [one.name for one in only(before, after).differences]


def test_rows_and_a_flat_parameter_are_the_same_layout(before: Side, tmp_path: Path) -> None:
    after = side(tmp_path, [unit(2, 2)])
    comparison = only(before, after)
    assert comparison.holds, comparison.differences
    detail = check(comparison, "bytes of parameters").detail
    assert detail == "at most 72 B on a rank before, 80 B after"


def test_a_mesh_that_shards_nothing_is_another_layout(before: Side, tmp_path: Path) -> None:
    after = side(tmp_path, [unit(2, 1)], local_bytes={"gradients": 140, "optimizer state": 280})
    comparison = only(before, after)
    assert comparison.same_training and not comparison.holds
    assert check(comparison, "placement of parameters").detail == (
        "rank 0, step 1, up.bias, up.weight: sharded over 2 ranks (0, 1) before, "
        "whole on each of 2 ranks (0, 1) after"
    )
    assert check(comparison, "bytes of parameters").holds is False


def test_copies_are_another_layout(tmp_path: Path) -> None:
    after = side(tmp_path, [unit(4, 2)], ranks=4)
    found = only(side(tmp_path, [unit(4, 4)], ranks=4), after)
    assert found.same_training and not found.holds
    detail = check(found, "placement of parameters").detail
    assert detail.endswith("sharded over 2 ranks (0, 1) in 2 copies (ranks 0, 2) after")


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"backward": "whole"}, "parameters between forward and backward"),
        ({"step": "whole"}, "parameters at the optimizer step"),
        ({"offload": True}, "placement of parameters"),
    ],
)
def test_what_only_costs(before: Side, tmp_path: Path, changed: Unit, name: str) -> None:
    comparison = only(before, side(tmp_path, [unit(2, 2, **changed)]))
    assert [one.name for one in comparison.differences] == [name]
    assert comparison.same_training


def test_what_is_not_known_is_not_another_layout(before: Side, tmp_path: Path) -> None:
    assert failed(before, side(tmp_path, [unit(2, 2, backward="", inputs=[])])) == []


def test_parameters_that_are_gathered_by_themselves(tmp_path: Path) -> None:
    parts = [
        unit(2, 2, bytes=40, parameters={name: [shape, "torch.float32", True]})
        for name, shape in SHAPES.items()
    ]
    comparison = only(side(tmp_path, [unit(2, 2)]), side(tmp_path, parts))
    assert [one.name for one in comparison.differences] == ["sharded modules"]
    assert comparison.same_training
    assert comparison.differences[0].detail == (
        "the same modules, but they gather other sets of parameters: "
        "only before: up.bias with 1 other; only after: up.bias alone, up.weight alone"
    )


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"divide": 2.01}, "gradient divide factor"),
        ({"inputs": ["torch.bfloat16"]}, "types of inputs and outputs"),
        (
            {"parameters": {n: [s, "torch.float32", n == "up.bias"] for n, s in SHAPES.items()}},
            "trained parameters",
        ),
    ],
)
def test_what_trains_otherwise(before: Side, tmp_path: Path, changed: Unit, name: str) -> None:
    comparison = only(before, side(tmp_path, [unit(2, 2, **changed)]))
    assert [one.name for one in comparison.differences] == [name]
    assert not comparison.same_training


SCALER = {"enabled": True, "scale": 256.0, "growth_interval": 2}


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"clips": [{"by": "norm", "bound": 0.505, "norm_type": 2.0}]}, "clipping arguments"),
        ({"clips": [{"by": "norm", "bound": 0.5, "norm_type": 1.0}]}, "clipping arguments"),
        ({"scaler": SCALER}, "loss scale"),
        ({"class": "Adam"}, "optimizers"),
        ({"groups": [["up.weight"]]}, "optimizers"),
        ({"settings": [{"betas": [0.9, 0.951]}]}, "parameter groups"),
        ({"local_bytes": {"gradients": 35, "optimizer state": 140}}, "bytes of gradients"),
        ({"local_bytes": {"gradients": 70, "optimizer state": 70}}, "bytes of optimizer state"),
    ],
)
def test_settings_are_compared_exactly(
    before: Side, tmp_path: Path, changed: dict[str, Any], name: str
) -> None:
    after = side(tmp_path, [unit(2, 2)], **changed)
    assert BFLOAT16.holds(0.5, 0.501)  # as a tolerance would have it
    assert failed(before, after) == [name]


def test_a_bound_that_is_not_known_is_not_compared(before: Side, tmp_path: Path) -> None:
    after = side(tmp_path, [unit(2, 2)], clips=[{"by": "norm", "bound": None, "norm_type": 2.0}])
    assert failed(before, after) == []


def test_another_layout_decides_nothing_where_no_program_is_migrated(
    before: Side, tmp_path: Path
) -> None:
    comparison = compare(before, side(tmp_path, [unit(2, 1)]), same_units=False)
    assert [one.name for one in comparison.differences] == ["parameters"]
    assert check(comparison, "placement of parameters").holds is False
