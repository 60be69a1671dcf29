"""Bodies of `summon_full_params` that need whole parameters in full precision run as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import HEAD, migrated, plan
from two_ranks import TwoRanks

PROGRAM = """\
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(7, 7)

    def forward(self, x):
        return x + self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(7, 7)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.last = nn.Linear(7, 7)
        self.last.weight = self.first.weight

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def scale(model):
    for p in model.parameters():
        p.mul_(0.9)


dist.init_process_group("gloo")
torch.manual_seed(0)
rank = dist.get_rank()
plain = Net()
kept = bool(os.environ.get("KEPT", "1"))
model = FSDP(
    Net(),
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    use_orig_params=True,
    device_id=torch.device("cpu"),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
generator = torch.Generator().manual_seed(rank)
for step in range(3):
    loss = model(torch.randn(2, 7, generator=generator)).float().pow(2).mean()
    loss.backward()
    print("loss", round(loss.item(), 6))
BODY
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
BODIES = {
    "gradients": """
with FSDP.summon_full_params(model, with_grads=True):
    norm = sum(p.grad.norm() ** 2 for p in model.parameters()) ** 0.5
    for p in model.parameters():
        p.grad.mul_(0.5)
print("norm", round(norm.item(), 6))
""",
    "written by a function": """
with torch.no_grad(), FSDP.summon_full_params(model):
    scale(model)
""",
    "written in a part": """
with FSDP.summon_full_params(model, recurse=False):
    model.first.weight.data[0] = 0.5
""",
    "written and discarded": """
with FSDP.summon_full_params(model, writeback=False):
    for p in model.parameters():
        p.data.mul_(2)
    print("sum", round(sum(p.detach().sum() for p in model.parameters()).item(), 5))
""",
    "a state": """
with FSDP.summon_full_params(model, writeback=False):
    state = model.state_dict()
    if rank == 0:
        torch.save(state, "model.pt")
        plain.load_state_dict(torch.load("model.pt"))
        print("plain", round(plain(torch.ones(1, 7)).sum().item(), 5))
""",
    "a part that computes in full precision": """
with torch.no_grad(), FSDP.summon_full_params(model):
    print("part", model.first(torch.ones(1, 7)).sum().item())
""",
    "read on one rank": """
with FSDP.summon_full_params(model, writeback=False):
    if rank == 0:
        print("norms", [round(p.norm().item(), 5) for p in model.parameters()])
""",
    "options in several blocks": """
with FSDP.summon_full_params(model, writeback=kept, with_grads=True):
    print("grads", round(sum(p.grad.sum() for p in model.parameters()).item(), 5))
with FSDP.summon_full_params(model, writeback=False, rank0_only=True):
    if rank == 0:
        print("names", [name for name, p in model.named_parameters() if p.ndim == 2])
""",
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_body_runs_as_before(name: str, tmp_path: Path, two_ranks: TwoRanks) -> None:
    body = "\n".join(f"    {line}" if line else "" for line in BODIES[name].strip().split("\n"))
    program = PROGRAM.replace("BODY", body)
    found, after = plan(tmp_path, "", program)
    assert not found.blockers, found.blockers[0].reason
    assert "gathered_parameters(model" in after
    old, new = two_ranks.run(program), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert old.stdout.count("loss") == 6
    assert new.stdout == old.stdout


def test_the_context_manager_has_the_options_that_the_file_uses(tmp_path: Path) -> None:
    body = "model = FSDP(Net())\n" + "".join(
        f"with FSDP.summon_full_params(model, writeback={kept}, with_grads=True):\n"
        "    print([p.grad.norm() for p in model.parameters()])\n"
        for kept in (False, False)
    )
    _, text = plan(tmp_path, body)
    assert "def gathered_parameters(model):" in text
    assert "with gathered_parameters(model):" in text
    assert "distribute_tensor" not in text
    _, text = plan(tmp_path, body.replace("writeback=False, ", "", 1))
    assert "def gathered_parameters(model, writeback=True):" in text
    assert "with gathered_parameters(model):" in text
    assert "with gathered_parameters(model, writeback=False):" in text


BLOCKED = {
    "a forward of the whole model": "print(model(torch.ones(8)))",
    "a module that is given to code out of sight": "evaluate(model)",
    "a copy of the model": "copied = copy.deepcopy(model)",
    "parameters that the optimizer holds": "print(optimizer.param_groups[0]['params'][0].norm())",
    "parameters from before the block": "print(before[0].norm())",
}


@pytest.mark.parametrize("body", BLOCKED.values(), ids=BLOCKED)
def test_what_blocks(body: str, tmp_path: Path) -> None:
    found, _ = plan(
        tmp_path,
        "import copy\nfrom elsewhere import evaluate\n"
        "model = FSDP(Net(), mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "before = list(model.parameters())\n"
        f"with FSDP.summon_full_params(model):\n    {body}\n",
        HEAD,
    )
    assert any("summon_full_params" in one.reason for one in found.blockers)


def test_the_context_manager_has_a_name_of_its_own(tmp_path: Path) -> None:
    text = migrated(
        tmp_path,
        """
        group = dist.new_group([0, 1])
        model = FSDP(Net(), process_group=group, sync_module_states=True, device_id=local_rank)
        with FSDP.summon_full_params(model):
            model.head.weight.data.clamp_(-1, 1)
        """,
    )
    assert "\nfull_parameters = dict(" in text
    assert "with gathered_parameters(model):" in text
