"""Programs with attributes of the wrapper give the same numbers on two ranks after the migration."""

from __future__ import annotations

from pathlib import Path

from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """\
import functools
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import enable_wrap, wrap


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return x + self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.blocks(x))


def no_bias(module):
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(4):
        if step % 2:
            context = nullcontext()
        else:
            context = model.no_sync()
        with context:
            loss = model(torch.randn(2, 16, generator=generator)).pow(2).mean()
            loss.backward()
        if step % 2:
            norm = model.clip_grad_norm_(0.5, norm_type=1.0)
            print(f"norm {norm.item():.3f}")  # summed in another order
            optimizer.step()
            optimizer.zero_grad()
        print(f"loss {loss.item():.7f}")


def accumulate(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(4):
        for part in range(3):
            maybe_no_sync = nullcontext
            if isinstance(model, FSDP) and part != 2:
                maybe_no_sync = model.no_sync
            with maybe_no_sync():
                if step == 1 and part == 1:
                    break
                loss = model(torch.randn(2, 16, generator=generator)).pow(2).mean()
                loss.backward()
        if step % 2:  # reduces what was held back
            model(torch.randn(2, 16, generator=generator)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        print("part", loss.item())


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Net()
with enable_wrap(wrapper_cls=FSDP, device_id=torch.device("cpu"), use_orig_params=True):
    for name, block in net.blocks.named_children():
        setattr(net.blocks, name, wrap(block))
    model = wrap(net)
model.apply(no_bias)
train(model)
shard = functools.partial(FSDP, device_id=torch.device("cpu"), use_orig_params=True)
other = Net()
other.blocks = shard(other.blocks)
other = shard(other)
accumulate(other)
train(other)
print(other.world_size, other.process_group.size(), len(FSDP.fsdp_modules(other)))
accumulate(nn.parallel.DistributedDataParallel(Net()))
dist.destroy_process_group()
"""


def test_the_losses_and_norms_are_the_same(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    for gone in ("FullyShardedDataParallel", "enable_wrap", "no_sync"):
        assert gone not in after
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert old.stdout.count("norm") == 8 and old.stdout.count("part") == 16
    assert new.stdout == old.stdout


CHOSEN = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def build(strategy):
    return FSDP(
        nn.Sequential(nn.Linear(4, 4)),
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        sharding_strategy=strategy,
        device_id=torch.device("cpu"),
    )


def report(model):
    ranks = dist.get_process_group_ranks(model.process_group)
    print(ranks, model.rank, model.world_size)


dist.init_process_group("gloo")
for per_node in (1, 2):
    torch.cuda.device_count = torch.cpu.device_count = lambda: per_node
    for kind in ("HYBRID_SHARD", "FULL_SHARD", "NO_SHARD"):
        report(build(ShardingStrategy[kind]))
dist.barrier()  # none may end while another still connects the last group
dist.destroy_process_group()
"""


def test_the_shard_group_is_the_same(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(CHOSEN, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert after.count("(sharding_group(model))") == 3
    old, new = two_ranks.run(CHOSEN), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert "[0] 0 1" in old.stdout and "[0, 1] 0 2" in old.stdout
    assert new.stdout == old.stdout
