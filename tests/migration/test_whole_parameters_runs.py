"""Blocks of `summon_full_params` give the same numbers on two ranks after the migration."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """\
import copy
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return x + self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 16)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def generate(self, x):
        for _ in range(2):
            x = x + self(x).sum()
        return x


def norm_of_gradients(model):
    total = torch.tensor(0.0)
    for p in model.parameters():
        if p.grad is None:
            continue
        total += p.grad.norm(dtype=torch.float32) ** 2
    dist.all_reduce(total)
    return total.item() ** 0.5


def ranks_with_nan(model):
    found = torch.tensor(0.0)
    for p in model.parameters():
        if p.grad is not None and not torch.isfinite(p.grad).all():
            found += 1
            break
    dist.all_reduce(found)
    return found.item()


def clean(model):
    for p in model.parameters():
        if p.grad is not None:
            torch.nan_to_num(p.grad, nan=0.5, out=p.grad)
            p.grad.clamp_(-0.01, 0.25)


dist.init_process_group("gloo")
torch.manual_seed(0)
device = torch.device("cpu")
model = Net()
averaged = copy.deepcopy(model)
model = FSDP(
    model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=device, use_orig_params=True
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(dist.get_rank())
shadow = {}
with FSDP.summon_full_params(model, writeback=False):
    for name, parameter in model.named_parameters():
        shadow[name] = parameter.detach().clone()
for step in range(3):
    loss = model(torch.randn(2, 16, generator=generator)).pow(2).mean()
    (loss * float("nan") if step == 1 else loss).backward()
    print(f"ranks with nan {ranks_with_nan(model)}")
    clean(model)
    print(f"norm {norm_of_gradients(model):.5f}")
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.9f}")
    with torch.no_grad(), FSDP.summon_full_params(model, writeback=False):
        for name, parameter in model.named_parameters():
            shadow[name].mul_(0.9).add_(parameter, alpha=0.1)
    with torch.no_grad(), FSDP.summon_full_params(model):
        for old, new in zip(averaged.parameters(), model.parameters()):
            old.lerp_(new, 0.1)
print("averaged", [f"{p.norm().item():.9f}" for p in averaged.parameters()])
model.eval()
with torch.no_grad():
    model(torch.ones(2, 16))
    with FSDP.summon_full_params(model, writeback=False, recurse=False):
        print(f"generated {model.generate(torch.ones(2, 16)).sum().item():.9f}")
with torch.no_grad():
    with FSDP.summon_full_params(model):
        for name, parameter in model.named_parameters():
            if name in shadow:
                parameter.data.copy_(shadow[name])
            parameter.data.mul_(0.5)
model.train()
loss = model(torch.ones(2, 16)).pow(2).mean()
loss.backward()
optimizer.step()
print(f"after {loss.item():.9f}")
with FSDP.summon_full_params(model, writeback=False, rank0_only=True):
    if dist.get_rank() == 0:
        print("norms", [f"{p.norm().item():.9f}" for p in model.parameters()])
dist.destroy_process_group()
"""


def test_the_parameters_and_losses_are_the_same(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FullyShardedDataParallel" not in after
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert "generated" in old.stdout and "norms" in old.stdout
    assert new.stdout == old.stdout


HEAD, _, _ = PROGRAM.partition("def norm_of_gradients")
AVERAGING = (
    HEAD.replace(" as FSDP\n", " as FSDP, MixedPrecision\n", 1)
    + """\
class Average:
    def __init__(self, fsdp_model):
        self.shadow = {}
        self._start(fsdp_model)

    @torch.no_grad()
    def _start(self, fsdp_model):
        with FSDP.summon_full_params(fsdp_model, writeback=False):
            for name, p in fsdp_model.module.named_parameters():
                self.shadow[name] = p.detach().clone().float().cpu()

    @torch.no_grad()
    def update(self, fsdp_model):
        with FSDP.summon_full_params(fsdp_model, writeback=False):
            for name, p in fsdp_model.module.named_parameters():
                self.shadow[name].mul_(0.9).add_(p.detach().float().cpu(), alpha=0.1)

    def state_dict(self):
        return self.shadow

    def copy_to(self, fsdp_model):
        with FSDP.summon_full_params(fsdp_model, writeback=True):
            for name, p in fsdp_model.module.named_parameters():
                if name in self.shadow:
                    p.data.copy_(self.shadow[name].to(p.dtype))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(
    Net(),
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    mixed_precision=MixedPrecision(param_dtype=getattr(torch, PRECISION), reduce_dtype=torch.float32),
    device_id=torch.device("cpu"),
    use_orig_params=True,
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = Average(model)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(3):
    model(torch.randn(2, 16, generator=generator)).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update(model)
state = average.state_dict()
print("average", [(n.replace("_fsdp_wrapped_module.", ""), p.tolist()) for n, p in state.items()])
name = "copy_to"
getattr(average, name)(model)
average.shadow = {name: torch.zeros_like(p) for name, p in average.shadow.items()}
average.update(model)
print("copied", [p.tolist() for p in average.shadow.values()])
dist.destroy_process_group()
"""
)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_averages_are_the_same(precision: str, tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    code = AVERAGING.replace("PRECISION", f'"{precision}"')
    path.write_text(code, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FullyShardedDataParallel" not in after and after.count("full_tensor()") == 2
    assert "distribute_tensor(" in after
    old, new = two_ranks.run(code), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert "copied" in old.stdout
    assert new.stdout == old.stdout
