"""Losses that a function returns only for some data of each rank, and None otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_batches import undecided

PROGRAM = """\
def loss_of(x, y):
    loss = nn.functional.mse_loss(model(x), y)
    {decide}
    if {test}:
        return None
    return loss


for x, y in loader:
    loss = loss_of(x, y)
    if {tested}:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
AGREED = "len(loader) > 4"
AGREE = "bad = torch.isnan(loss).float(); dist.all_reduce(bad)"


@pytest.mark.parametrize(
    "test", ["torch.isnan(loss)", "not math.isfinite(loss.item())", "loss > 9"]
)
def test_a_loss_is_missing_by_the_data_of_a_rank(test: str, tmp_path: Path) -> None:
    body = PROGRAM.format(decide="pass", test=test, tested="loss is not None")
    assert undecided(tmp_path, body) == ["loss is not None"]


@pytest.mark.parametrize(
    ("decide", "test", "tested"),
    [
        (AGREE, "bad.item()", "loss is not None"),
        ("pass", "len(loader) > 4", "loss is not None"),
        ("pass", "torch.isnan(loss)", "True"),
    ],
)
def test_a_loss_is_missing_on_all_ranks_or_none(
    decide: str, test: str, tested: str, tmp_path: Path
) -> None:
    assert not undecided(tmp_path, PROGRAM.format(decide=decide, test=test, tested=tested))


def test_a_loss_that_stands_for_the_missing_one(tmp_path: Path) -> None:
    body = PROGRAM.format(decide="pass", test="torch.isnan(loss)", tested="True")
    body = body.replace("    loss = loss_of(x, y)\n", "    loss = loss_of(x, y)\n    HOLE\n")
    other = "if loss is None:\n        loss = nn.functional.mse_loss(model(x), y) * 0"
    assert undecided(tmp_path, body.replace("HOLE", other)) == ["loss is None"]
    zero = "if loss is None:\n        loss = torch.zeros((), requires_grad=True)"
    assert not undecided(tmp_path, body.replace("HOLE", zero))


@pytest.mark.parametrize(("test", "expected"), [("loss > 9", ["loss is not None"]), (AGREED, [])])
def test_a_loss_is_missing_in_a_tuple(test: str, expected: list[str], tmp_path: Path) -> None:
    body = PROGRAM.format(decide="total = step", test=test, tested="loss is not None")
    body = body.replace("return None", "return None, total").replace(
        "return loss", "return loss, total"
    )
    body = body.replace("loss = loss_of(x, y)", "loss, total = loss_of(x, y)")
    body = body.replace("for x, y in loader:", "for step, (x, y) in enumerate(loader):")
    assert undecided(tmp_path, body) == expected


def test_what_all_ranks_have_beside_a_missing_loss(tmp_path: Path) -> None:
    body = PROGRAM.format(decide="pass", test="loss > 9", tested="count > 3")
    body = body.replace("return None", "return None, 1").replace("return loss", "return loss, 1")
    body = body.replace("loss = loss_of(x, y)", "loss, count = loss_of(x, y)")
    assert not undecided(tmp_path, body)
