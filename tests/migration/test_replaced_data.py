"""`parameter.data = values` on a model that is sharded."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import plan
from two_ranks import TwoRanks

SWAP = """
class Average:
    def __init__(self, parameters):
        self.values = [p.data.clone() for p in parameters]

    def swap(self, parameters):
        for average, p in zip(self.values, parameters):
            p.data = average


net = Net()
for p in net.parameters():
    p.data = p.data.to(torch.float32)
model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
average = Average(model.parameters())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
SWAPPED
"""


@pytest.mark.parametrize("to", ["model.parameters()", "[p for p in model.blocks[0].parameters()]"])
def test_assigned_data_blocks(to: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, SWAP.replace("SWAPPED", f"average.swap({to})"))
    (blocker,) = found.blockers
    assert blocker.reason.startswith("`p.data` gets a new tensor, and FSDP2 ignores it")


def test_data_assigned_before_the_sharding_does_not(tmp_path: Path) -> None:
    body = SWAP.replace("SWAPPED", "").replace("p.data = average", "p.data.copy_(average)")
    found, _ = plan(tmp_path, body.replace("SWAPPED", "average.swap(model.parameters())"))
    assert not found.blockers


def test_fsdp2_does_not_read_assigned_data(two_ranks: TwoRanks) -> None:
    outcome = two_ranks.run("""
        import torch
        import torch.distributed as dist
        import torch.nn as nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

        dist.init_process_group("gloo")
        for own in (True, False):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(4, 4, bias=False))
            if own:
                model = FSDP(model, use_orig_params=True, device_id=torch.device("cpu"))
            else:
                fully_shard(model)
            x = torch.ones(1, 4)
            model(x).sum().backward()
            for p in model.parameters():
                p.data = torch.zeros_like(p.data)
            result = model(x).abs().sum().item()
            assert (result == 0.0) == own, (own, result)
    """)
    assert outcome.status == "ok", outcome.error
