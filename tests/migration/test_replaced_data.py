"""`parameter.data = values` on a model that is sharded."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

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


AVERAGE = """
def update(average, model, decay=0.9):
    with torch.no_grad():
        for p, other in zip(model.parameters(), average.parameters()):
            other.data = decay * other.data + (1 - decay) * p.data


model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
average = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
update(average, model)
"""


@pytest.mark.parametrize(
    ("values", "copied"),
    [
        ("decay * other.data + (1 - decay) * p.data", True),
        ("other.data.mul(decay).add(p.data, alpha=1 - decay)", True),
        ("p.data", False),
        ("other.data @ p.data", False),
        ("other.data.to(torch.bfloat16)", False),
    ],
)
def test_values_that_are_computed_from_the_old_ones(
    values: str, copied: bool, tmp_path: Path
) -> None:
    old = "decay * other.data + (1 - decay) * p.data"
    found, text = plan(tmp_path, AVERAGE.replace(old, values))
    if copied:
        assert f"other.data.copy_({values})" in text
    else:
        assert [one.blocker.code for one in found.blockers] == ["FSDP299-data-replaced"]


@pytest.mark.parametrize(
    ("kept", "copied"),
    [
        ("p.data", False),
        ("p.detach()", False),
        ("p.data.clone()", True),
        ("p.detach().clone()", True),
        ("p.detach() * 2", True),
    ],
)
def test_a_tensor_of_old_values_that_other_code_keeps(
    kept: str, copied: bool, tmp_path: Path
) -> None:
    body = AVERAGE + f"backup = [{kept} for p in average.parameters()]\nupdate(average, model)\n"
    found, _ = plan(tmp_path, body)
    codes = {one.blocker.code for one in found.blockers}
    assert ("FSDP299-data-replaced" in codes) != copied


@pytest.mark.parametrize(
    ("line", "copied"),
    [
        ("size = average.blocks[0].linear.weight.data[:1].norm()", True),
        ("first = average.blocks[0].linear.weight.data[:1]", False),
        ("zeros = torch.zeros_like(average.blocks[0].linear.weight.data)", True),
        ("joined = torch.cat([average.blocks[0].linear.weight.data, torch.ones(1, 8)])", True),
        ("held = [average.blocks[0].linear.weight.data]", False),
        ("held = other.blocks[0].linear.weight.data", True),
    ],
)
def test_code_that_reads_old_values(line: str, copied: bool, tmp_path: Path) -> None:
    body = AVERAGE.replace("average = FSDP", "other = Net()\naverage = FSDP")
    found, _ = plan(tmp_path, body + f"{line}\nupdate(average, model)\n")
    codes = {one.blocker.code for one in found.blockers}
    assert ("FSDP299-data-replaced" in codes) != copied


def test_data_of_other_tensors(tmp_path: Path) -> None:
    body = AVERAGE + "loss = model(torch.ones(2, 8)).sum()\nvalue = loss.data.cpu()\n"
    assert not plan(tmp_path, body)[0].blockers


RUN = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
device = torch.device("cpu")
model = FSDP(nn.Linear(4, 4), use_orig_params=True, device_id=device)
average = FSDP(nn.Linear(4, 4), use_orig_params=True, device_id=device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(2, 4)).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for p, other in zip(model.parameters(), average.parameters()):
            other.data = 0.9 * other.data + 0.1 * p.data
for name, value in sorted(average.state_dict().items()):
    print(dist.get_rank(), name, f"{value.sum().item():.5f}")
dist.destroy_process_group()
"""


def test_the_copied_values_are_used(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(RUN, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert ".data.copy_(" in after
    runs = [two_ranks.run(text, timeout=600) for text in (RUN, after)]
    assert [run.status for run in runs] == ["ok", "ok"], "\n".join(map(str, runs))
    assert len(set(runs[0].stdout.split())) == 6
    assert sorted(runs[1].stdout.splitlines()) == sorted(runs[0].stdout.splitlines())
