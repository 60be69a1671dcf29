"""Optimizers that are built before the model is wrapped."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

BEFORE = """net = Net()
# All of them.
optimizer = torch.optim.SGD(net.parameters(), lr=1)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1.0)
print("built")
model = FSDP(net, use_orig_params=True, auto_wrap_policy=ModuleWrapPolicy({Block}))
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
"""
AFTER = """net = Net()
print("built")
for module in reversed(list(net.modules())):
    if isinstance(module, Block):
        fully_shard(module)
model = fully_shard(net)
# All of them.
optimizer = torch.optim.SGD(net.parameters(), lr=1)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1.0)
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
"""
FLAT = "updates the model"


def test_the_optimizer_moves_behind_the_sharding(tmp_path: Path) -> None:
    assert migrated(tmp_path, BEFORE).strip() == AFTER.strip()


def test_it_moves_behind_the_branch_that_shards(tmp_path: Path) -> None:
    body = """
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    if os.environ.get("SHARD"):
        model = FSDP(model, use_orig_params=True)
    model(torch.ones(2, 8))
    """
    text = migrated(tmp_path, body)
    assert text.strip() == textwrap.dedent("""    model = Net()
    if os.environ.get("SHARD"):
        fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    model(torch.ones(2, 8))""")


@pytest.mark.parametrize(("options", "flat"), [("use_orig_params=True, ", False), ("", True)])
def test_flat_parameters_are_not_what_the_optimizer_holds(
    options: str, flat: bool, tmp_path: Path
) -> None:
    found, _ = plan(tmp_path, BEFORE.replace("use_orig_params=True, ", options))
    assert not found.blockers
    assert [note.unsafe for note in found.notes if FLAT in note.text] == [True] * flat


@pytest.mark.parametrize("line", ["optimizer.zero_grad()", "run(optimizer)"])
def test_an_optimizer_that_other_code_uses_blocks(line: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, BEFORE.replace('print("built")', line))
    assert any("built before the model is wrapped" in b.reason for b in found.blockers)
