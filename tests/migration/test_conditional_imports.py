"""One name that is torch's FSDP class in one configuration, and another library's in the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_ranks import TwoRanks

from fsdplint.diagnostics.finding import Fix, Safety
from fsdplint.edits.apply import apply
from fsdplint.interpreter import load
from fsdplint.migration.plan import Plan
from fsdplint.migration.planner import plans_of

OTHER = """\
try:
    import torch_xla.core.xla_model as xm
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
except ImportError:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    xm = None
"""
NET = """\
import os
import torch
import torch.nn as nn
"""


def plan(tmp_path: Path, files: dict[str, str]) -> tuple[Plan, dict[str, str]]:
    """The plan of some files and their texts after it."""
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    program = load([tmp_path / name for name in files])
    (found,) = plans_of(program)
    texts = dict(files)
    if not found.blockers:
        whole = Fix(
            "", Safety.SAFE, found.edits, found.imports, found.group, found.maybe_unused_imports
        )
        applied = apply(program.sources, [whole])
        assert not applied.broken
        texts.update({Path(path).name: text for path, text in applied.texts.items()})
    return found, texts


def body_of(tmp_path: Path, choice: str, body: str) -> str:
    found, texts = plan(tmp_path, {"train.py": NET + choice + body})
    assert not found.blockers, [(b.reason, b.source.code(b.node)) for b in found.blockers]
    return texts["train.py"].removeprefix(NET)


def test_the_other_library_is_left_alone(tmp_path: Path) -> None:
    assert body_of(
        tmp_path,
        OTHER,
        """\

def build(model):
    if xm:
        return FSDP(model, reshard_after_forward=True, compute_dtype=torch.bfloat16)
    else:
        return FSDP(model)


build(nn.Linear(8, 8))
""",
    ) == OTHER.replace(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP",
        "from torch.distributed.fsdp import fully_shard",
    ) + (
        """\

def build(model):
    if xm:
        return FSDP(model, reshard_after_forward=True, compute_dtype=torch.bfloat16)
    else:
        return fully_shard(model)


build(nn.Linear(8, 8))
"""
    )


CHOSEN = """\
if os.environ.get("USE_XLA"):
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
else:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
"""
FLAG = """\
USE_XLA = "xla" in os.environ["DEVICE"]
if USE_XLA:
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
else:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
"""


@pytest.mark.parametrize(
    ("choice", "body"),
    [
        (OTHER, "model = FSDP(net, flatten_parameters=True) if xm is not None else FSDP(net)\n"),
        (CHOSEN, 'if os.environ.get("USE_XLA"):\n    m = FSDP(net, 1)\nelse:\n    m = FSDP(net)\n'),
        (FLAG, "if not USE_XLA and net:\n    m = FSDP(net)\nelif USE_XLA:\n    FSDP(net, 1)\n"),
        (
            OTHER,
            "class Trainer:\n    def __init__(self, net):\n        if xm is None:\n"
            "            self._wrap(net)\n\n    def _wrap(self, net):\n        FSDP(net)\n\n\n"
            "Trainer(net)\n",
        ),
        (
            OTHER,
            "def build():\n    if xm:\n        return FSDP(net, 1)\n    print('FSDP')\n"
            "    return FSDP(net)\n\n\nbuild()\n",
        ),
        (
            OTHER,
            "if xm:\n    m = FSDP(net, 1)\nelse:\n    m = FSDP(net)\nif xm:\n"
            "    torch.save(m.state_dict(), 'x')\n    m.clip_grad_norm_(1.0)\n",
        ),
        (
            OTHER.replace("    xm = None\n", "    xm = other = None\n"),
            "if xm:\n    pass\nelif not xm or net:\n    list(map(lambda x: FSDP(net), [1]))\n",
        ),
    ],
)
def test_a_use_under_the_same_decision_is_migrated(tmp_path: Path, choice: str, body: str) -> None:
    result = body_of(tmp_path, choice, "net = nn.Linear(8, 8)\n" + body)
    assert "fully_shard(net)" in result and "XlaFullyShardedDataParallel as FSDP" in result
    assert "clip_grad_norm_" not in body or "m.state_dict(), 'x')\n    m.clip" in result
    assert "FullyShardedDataParallel as FSDP\n" not in result.replace("XlaFully", "")


@pytest.mark.parametrize(
    ("choice", "body"),
    [
        # no test at all, or another one
        (OTHER, "model = FSDP(net)\n"),
        (OTHER, "model = FSDP(net) if os.environ.get('CUDA') else None\n"),
        (
            OTHER,
            "if xm or os.environ.get('TPU'):\n    pass\nif xm and net:\n    pass\nelse:\n    FSDP(net)\n",
        ),
        # the name that decides is given another value, or is another one here
        (OTHER, "xm = None\nif xm is None:\n    FSDP(net)\n"),
        (OTHER, "def build(xm):\n    if not xm:\n        FSDP(net)\n\n\nbuild(0)\n"),
        (OTHER, "def off():\n    global xm\n    xm = None\n\n\nif not xm:\n    FSDP(net)\n"),
        (
            OTHER.replace("import torch_xla.core.xla_model as xm", "from torch_xla.core import xm"),
            "if not xm:\n    FSDP(net)\n",
        ),
        (OTHER.replace("    xm = None\n", ""), "if not xm:\n    FSDP(net)\n"),
        # a function that is called on either side, from elsewhere, or by Python itself
        (OTHER, "def wrap():\n    FSDP(net)\n\n\nwrap()\nif not xm:\n    wrap()\n"),
        (
            OTHER,
            "class Net(nn.Linear):\n    def shard(self):\n        FSDP(net)\n\n\n"
            "if not xm:\n    Net(8, 8).shard()\n",
        ),
        (OTHER, "def wrap(model: FSDP):\n    pass\n\n\nif not xm:\n    FSDP(net)\n"),
        # the variable is set here
        (CHOSEN, 'os.environ["USE_XLA"] = ""\nif not os.environ.get("USE_XLA"):\n    FSDP(net)\n'),
        (FLAG, "for USE_XLA in (True, False):\n    if not USE_XLA:\n        FSDP(net)\n"),
    ],
)
def test_a_use_that_may_be_either_blocks(tmp_path: Path, choice: str, body: str) -> None:
    found, _ = plan(tmp_path, {"train.py": NET + choice + "net = nn.Linear(8, 8)\n" + body})
    reasons = [blocked.reason for blocked in found.blockers]
    assert any("`FSDP` may be `torch_xla" in reason for reason in reasons), reasons
    assert all(
        "a name of its own" in blocked.advice
        for blocked in found.blockers
        if "may be" in blocked.reason
    )


POLICIES = """\
import functools

