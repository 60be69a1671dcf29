"""The modules that a policy of FSDP1 wraps, in the event of the constructor."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.interpreter import load
from fsdplint.trace import Called, Wrapped

PROGRAM = """\
import functools

import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import (
    CustomPolicy, _or_policy, always_wrap_policy, lambda_auto_wrap_policy,
    transformer_auto_wrap_policy,
)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)


class Net(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.blocks = nn.ModuleDict({str(i): Block() for i in range(depth)})
        self.head = nn.Linear(8, 2)


def choose(module):
    if isinstance(module, Block):
        return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
    return {}


classes = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
linear = functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, nn.Linear))
model = FSDP(Net(), auto_wrap_policy=POLICY)
"""
POLICIES = {
    "classes": ["Block"],
    "linear": ["Linear", "Linear"],
    "functools.partial(_or_policy, policies=[classes, linear])": ["Block", "Linear", "Linear"],
    "functools.partial(_or_policy, policies=[])": [],
    "functools.partial(_or_policy, policies=[classes, print])": None,
    "CustomPolicy(choose)": ["Block"],
    "always_wrap_policy": ["Block", "Linear", "Linear"],
}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_units_of_a_policy(tmp_path: Path, policy: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.replace("POLICY", policy))
    for trace in load([path]).traces:
        (event,) = trace.of(Wrapped)
        units = event.units
        names = None if units is None else sorted(trace.modules[one].class_name for one in units)
        assert names == POLICIES[policy]


UNKNOWN = {
    "lambda module, recurse, nonwrapped_numel: recurse or isinstance(module, Block)": {
        "ModuleDict",
        "Linear",
    },
    "sized": {"ModuleDict", "Linear"},
    "functools.partial(sized, least=3)": {"ModuleDict", "Linear"},
    "print": set(),
}
SIZED = """\
def sized(module, recurse, nonwrapped_numel, least=2):
    return recurse or (isinstance(module, Block) and nonwrapped_numel > least)


"""


@pytest.mark.parametrize("policy", UNKNOWN)
def test_the_modules_that_a_policy_function_leaves_alone(tmp_path: Path, policy: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.replace("POLICY", policy).replace("def choose", f"{SIZED}def choose"))
    for trace in load([path]).traces:
        (event,) = trace.of(Wrapped)
        assert event.units is None
        assert {trace.modules[one].class_name for one in event.outside} == UNKNOWN[policy]


def test_the_sizes_of_layers(tmp_path: Path) -> None:
    small = (
        "functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m is not None and SMALL)"
    )
    small = small.replace("SMALL", "isinstance(m, nn.Linear) and m.out_features == 2")
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.replace("POLICY", small))
    for trace in load([path]).traces:
        (event,) = trace.of(Wrapped)
        (head,) = event.units or ()
        (root,) = (one for one in trace.modules.values() if one.class_name == "Net")
        assert head == root.children["head"]


PRETRAINED = """\
import functools

import torch
import torch.nn as nn
from diffusers import ConfigMixin, ModelMixin
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy
from transformers import GPT2PreTrainedModel, PreTrainedModel
from transformers.models.gpt2.modeling_gpt2 import GPT2Block, GPT2Model


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)


class Net(BASE):
    def __init__(self, config):
        super().__init__(config)
        self.layers = nn.ModuleList([Layer()])


model = torch.compile(Net(print))
model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy([CLASS]))
"""


@pytest.mark.parametrize(
    ("base", "kind", "units"),
    [
        ("PreTrainedModel", "GPT2Block", ()),
        ("GPT2PreTrainedModel", "GPT2Block", ()),
        ("ModelMixin, ConfigMixin", "GPT2Block", ()),
        ("PreTrainedModel", "nn.Embedding", ()),
        ("GPT2Model", "GPT2Block", None),
        ("GPT2PreTrainedModel", "PreTrainedModel", None),
    ],
)
def test_a_base_of_models_derives_from_no_layer(
    tmp_path: Path, base: str, kind: str, units: tuple[str, ...] | None
) -> None:
    path = tmp_path / "train.py"
    path.write_text(PRETRAINED.replace("BASE", base).replace("CLASS", kind))
    for trace in load([path]).traces:
        (event,) = trace.of(Wrapped)
        assert event.units == units


INNER = """\
from functools import partial
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = Block(), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.block(x))

    def score(self, x):
        return self.forward(x).mean()

policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
model = FSDP(Net(), auto_wrap_policy=policy, sharding_strategy=STRATEGY)
"""


@pytest.mark.parametrize(
    ("call", "communicates"),
    [
        ("model.score(x)", {"Net", "Block"}),
        ("model.module.block(x)", {"Block"}),
        ("model.module.block.linear(x)", set()),
        ("model.module.head(x)", set()),
    ],
)
@pytest.mark.parametrize("strategy", ["FULL_SHARD", "NO_SHARD"])
def test_a_call_of_units_of_a_policy(
    tmp_path: Path, call: str, communicates: set[str], strategy: str
) -> None:
    """A unit gathers its parameters also where no wrapper around it is called."""
    code = INNER.replace("STRATEGY", f"ShardingStrategy.{strategy}")
    found = program(tmp_path, f"{code}x = torch.randn(2, 8)\n{call}\n")
    modules = found.traces[0].modules
    called = {modules[one.module].class_name for one in events(found, Called) if one.collective}
    assert called == (communicates if strategy == "FULL_SHARD" else set())


@pytest.mark.parametrize(
    ("policy", "gathers"), [("size_based_auto_wrap_policy", True), ("None", False)]
)
def test_a_call_inside_of_units_that_are_not_known(
    tmp_path: Path, policy: str, gathers: bool
) -> None:
    """Such a call fails unless units in it gather their parameters."""
    code = (
        "from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy\n"
        "from transformers import AutoModelForCausalLM\n\n"
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.model = AutoModelForCausalLM.from_pretrained('small')\n\n"
        "    def forward(self, x):\n        return self.model(x).logits\n\n"
        "    def score(self, x):\n        return self.forward(x).mean()\n\n"
        f"model = FSDP(Net(), auto_wrap_policy={policy})\nmodel.score(torch.ones(2, 8).long())\n"
    )
    found = program(tmp_path, code)
    calls = [one for one in events(found, Called) if one.via == "forward"]
    assert [one.collective for one in calls] == [gathers]


def test_a_call_in_a_block_that_gathers_all_units(tmp_path: Path) -> None:
    code = INNER.replace("STRATEGY", "ShardingStrategy.FULL_SHARD")
    block = "with FSDP.summon_full_params(model):\n    model.module.block(torch.ones(2, 8))\n"
    calls = list(events(program(tmp_path, code + block), Called))
    assert calls
    assert not any(one.collective for one in calls)
