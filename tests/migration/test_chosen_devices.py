"""Devices that a list chooses for each rank, where the program sets another one as the current device."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import HEAD, migrated, plan

PROGRAM = """
def shard(model, gpus):
    rank = dist.get_rank()
    device = torch.device(f"cuda:{gpus[rank]}")
    MORE
    return FSDP(model.to(device), device_id=device)


model = shard(Net(), [int(gpu) for gpu in os.environ["GPUS"].split(",")])
"""
SETS = "torch.cuda.set_device(device)"


@pytest.mark.parametrize("more", ["pass", "torch.cuda.set_device(rank)"])
def test_the_device_becomes_the_current_one(more: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, PROGRAM.replace("MORE", more))
    assert SETS in text and text.index(SETS) < text.index("fully_shard(")


@pytest.mark.parametrize("more", [SETS, "torch.cuda.set_device(gpus[rank])"])
def test_the_program_sets_it(more: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, PROGRAM.replace("MORE", more))
    assert text.count("set_device(") == 1


def test_the_rank_itself(tmp_path: Path) -> None:
    text = migrated(tmp_path, "model = FSDP(Net(), device_id=dist.get_rank() % 4)")
    assert "set_device(" not in text


TWO = """
device = torch.device("cuda", local_rank)


def shard(net):
    net.blocks[0] = FSDP(net.blocks[0], device_id=device)
    BETWEEN
    return FSDP(net, device_id=device)


model = shard(Net())
"""
UNSET = HEAD.replace("torch.cuda.set_device(local_rank)\n", "")


@pytest.mark.parametrize(
    ("between", "lines"),
    [
        ("print(net)", 1),
        (
            "if len(net.blocks) > 1:\n        net.blocks[1] = FSDP(net.blocks[1], device_id=device)",
            2,
        ),
    ],
)
def test_a_device_is_set_once_in_a_block(between: str, lines: int, tmp_path: Path) -> None:
    found, text = plan(tmp_path, TWO.replace("BETWEEN", between), UNSET)
    assert not found.blockers
    assert text.count("torch.cuda.set_device(device)\n") == lines


def test_another_device_is_set_again(tmp_path: Path) -> None:
    body = TWO.replace("net):\n", "net, device):\n").replace("Net())\n", "Net(), device)\n")
    between = "device = torch.device('cuda', int(os.environ['LOCAL_RANK']))"
    found, text = plan(tmp_path, body.replace("BETWEEN", between), UNSET)
    assert not found.blockers
    assert text.count("torch.cuda.set_device(device)\n") == 2


KEPT = """
class Strategy:
    def __init__(self, device):
        self.device = device

    def wrap(self, model):
        return FSDP(model, device_id=self.device)


class Plain(Strategy):
    def wrap(self, model):
        return model.to(self.device)


def main():
    device = DEVICE
    kind = os.environ.get("KIND", "fsdp")
    if kind == "fsdp":
        strategy = Strategy(device)
    elif kind == "plain":
        strategy = Plain(device)
    else:
        raise ValueError(kind)
    strategy.wrap(Net())


main()
"""
GUARDED = "        if torch.cuda.is_available():\n            torch.cuda.set_device(self.device)\n"


@pytest.mark.parametrize(
    ("chosen", "guarded"),
    [
        (
            'torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")',
            True,
        ),
        (
            'torch.device(f"cuda:{local_rank}") if torch.cuda.is_available() else torch.device("cpu")',
            True,
        ),
        ('torch.device("cuda", local_rank)', False),
    ],
)
def test_a_device_that_may_be_the_cpu_is_not_set(
    chosen: str, guarded: bool, tmp_path: Path
) -> None:
    head = UNSET.replace('"nccl"', '"nccl" if torch.cuda.is_available() else "gloo"')
    text = plan(tmp_path, "", head + KEPT.replace("DEVICE", chosen))[1]
    assert "torch.cuda.set_device(self.device)" in text
    assert (GUARDED in text) is guarded
