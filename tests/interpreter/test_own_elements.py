"""Slices, elements and lists of the data of each rank, and the tests of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_batches import TURN, undecided


@pytest.mark.parametrize(
    "end", ["value, count = total.tolist()", "value = total.sum()", "value = (total / 4).max()"]
)
@pytest.mark.parametrize("index", ["0", "step"])
def test_a_tensor_with_an_element_of_the_ranks_own(tmp_path: Path, end: str, index: str) -> None:
    change = f"total = torch.zeros(2)\n    total[{index}] += loss.item()"
    body = f"{TURN}    {change}\n    {end}\n    if value > 3:\n        dist.barrier()\n"
    assert undecided(tmp_path, body) == ["value > 3"]


@pytest.mark.parametrize(
    "test", ["total.numel() > 3", "len(total) > 1", "metrics", "total is None"]
)
def test_what_an_element_of_the_ranks_own_does_not_decide(tmp_path: Path, test: str) -> None:
    change = "total = torch.zeros(2); total[0] += loss.item(); "
    change += "metrics = torch.hub.load(name); metrics[0] = loss"
    body = f"{TURN}    {change}\n    if {test}:\n        dist.barrier()\n"
    assert undecided(tmp_path, body) == []


LITE = """
class Tokens:
    def __init__(self, rank, ranks, size):
        self.rank, self.ranks, self.size = rank, ranks, size
        self.tokens = torch.load("tokens.pt")
        self.reset()

    def reset(self):
        self.position = {begin}

    def next_batch(self):
        if self.position + self.size > len(self.tokens):
            self.tokens = torch.load("more.pt")
            self.position = {begin}
        piece = self.tokens[self.position : self.position + self.size + 1]
        self.position += self.size * self.ranks
        if self.position + self.size > len(self.tokens):
            self.reset()
        return piece[:-1].view(-1, 4), piece[1:]

tokens = Tokens(dist.get_rank(), dist.get_world_size(), 32)
for step in range(10):
    x, y = tokens.next_batch()
    loss = model(x).sum()
    {reduce}
    if loss.isnan():
        break
    loss.backward()
"""
BEGINNINGS = {
    "a multiple of the rank": "self.size * self.rank",
    "and an offset": "100 + self.rank * self.size",
    "within the data": "(self.rank * self.size) % len(self.tokens)",
    "counted from the end": "len(self.tokens) - self.size * (self.rank + 1)",
}
THE_SAME = {
    "no rank": "self.size * self.ranks",
    "several ranks together": "self.size * (self.rank // 2)",
    "one of two": "(self.size * self.rank) % 2",
    "nothing": "0 * self.rank",
    "the rank cancels": "self.rank - self.rank",
}


@pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_slice_from_a_place_of_each_rank(tmp_path: Path, begin: str) -> None:
    assert undecided(tmp_path, LITE.format(begin=begin, reduce="pass")) == ["loss.isnan()"]
    reduced = LITE.format(begin=begin, reduce="dist.all_reduce(loss)")
    assert undecided(tmp_path, reduced) == []


@pytest.mark.parametrize("begin", THE_SAME.values(), ids=THE_SAME)
def test_a_slice_that_ranks_may_share(tmp_path: Path, begin: str) -> None:
    assert undecided(tmp_path, LITE.format(begin=begin, reduce="pass")) == []


@pytest.mark.parametrize("queue", ["deque()", "deque(maxlen=5)", "deque([0.0], 5)"])
def test_a_queue_of_the_last_values(tmp_path: Path, queue: str) -> None:
    body = f"""\
        from collections import deque
        recent = {queue}
        for x, y in loader:
            recent.append(nn.functional.mse_loss(model(x), y).item())
            if sum(recent) / len(recent) > 3:
                dist.barrier()
        """
    assert undecided(tmp_path, body) == ["sum(recent) / len(recent) > 3"]


def test_a_forward_on_one_side_of_an_expression(tmp_path: Path) -> None:
    body = TURN + "    again = model(x) if loss > 3 else None\n"
    assert undecided(tmp_path, body) == ["loss > 3"]


@pytest.mark.parametrize(
    "choice",
    [
        "flag = torch.tensor([1 if loss.item() > 3 else 0])\n    dist.all_reduce(flag)",
        "flag = 1 if step > 3 else 0",
        "flag = loss if step > 3 else loss * 2\n    dist.broadcast(flag, src=0)",
    ],
)
def test_a_choice_that_all_ranks_make_alike(tmp_path: Path, choice: str) -> None:
    assert (
        undecided(tmp_path, f"{TURN}    {choice}\n    if flag > 0:\n        dist.barrier()\n") == []
    )


@pytest.mark.parametrize(
    "function",
    [
        "def stops(step, loss):\n    if step < 10:\n        return False\n    return loss.item() > 3",
        "def stops(step, loss):\n    if step > 10:\n        return loss.item() > 3\n    return False",
        "def stops(step, loss):\n    if step > 10:\n        if loss > 3:\n            return True\n"
        "    return step == 100",
    ],
)
def test_a_function_that_asks_the_own_data_at_times(tmp_path: Path, function: str) -> None:
    assert undecided(
        tmp_path, f"{function}\n{TURN}    if stops(step, loss):\n        dist.barrier()\n"
    ) == ["stops(step, loss)"]


def test_an_iterator_of_the_program_that_reads_the_clock(tmp_path: Path) -> None:
    body = """\
        class Steps:
            def __init__(self, number):
                self.number, self.done, self.begin = number, 0, None
            def __iter__(self):
                return self
            def __next__(self):
                if self.done == self.number:
                    raise StopIteration
                self.done += 1
                if self.begin is None:
                    self.begin = time.time()
                elif self.done > 2 and time.time() - self.begin > 3600:
                    dist.barrier()
                return self.done

        for step in Steps(100):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
        """
    assert undecided(tmp_path, body) == ["self.done > 2 and time.time() - self.begin > 3600"]


@pytest.mark.parametrize(
    "used", ["sum(scores)", "torch.tensor(scores).std()", "torch.tensor(scores).max().item()"]
)
@pytest.mark.parametrize(
    ("test", "differs"), [("row == wanted", True), ("row.sum() > 3", True), ("step > 2", False)]
)
def test_numbers_that_the_data_of_a_rank_choose(
    used: str, test: str, differs: bool, tmp_path: Path
) -> None:
    body = f"""
{TURN}
    scores = []
    for row, wanted in zip(x, y):
        if {test}:
            scores.append(1.0)
        else:
            scores.append(0.0)
    if {used} == 0:
        dist.barrier()
"""
    assert undecided(tmp_path, body) == ([f"{used} == 0"] if differs else [])
