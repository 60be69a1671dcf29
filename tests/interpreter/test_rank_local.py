"""Values that each rank computes from its own data, and the tests of them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from own_batches import TURN, undecided


@pytest.mark.parametrize(
    "test",
    [
        "loss.item() > 3",
        "3 < loss",
        "torch.isnan(loss)",
        "torch.isnan(loss).any()",
        "not math.isfinite(loss.item())",
        "not torch.isfinite(loss)",
        "step > 5 and loss.isinf()",
        "float(loss) > 3 or step == 7",
        "max(loss.item(), 1.0) > 3",
        "(loss * 2).detach().cpu().numpy() > 3",
        "x.sum() == 0",
        "sum([loss.item()]) > 3",
        "0 < loss.item() < 3",
        "loss.item() not in (1, 2)",
        "1 if loss.item() > 3 else 0",
        "torch.tensor([1 if loss.item() > 3 else 0], dtype=torch.uint8).item()",
        "(3 if loss.isnan() else step) > 5",
        "time.time() > 3",
    ],
)
def test_a_test_of_the_ranks_own_batch(tmp_path: Path, test: str) -> None:
    body = f"{TURN}    if {test}:\n        continue\n    loss.backward()\n"
    assert undecided(tmp_path, body) == [test]


@pytest.mark.parametrize(
    "test",
    [
        "step > 5",
        "step % 2 and dist.get_world_size() > 1",
        "x.shape[0] < 2",
        "x.size(0) < 2",
        "len(x) < 2",
        "x is None",
        "isinstance(x, dict)",
        "x.dtype == torch.float32",
        "torch.zeros_like(loss).sum() > 0",
        "len(loader) > 3",
        "unknown(loss)",
        "unknown(loss) > 3",
    ],
)
def test_a_test_that_may_be_the_same_on_all_ranks(tmp_path: Path, test: str) -> None:
    body = f"{TURN}    if {test}:\n        continue\n    loss.backward()\n"
    assert undecided(tmp_path, body) == []


@pytest.mark.parametrize(
    "agreement",
    [
        "dist.all_reduce(loss)",
        "dist.broadcast(loss, src=0)",
        "dist.all_reduce(loss, group=unknown)",
        "losses = [torch.zeros(1)]; dist.all_gather(losses, loss); loss = torch.stack(losses).sum()",
        "seen = loss.detach(); dist.all_reduce(seen)",
        "handle = dist.all_reduce(loss, async_op=True); handle.wait()",
        "total = torch.zeros(2); total[0] += loss; dist.all_reduce(total); loss = total[0]",
        "total = torch.zeros(2); total[0] += loss.item(); unknown(total); loss = total[0]",
        "total = torch.zeros(2); total[0] += loss; dist.all_reduce(total); loss, _ = total.tolist()",
        "total = torch.zeros(2); total[0] += loss; dist.all_reduce(total); loss = total / total[1]",
        "dist.recv(loss, 0)",
        "dist.send(loss, 1) if dist.get_rank() == 0 else dist.recv(loss, 0)",
        "unknown(loss)",
        "reduced = [loss]; unknown(reduced)",
        "loss = torch.distributed.nn.functional.all_reduce(loss)",
    ],
)
def test_a_collective_clears(tmp_path: Path, agreement: str) -> None:
    body = f"{TURN}    {agreement}\n    if loss > 3:\n        continue\n    loss.backward()\n"
    assert undecided(tmp_path, body) == []


@pytest.mark.parametrize(
    "call", ["dist.reduce(loss, dst=0)", "dist.gather(loss, None)", "print(loss)"]
)
def test_a_collective_to_one_rank_clears_nothing(tmp_path: Path, call: str) -> None:
    body = f"{TURN}    {call}\n    if loss > 3:\n        continue\n    loss.backward()\n"
    assert undecided(tmp_path, body) == ["loss > 3"]


def test_a_number_stays_when_unknown_code_gets_it(tmp_path: Path) -> None:
    body = f"{TURN}    value = loss.item()\n    log(value)\n    if value > 3:\n        dist.barrier()\n"
    assert undecided(tmp_path, body) == ["value > 3"]


def test_both_sides_run_the_same_collectives(tmp_path: Path) -> None:
    body = """\
        if loss > 3:
            (loss * 0).backward()
        else:
            loss.backward()
        """
    assert undecided(tmp_path, TURN + textwrap.indent(textwrap.dedent(body), "    ")) == []


@pytest.mark.parametrize("end", ["raise ValueError(loss)", "exit(1)"])
def test_a_failing_check_ends_the_program(tmp_path: Path, end: str) -> None:
    body = f"{TURN}    if torch.isnan(loss):\n        {end}\n    loss.backward()\n"
    assert undecided(tmp_path, body) == []


def test_batches_of_a_dict(tmp_path: Path) -> None:
    body = """\
        for batch in loader:
            batch = {name: value.to("cpu") for name, value in batch.items()}
            output = model(**batch)
            if torch.isnan(output.loss):
                continue
            output.loss.backward()
        """
    assert undecided(tmp_path, body) == ["torch.isnan(output.loss)"]


def test_an_entry_of_a_batch(tmp_path: Path) -> None:
    body = """\
        for batch in loader:
            loss = model(batch["input"].cuda()).sum()
            if not torch.isfinite(loss):
                continue
            loss.backward()
        """
    assert undecided(tmp_path, body) == ["not torch.isfinite(loss)"]


def test_a_slice_by_rank(tmp_path: Path) -> None:
    body = """\
        rank = dist.get_rank()
        mine = torch.randn(16, 4)[rank::2]
        for x in DataLoader(TensorDataset(mine)):
            loss = model(x).sum()
            if loss > 3:
                loss.backward()
        """
    assert undecided(tmp_path, body) == ["loss > 3"]


def test_a_sampler_of_one_fixed_rank(tmp_path: Path) -> None:
    body = """\
        same = DistributedSampler(data, num_replicas=1, rank=0)
        for x, y in DataLoader(data, sampler=same):
            loss = model(x).sum()
            if loss > 3:
                loss.backward()
        """
    assert undecided(tmp_path, body) == []


def test_a_loop_that_ranks_leave_at_different_turns(tmp_path: Path) -> None:
    body = """\
        best, bad = math.inf, 0
        for epoch in range(9):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                loss.backward()
            if loss.item() < best:
                best = loss.item()
                bad = 0
            else:
                bad += 1
            if bad > 2:
                break
        dist.barrier()
        """
    assert undecided(tmp_path, body) == ["bad > 2"]


def test_an_object_that_counts(tmp_path: Path) -> None:
    body = """\
        class EarlyStopping:
            def __init__(self):
                self.best, self.bad, self.stop = math.inf, 0, False

            def __call__(self, loss):
                if loss < self.best:
                    self.best = loss
                    self.bad = 0
                else:
                    self.bad += 1
                    if self.bad > 2:
                        self.stop = True

        early = EarlyStopping()
        for epoch in range(9):
            for x, y in loader:
                loss = model(x).sum()
                loss.backward()
            early(loss.item())
            if early.stop:
                break
        """
    assert undecided(tmp_path, body) == ["early.stop"]


def test_a_while_loop_tests_what_its_last_turn_left(tmp_path: Path) -> None:
    body = """\
        loss = torch.tensor(math.inf)
        while loss.item() > 0.1:
            x, y = next(iter(loader))
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
        """
    assert undecided(tmp_path, body) == ["loss.item() > 0.1"]


def test_a_function_that_returns_early(tmp_path: Path) -> None:
    body = """\
        def step(x):
            loss = model(x).sum()
            if loss.isnan():
                return None
            loss.backward()

        for x, y in loader:
            step(x)
            dist.barrier()
        """
    assert undecided(tmp_path, body) == ["loss.isnan()"]


@pytest.mark.parametrize(
    "reduction",
    [
        "if args.distributed:\n    dist.all_reduce(loss)",
        "if args.single:\n    pass\nelse:\n    loss = unknown.reduce_mean(loss)",
        "loss = mean_over_ranks(loss)",
        "loss = loss if args.single else unknown.all_gather(loss)",
        "if torch.cuda.device_count() > 1 and args.fsdp:\n    dist.all_reduce(loss)",
    ],
)
def test_a_setting_skips_a_reduction(tmp_path: Path, reduction: str) -> None:
    body = """\
        import argparse
        args = argparse.ArgumentParser().parse_args()

        def mean_over_ranks(value):
            if not args.distributed:
                return value
            dist.all_reduce(value)
            return value
        """
    turn = textwrap.indent(f"{reduction}\nif loss > 3:\n    loss.backward()\n", "    ")
    assert undecided(tmp_path, textwrap.dedent(body) + TURN + turn) == []


@pytest.mark.parametrize(
    "loss",
    [
        "nn.MSELoss()",
        "torch.nn.SmoothL1Loss(reduction='sum')",
        "nn.CrossEntropyLoss().cuda()",
        "nn.L1Loss().to(torch.cuda.current_device())",
        "nn.MSELoss().train().float()",
    ],
)
def test_a_loss_object_computes_on_the_ranks_own_batch(tmp_path: Path, loss: str) -> None:
    body = f"""\
    criterion = {loss}
    for x, y in loader:
        value = criterion(model(x), y)
        if torch.isfinite(value):
            value.backward()
    """
    assert undecided(tmp_path, body) == ["torch.isfinite(value)"]


def test_a_negated_test_in_a_function(tmp_path: Path) -> None:
    body = f"""\
    def is_bad(value):
        return not math.isfinite(value.item())
    {textwrap.indent(TURN, "    ").strip()}
        if is_bad(loss):
            continue
        loss.backward()
    """
    assert undecided(tmp_path, body) == ["is_bad(loss)"]


RESTART = """\
batches = iter(loader)
for step in range(100):
    try:
        x, y = next(batches)
    except StopIteration:
        loader.sampler.set_epoch(step)
        batches = iter(loader)
        x, y = next(batches)
    loss = nn.functional.mse_loss(model(x), y)
"""


def test_a_loader_that_begins_again_at_its_end(tmp_path: Path) -> None:
    body = "    if torch.isnan(loss):\n        continue\n    loss.backward()\n"
    assert undecided(tmp_path, RESTART + body) == ["torch.isnan(loss)"]


@pytest.mark.parametrize(
    ("other", "tests"), [("y.sum()", ["seen > 3"]), ("0.5", []), ("unknown(y)", [])]
)
def test_values_of_several_turns(tmp_path: Path, other: str, tests: list[str]) -> None:
    body = f"""\
    if step % 2:
        seen = x.sum()
    else:
        seen = {other}
    if seen > 3:
        continue
    loss.backward()
    """
    assert undecided(tmp_path, TURN + textwrap.indent(textwrap.dedent(body), "    ")) == tests


@pytest.mark.parametrize("test", ["batch", "not batch"])
def test_whether_there_is_a_batch(tmp_path: Path, test: str) -> None:
    """Each rank has other data in its batch, but has one as the others do."""
    body = f"""
        for batch in loader:
            if {test}:
                continue
            model(batch[0])
        kept = next(iter(loader), None)
        if {test.replace("batch", "kept")}:
            model(torch.ones(2, 4))
    """
    assert undecided(tmp_path, body) == []
