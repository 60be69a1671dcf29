"""Policies of mixed precision that are chosen while a program runs, before and after on two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.migration.planner import plans_of
from fsdplint.registry.rules import all_rules

PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import CustomPolicy

POLICIES = {
    "all": MixedPrecision(
        param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16, cast_forward_inputs=True
    ),
    "root": MixedPrecision(torch.bfloat16, torch.float32, torch.float32),
    "reduce": MixedPrecision(reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16),
    "none": None,
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("scale", torch.rand(8))

    def forward(self, x, mask):
        types.add((x.dtype, mask.dtype, self.scale.dtype))
        return self.linear(x) * mask.to(x.dtype) * self.scale.to(x.dtype)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x, torch.full((8,), 0.3, dtype=torch.float32))
        return x


def is_block(module):
    return isinstance(module, Block)


dist.init_process_group("gloo")
for name, precision in POLICIES.items():
    types = set()
    torch.manual_seed(0)
    model = FSDP(
        Net(),
        auto_wrap_policy=CustomPolicy(is_block),
        mixed_precision=precision,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(2):
        loss = model(torch.randn(2, 8, generator=generator)).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(dist.get_rank(), name, f"{loss.item():.7f}", *sorted(map(str, types)))
dist.destroy_process_group()
"""


def test_a_policy_keeps_its_meaning(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FullyShardedDataParallel" not in after
    runs = [two_ranks.run(text, timeout=600) for text in (PROGRAM, after)]
    assert [run.status for run in runs] == ["ok", "ok"], "\n".join(map(str, runs))
    assert len(runs[0].stdout.splitlines()) == 16
    assert sorted(runs[1].stdout.splitlines()) == sorted(runs[0].stdout.splitlines())


META = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(8))
        self.register_buffer("shift", torch.zeros(8))

    def reset_parameters(self):
        nn.init.normal_(self.factor)
        nn.init.normal_(self.shift)

    def forward(self, x):
        return x * self.factor + self.shift


class Block(nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.inner = inner

    def forward(self, x):
        return self.linear(x if self.inner is None else self.inner(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block(Block()))
        self.norm = nn.Sequential(nn.LayerNorm(8), Scale())

    def forward(self, x):
        return self.norm(self.blocks(x))


def materialize(module):
    module.to_empty(device="cpu", recurse=False)
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()


dist.init_process_group("gloo")
for on_meta in (True, False):
    torch.manual_seed(0)
    with torch.device("meta" if on_meta else "cpu"):
        model = Net()
    model = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        param_init_fn=materialize if on_meta else None,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        state = model.state_dict()
    for name, tensor in state.items():
        print(dist.get_rank(), on_meta, name, tensor.tolist())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(2):
        loss = model(torch.randn(2, 8, generator=generator))[:, 0].exp().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(dist.get_rank(), on_meta, f"{loss.item():.7f}")
dist.destroy_process_group()
"""


# FSDP1 resets each module by itself where it gets no function.
RESET = META.replace("        param_init_fn=materialize if on_meta else None,\n", "")


# The same with other policies.
BLOCKS = """
def blocks(module, recurse, nonwrapped_numel):
    return recurse or (isinstance(module, Block) and nonwrapped_numel > 10)


"""
BY_FUNCTION = META.replace("ModuleWrapPolicy({Block})", "blocks").replace(
    "\n\ndist.init", f"\n{BLOCKS}dist.init"
)
BY_SIZE = RESET.replace(
    "ModuleWrapPolicy({Block})", "partial(size_based_auto_wrap_policy, min_num_params=70)"
).replace("import ModuleWrapPolicy", "import size_based_auto_wrap_policy")
BY_SIZE = f"from functools import partial\n{BY_SIZE}"
ON_META = {"function": META, "reset": RESET, "policy function": BY_FUNCTION, "size": BY_SIZE}


@pytest.mark.parametrize("program", list(ON_META.values()), ids=list(ON_META))
def test_the_meta_device_gives_the_same_weights(
    program: str, tmp_path: Path, two_ranks: TwoRanks
) -> None:
    path = tmp_path / "train.py"
    path.write_text(program, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FullyShardedDataParallel" not in after
    runs = [two_ranks.run(text, timeout=600) for text in (program, after)]
    assert [run.status for run in runs] == ["ok", "ok"], "\n".join(map(str, runs))
    assert len(runs[0].stdout.splitlines()) == 48
    assert sorted(runs[1].stdout.splitlines()) == sorted(runs[0].stdout.splitlines())


IGNORED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = nn.Linear(8, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x):
        x = x + self.side(x)
        for layer in self.layers:
            x = layer(x)
        return x


def linear(module, recurse, nonwrapped_numel):
    return recurse or isinstance(module, nn.Linear)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
model.side.requires_grad_(False)
model = FSDP(
    model,
    auto_wrap_policy=linear,
    ignored_modules=[model.side],
    device_id=torch.device("cpu"),
    use_orig_params=True,
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(2):
    loss = model(torch.randn(2, 8, generator=generator)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(dist.get_rank(), f"{loss.item():.7f}", len(FSDP.fsdp_modules(model)))
dist.destroy_process_group()
"""


def test_a_policy_function_does_not_see_ignored_modules(
    tmp_path: Path, two_ranks: TwoRanks
) -> None:
    path = tmp_path / "train.py"
    path.write_text(IGNORED, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "shard_by_policy(model, linear, " in after
    runs = [two_ranks.run(text, timeout=600) for text in (IGNORED, after)]
    assert [run.status for run in runs] == ["ok", "ok"], "\n".join(map(str, runs))
    assert len(runs[0].stdout.splitlines()) == 4
    assert sorted(runs[1].stdout.splitlines()) == sorted(runs[0].stdout.splitlines())


def test_a_policy_of_another_file_in_a_branch_that_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "wrapping.py").write_text(
        "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n\n\n"
        "def blocks(kinds):\n    return ModuleWrapPolicy(kinds)\n"
    )
    train = tmp_path / "train.py"
    train.write_text(
        "import torch\nimport torch.nn as nn\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from wrapping import blocks\n\n\ndef main(other=False):\n    torch.cuda.set_device(0)\n"
        "    if other:\n        policy = blocks({nn.Conv2d})\n    else:\n"
        "        policy = blocks({nn.Linear})\n"
        "    return FSDP(nn.Sequential(nn.Linear(2, 2)), auto_wrap_policy=policy)\n\n\nmain()\n"
    )
    (found,) = plans_of(load([train, tmp_path / "wrapping.py"]))
    assert not found.blockers, [blocker.reason for blocker in found.blockers]
