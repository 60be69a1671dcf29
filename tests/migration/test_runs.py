"""Programs with policies that become small local functions, run before and after on two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """\
import functools

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        return self.linear(x) + self.attention(x, x, x)[0]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def function_policy(module, recurse, nonwrapped_numel):
    if recurse:
        return not isinstance(module, nn.MultiheadAttention)
    return nonwrapped_numel >= 200


def choose(kind):
    if kind == "function":
        return function_policy
    if kind == "size":
        return functools.partial(size_based_auto_wrap_policy, min_num_params=100)
    return Config().policy


class Config:
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(
    Net(), auto_wrap_policy=choose(KIND), device_id=torch.device("cpu"), use_orig_params=True
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(3):
    loss = model(torch.randn(2, 3, 16, generator=generator)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.7f}")
print(sum(isinstance(module, FSDP) for module in model.modules()), "units")
dist.destroy_process_group()
"""


HANDED = """\
def shard(model, *, policy):
    return FSDP(
        model, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True
    )


class Builder:
    def build(self, net):
        return shard(
            net, policy=functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in net.blocks)
        )


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Builder().build(Net())
"""


RECURSING = "lambda module, recurse, **rest: recurse or isinstance(module, Block)"
GIVEN = """\
arguments = {"use_orig_params": True}
if dist.is_initialized():
    arguments["sharding_strategy"] = ShardingStrategy.FULL_SHARD
if dist.get_world_size() == 2:
    arguments["sharding_strategy"] = ShardingStrategy.NO_SHARD
logging.info("wrapping with %s", arguments)
model = FSDP(
    Net(), auto_wrap_policy=choose(KIND), device_id=torch.device("cpu"), **arguments
)
"""


@pytest.mark.parametrize("kind", ["size", "class", "handed", "function", "lambda"])
def test_a_policy_shards_the_same_modules(kind: str, tmp_path: Path, two_ranks: TwoRanks) -> None:
    if kind in ("function", "lambda"):
        code = PROGRAM.replace("choose(KIND)", RECURSING if kind == "lambda" else "function_policy")
        start, end = code.index("def choose"), code.index("dist.init_process_group")
        code = code[:start] + code[end:]
    elif kind == "handed":
        start, end = PROGRAM.index("def function_policy"), PROGRAM.index("optimizer =")
        code = PROGRAM[:start] + HANDED + PROGRAM[end:]
        code = code.replace("transformer_auto_wrap_policy", "lambda_auto_wrap_policy")
    else:
        start, end = (
            PROGRAM.index('    if kind == "function"'),
            PROGRAM.index('    if kind == "size"'),
        )
        code = PROGRAM[:start] + PROGRAM[end:]
        if kind == "class":
            start, end = code.index("model = FSDP"), code.index("optimizer =")
            code = "import logging\n" + code[:start] + GIVEN + code[end:]
            code = code.replace("import Fully", "import ShardingStrategy, Fully")
        code = code.replace("KIND", repr(kind))
    path = tmp_path / "train.py"
    path.write_text(code, encoding="utf-8")
    result = fix(Workspace([path]), [rule() for rule in all_rules()])
    assert "FullyShardedDataParallel" not in result.texts[path]
    before, after = two_ranks.run(code), two_ranks.run(result.texts[path])
    assert before.status == "ok", str(before)
    assert after.status == "ok", str(after)
    assert "units" in before.stdout
    assert after.stdout == before.stdout


STATES = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def take(model, first_only):
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=first_only)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        return model.state_dict()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 2)), device_id=torch.device("cpu"))
for first_only in (True, False):
    state = take(model, first_only)
    found = [None, None]
    dist.all_gather_object(found, {name: value.tolist() for name, value in state.items()})
    if dist.get_rank() == 0:
        print(first_only, found)
parts = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 2))
for index, layer in enumerate(parts):
    parts[index] = FSDP(layer, device_id=torch.device("cpu"))
parts.load_state_dict({name: value * 2 for name, value in parts.state_dict().items()})
print({name: value.tolist() for name, value in parts.state_dict().items()})
dist.destroy_process_group()
"""


def test_a_state_is_on_the_ranks_that_the_program_chooses(
    tmp_path: Path, two_ranks: TwoRanks
) -> None:
    path = tmp_path / "train.py"
    path.write_text(STATES, encoding="utf-8")
    text = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "cpu_offload=first_only" in text
    before, after = two_ranks.run(STATES), two_ranks.run(text)
    assert before.status == after.status == "ok", f"{before}\n{after}"
    assert "True [{'0.weight': [[" in before.stdout and "}, {}]\nFalse" in before.stdout
    assert after.stdout == before.stdout


ALONE = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import enable_wrap, wrap

dist.init_process_group("nccl", world_size=1, rank=0)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
with enable_wrap(wrapper_cls=FSDP, cpu_offload=CPUOffload(offload_params=True)):
    for name, layer in model.named_children():
        setattr(model, name, wrap(layer))
    model = wrap(model)
with torch.no_grad():
    print(model(torch.ones(2, 6).cuda()).tolist())
print({parameter.device.type for parameter in model.parameters()})
dist.destroy_process_group()
"""


def test_one_rank_offloads_without_a_device(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(ALONE, encoding="utf-8")
    result = fix(Workspace([path]), [rule() for rule in all_rules()])
    assert "FullyShardedDataParallel" not in result.texts[path]
    before, after = two_ranks.run(ALONE, world=1), two_ranks.run(result.texts[path], world=1)
    assert before.status == "ok", str(before)
    assert after.status == "ok", str(after)
    assert after.stdout == before.stdout