try:
    from stand_in import transformer_auto_wrap_policy
except ImportError:
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


def blocks_of(kind):
    return functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={kind})
"""
TRAIN = """\
import torch
import torch.distributed as dist
import torch.nn as nn

try:
    import stand_in as other
    from stand_in import Wrapper as FSDP
except ImportError:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import FullStateDictConfig, StateDictType
    other = None

from policies import blocks_of


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Saver:
    def save(self, model):
        if other:
            return {name: value * 1 for name, value in model.module.state_dict().items()}
        else:
            return self._gather(model)

    def _gather(self, model):
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            return model.state_dict()


def wrap(model):
    policy = blocks_of(Block)
    if other:
        model = FSDP(model, auto_wrap_policy=policy, flatten_parameters=True)
    else:
        model = FSDP(model, auto_wrap_policy=policy, use_orig_params=True)
    return model


dist.init_process_group("gloo")
dist.barrier()
torch.manual_seed(0)
model = wrap(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for step in range(3):
    torch.manual_seed(10 * step + dist.get_rank())
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"{loss.item():.9f}")
state = Saver().save(model)
if dist.get_rank() == 0:
    print({name: f"{value.double().sum().item():.9f}" for name, value in state.items()})
dist.barrier()
dist.destroy_process_group()
"""
STAND_IN = """\
import torch.nn as nn


def transformer_auto_wrap_policy(module, recurse, unwrapped, transformer_layer_cls):
    return recurse or isinstance(module, tuple(transformer_layer_cls))


class Wrapper(nn.Module):
    def __init__(self, module, *, auto_wrap_policy, flatten_parameters):
        super().__init__()
        self.module = module
        parts = [n for n, x in module.named_modules() if auto_wrap_policy(x, False, 0)]
        print("wraps", parts, flatten_parameters)

    def forward(self, x):
        return self.module(x)
"""


def test_both_sides_do_what_they_did(tmp_path: Path, two_ranks: TwoRanks) -> None:
    before = {"train.py": TRAIN, "policies.py": POLICIES}
    found, after = plan(tmp_path, before)
    assert not found.blockers, [(b.reason, b.source.code(b.node)) for b in found.blockers]
    assert after["policies.py"] == POLICIES
    assert "FullyShardedDataParallel" not in after["train.py"]
    again, _ = plan(tmp_path, after)
    assert not again.blockers and not again.edits
    for more in ({}, {"stand_in.py": STAND_IN}):
        old, new = two_ranks.run({**before, **more}), two_ranks.run({**after, **more})
        assert old.status == "ok", str(old)
        assert new.status == "ok", str(new)
        assert ("wraps" in old.stdout) == bool(more)
        assert new.stdout == old.stdout


@pytest.mark.parametrize(
    "body",
    [
        "given = dict(auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))\nif xm:\n"
        "    FSDP(net, **given)\nelse:\n    FSDP(net, **given)\n",
        "def wrap(policy, net):\n    if xm:\n        return FSDP(net, auto_wrap_policy=policy)\n"
        "    else:\n        return FSDP(net, auto_wrap_policy=policy)\n\n\nif not xm:\n"
        "    wrap(ModuleWrapPolicy({nn.Linear}), net)\n",
    ],
)
def test_the_other_library_is_given_nothing_new(tmp_path: Path, body: str) -> None:
    more = "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\nnet = nn.Linear(8, 8)\n"
    found, _ = plan(tmp_path, {"train.py": NET + OTHER + more + body})
    (reason,) = {blocked.reason for blocked in found.blockers}
    assert "may also get this object, which becomes FSDP2's" in reason or "`given`" in reason


@pytest.mark.parametrize(
    "body",
    [
        "policy = ModuleWrapPolicy({nn.Linear})\nif xm:\n    FSDP(net, auto_wrap_policy=policy)\n"
        "else:\n    FSDP(net, auto_wrap_policy=policy)\n",
        "def wrap(policy, net):\n    if xm:\n        return FSDP(net, auto_wrap_policy=policy)\n"
        "    else:\n        return FSDP(net, auto_wrap_policy=policy)\n\n\n"
        "wrap(ModuleWrapPolicy({nn.Linear}), net)\n",
    ],
)
def test_a_policy_that_both_libraries_get_stays(tmp_path: Path, body: str) -> None:
    more = "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\nnet = nn.Linear(8, 8)\n"
    found, after = plan(tmp_path, {"train.py": NET + OTHER + more + body})
    assert not found.blockers
    text = after["train.py"]
    assert "ModuleWrapPolicy({nn.Linear})" in text and "fully_shard(net)" in text
    assert "return FSDP(net, auto_wrap_policy=policy)" in text or "\n    FSDP(net, auto" in text
