"""Counters that each rank counts by its own data, and indices that begin at the rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_batches import undecided

EVALUATION = """\
def evaluate():
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
    {reduce}
    return loss.item()

best, bad = 9.0, 0
kept = {{"loss": 9.0, "bad": 0}}
"""
# A loop over epochs that ends early, with the test that ends it.
LOOPS = {
    "in the branch": (
        """
for epoch in range(10):
    loss = evaluate()
    if loss < best:
        best, bad = loss, 0
    else:
        bad += 1
        if bad > 3:
            break
""",
        "bad > 3",
    ),
    "a sum": (
        """
for epoch in range(10):
    loss = evaluate()
    if loss < best:
        best, bad = loss, 0
    else:
        bad = bad + 1
        if bad >= 3:
            break
""",
        "bad >= 3",
    ),
    "in a while loop": (
        """
epoch = 0
while epoch < 10:
    loss = evaluate()
    epoch += 1
    if loss >= best:
        bad += 1
        if bad > 3:
            break
    else:
        best = loss
""",
        "bad > 3",
    ),
    "an entry of a dict": (
        """
for epoch in range(10):
    loss = evaluate()
    if loss < kept["loss"]:
        kept["loss"], kept["bad"] = loss, 0
    else:
        kept["bad"] += 1
    if kept["bad"] > 3:
        break
""",
        'kept["bad"] > 3',
    ),
    "an entry by update": (
        """
for epoch in range(10):
    loss = evaluate()
    if loss < kept["loss"]:
        kept.update(loss=loss, bad=0)
    else:
        kept["bad"] += 1
        if kept["bad"] > 3:
            break
""",
        'kept["bad"] > 3',
    ),
}


@pytest.mark.parametrize(("loop", "test"), LOOPS.values(), ids=LOOPS)
def test_counters_of_own_data(tmp_path: Path, loop: str, test: str) -> None:
    body = EVALUATION.format(reduce="pass") + loop
    assert undecided(tmp_path, body) == [test]


@pytest.mark.parametrize(("loop", "test"), LOOPS.values(), ids=LOOPS)
def test_counters_of_reduced_data(tmp_path: Path, loop: str, test: str) -> None:
    body = EVALUATION.format(reduce="dist.all_reduce(loss)") + loop
    assert undecided(tmp_path, body) == []


def test_counters_that_each_rank_counts_alike(tmp_path: Path) -> None:
    body = """
        bad = 0
        kept = {}
        for epoch in range(10):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
            if loss.item() > 1:
                kept["high"] = True
            else:
                kept["high"] = True
            bad += 1
            if bad > 3 and kept["high"]:
                break
    """
    assert undecided(tmp_path, body) == []


@pytest.mark.parametrize(
    ("skip", "test"), [("break", "loss.item() > 1"), ("continue", "step % 4 == 0")]
)
def test_a_counter_after_own_data_ended_a_turn(tmp_path: Path, skip: str, test: str) -> None:
    """The ranks that a loop has left count no further, and the others have the same number."""
    body = f"""
        step = 0
        for x, y in loader:
            loss = nn.functional.mse_loss(x, y)
            if loss.item() > 1:
                {skip}
            step += 1
            if step % 4 == 0:
                model(x)
    """
    assert undecided(tmp_path, body)[-1] == test


# The batches of a loader, with names for the rank and the number of ranks.
OWN = {
    "batches of a range of torch": "batch_sampler=[p.tolist() for p in "
    "torch.arange(rank, len(data), world).tensor_split(4)]",
    "a range of torch": "sampler=torch.arange(rank, len(data), world).tolist(), batch_size=2",
    "a range": "sampler=list(range(rank, len(data), world)), batch_size=2",
    "a slice": "sampler=list(range(len(data)))[rank::world], batch_size=2",
}
TRAINED = """
rank, world = dist.get_rank(), dist.get_world_size()
own = DataLoader(data, {batches})
for x, y in own:
    loss = nn.functional.mse_loss(model(x), y)
    if loss.item() > 1:
        continue
    loss.backward()
"""


@pytest.mark.parametrize("batches", OWN.values(), ids=OWN)
def test_loaders_with_indices_of_the_rank(tmp_path: Path, batches: str) -> None:
    assert undecided(tmp_path, TRAINED.format(batches=batches)) == ["loss.item() > 1"]


@pytest.mark.parametrize("batches", OWN.values(), ids=OWN)
def test_loaders_with_the_same_indices(tmp_path: Path, batches: str) -> None:
    body = TRAINED.format(batches=batches).replace(
        "rank, world = dist.get_rank(),", "rank, world = 0,"
    )
    assert undecided(tmp_path, body) == []
