"""Wrapping policies that methods of a program's classes return, reached by the traces or not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from forms import migrated
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.migration.plan import Plan
from fsdplint.migration.planner import plans_of
from fsdplint.registry.rules import all_rules

PROGRAM = '''\
import functools
import os
from abc import ABC, abstractmethod

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullStateDictConfig, MixedPrecision, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import _module_wrap_policy, _or_policy, transformer_auto_wrap_policy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x)


class Backbone(nn.Module, ABC):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(8)

    @abstractmethod
    def get_policy(self): ...

    def forward(self, x):
        return self.norm(self.blocks(x))


class Small(Backbone):
    def get_policy(self):
        """One for each block."""
        blocks = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
        return blocks


class Large(Small):
    @property
    def layer_cls(self):
        return type(self.blocks[-1])

    def get_policy(self):
        norms = functools.partial(_module_wrap_policy, module_classes={nn.LayerNorm, nn.Embedding})
        layers = functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={self.layer_cls}
        )
        return functools.partial(_or_policy, policies=[norms, layers])


class Model(nn.Module):
    def __init__(self, body: Backbone, head: Backbone):
        super().__init__()
        self.body, self.head = body, head
        self.out = nn.Linear(8, 1)

    def get_policy(self):
        body_policy = self.body.get_policy()
        out = functools.partial(_module_wrap_policy, module_classes={nn.Embedding})
        return functools.partial(_or_policy, policies=[body_policy, self.head.get_policy(), out])

    def forward(self, x):
        return self.out(self.head(self.body(x)))


class Strategy(ABC):
    def __init__(self, model: Model):
        self.model = model
        self.optimizer = None

    @abstractmethod
    def clip(self): ...

    def train(self):
        torch.manual_seed(dist.get_rank())
        for _ in range(3):
            loss = self.model(torch.randn(4, 8)).pow(2).mean()
            loss.backward()
            self.clip()
            self.optimizer.step()
            self.optimizer.zero_grad()
            print(dist.get_rank(), f"{loss.item():.6f}")


class Sharded(Strategy):
    def __init__(self, model: Model, state_type: StateDictType = StateDictType.FULL_STATE_DICT):
        super().__init__(model)
        assert state_type == StateDictType.FULL_STATE_DICT, "only whole states"
        self.state_type = state_type
        self.save_policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)

    def setup(self):
        policy = self.model.get_policy()
        precision = MixedPrecision(reduce_dtype=torch.float32, buffer_dtype=torch.float32)
        self.model = FSDP(
            self.model,
            auto_wrap_policy=policy,
            mixed_precision=precision,
            device_id=torch.device("cpu"),
            use_orig_params=True,
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        print(dist.get_rank(), "buffers", precision.buffer_dtype)

    def save(self):
        with FSDP.state_dict_type(self.model, self.state_type, self.save_policy):
            state = self.model.state_dict()
        if dist.get_rank() == 0:
            for name, value in state.items():
                print(name, tuple(value.shape), f"{value.sum().item():.5f}")

    def clip(self):
        self.model.clip_grad_norm_(max_norm=0.5)


BODIES = {"small": Small, "large": Large}
STRATEGIES = {"sharded": Sharded, "default": Sharded}


def build(name):
    return Model(BODIES[name](), Large())


def main():
    dist.init_process_group("gloo")
    for item in os.environ.get("RUNS", "small=sharded large=sharded").split():
        name, kind = item.split("=")
        torch.manual_seed(0)
        strategy = STRATEGIES[kind](build(name))
        strategy.setup()
        strategy.train()
        strategy.save()
    dist.destroy_process_group()


main()
'''


ONLY = 'STRATEGIES = {"sharded": Sharded}'  # so that the traces reach the class


def plan_of(folder: Path, old: str = "", new: str = "") -> Plan:
    """The plan of the program with a piece of it changed."""
    assert old in PROGRAM
    path = folder / "train.py"
    path.write_text(PROGRAM.replace(old, new), encoding="utf-8")
    (found,) = plans_of(load([path]))
    return found


@pytest.mark.parametrize("reached", [False, True])
def test_a_policy_of_methods_shards_the_same(
    reached: bool, tmp_path: Path, two_ranks: TwoRanks
) -> None:
    program = re.sub("STRATEGIES = .*", ONLY, PROGRAM) if reached else PROGRAM
    modules = "self.model.modules()" + (")" if reached else ")[1:]")
    path = tmp_path / "train.py"
    path.write_text(program, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    for piece in (
        "        blocks = lambda module: isinstance(module, Block)\n        return blocks\n",
        "        layer_class = self.layer_cls\n        return lambda module: "
        "isinstance(module, (nn.LayerNorm, nn.Embedding, layer_class))\n",
        "        should_shard = self.head.get_policy()\n        return lambda module: (\n"
        "            body_policy(module)\n            or should_shard(module)\n",
        f"        for module in reversed(list({modules}):\n            if policy(module):\n",
        '        assert state_type == "FULL_STATE_DICT", "only whole states"\n',
        "        state = get_model_state_dict(self.model, options=self.save_policy)\n",
        'print(dist.get_rank(), "buffers", precision.reduce_dtype)',
        "torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=0.5)",
    ):
        assert piece in after, after
    runs = [two_ranks.run(text, timeout=600) for text in (program, after)]
    assert [run.status for run in runs] == ["ok", "ok"], "\n".join(map(str, runs))
    assert sorted(runs[1].stdout.splitlines()) == sorted(runs[0].stdout.splitlines())
    assert len(runs[0].stdout.splitlines()) > 40


BLOCKED = {
    "an override out of sight": (
        "class Small(Backbone):",
        "from library import Policies\n\n\nclass Other(Policies, Backbone):\n    pass\n\n\n"
        "class Small(Backbone):",
        "`Policies`, whose code cannot be seen, may have its own `get_policy`",
    ),
    "an override that gives a library's policy": (
        "class Small(Backbone):",
        "from library import make\n\n\nclass Other(Backbone):\n    def get_policy(self):\n"
        "        return make(self)\n\n\nclass Small(Backbone):",
        "the code that makes the wrapping policy `make(self)` cannot be seen",
    ),
    "a policy for something else": (
        "        strategy.setup()\n",
        "        strategy.setup()\n        print(strategy.model.get_policy())\n",
        "the code does not show how this wrapping policy is used",
    ),
    "a method that is looked up": (
        "        strategy.setup()\n",
        "        strategy.setup()\n        print(hasattr(strategy.model, 'get_policy'))\n",
        "looked up by its name",
    ),
    "a type that neither an assert nor a config tells": (
        "        with FSDP.state_dict_type(self.model, self.state_type, self.save_policy):",
        "        kind = StateDictType[os.environ['KIND']]\n"
        "        with FSDP.state_dict_type(self.model, kind):",
        "the type of the state dict is only known at run time",
    ),
    "another buffer precision": (
        "buffer_dtype=torch.float32",
        "buffer_dtype=torch.bfloat16",
        "`buffer_dtype` is read here, and FSDP2's policy does not have it",
    ),
}


@pytest.mark.parametrize(("old", "new", "reason"), list(BLOCKED.values()), ids=list(BLOCKED))
def test_what_may_be_something_else_blocks(old: str, new: str, reason: str, tmp_path: Path) -> None:
    found = plan_of(tmp_path, old, new)
    assert any(reason in one.reason for one in found.blockers), [b.reason for b in found.blockers]
    assert not found.edits


def test_a_type_that_is_asserted_is_said(tmp_path: Path) -> None:
    notes = [note.text for note in plan_of(tmp_path).notes]
    assert (
        "the states are of the type that `state_type == StateDictType.FULL_STATE_DICT` asserts"
        in notes
    )


OF_TRANSFORMERS = """\
import functools
import os

import torch
import torch.nn as nn
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import _or_policy, transformer_auto_wrap_policy
from transformers import PreTrainedModel


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x)


class Language(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.blocks = nn.Sequential(Block(), Block())

    def get_policy(self):
        return functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={{Block}})

    def forward(self, x):
        return self.blocks(x)


class Multimodal(nn.Module):
    def __init__(self, lora):
        super().__init__()
        self.language = Language.from_pretrained("language")
        if lora:
            self.adapt()

    def adapt(self):
        self.language = {adapted}

    def get_policy(self):
        return functools.partial(_or_policy, policies=[self.language.get_policy()])

    def forward(self, x):
        return self.language(x)


torch.distributed.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = Multimodal("LORA" in os.environ)
model = FSDP(model, auto_wrap_policy=model.get_policy())
model(torch.zeros(8)).sum().backward()
"""


def test_methods_of_a_model_with_adapters(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    adapted = "get_peft_model(self.language, LoraConfig(r=8))"
    path.write_text(OF_TRANSFORMERS.format(adapted=adapted), encoding="utf-8")
    (found,) = plans_of(load([path]))
    assert not found.blockers


@pytest.mark.parametrize("name", ["small", "large"])
def test_policies_stay_if_an_object_may_have_others(
    name: str, tmp_path: Path, two_ranks: TwoRanks
) -> None:
    """A library's object may give a policy that cannot be read: all policies stay functions."""
    program = PROGRAM.replace("body: Backbone, head: Backbone", "body, head")
    program = program.replace("small=sharded large=sharded", f"{name}=sharded")
    path = tmp_path / "train.py"
    path.write_text(program, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    for piece in (
        "import _module_wrap_policy, _or_policy, transformer_auto_wrap_policy\n",
        "policies=[body_policy, self.head.get_policy(), out])\n",
        "        shard_by_policy(self.model, policy, **fsdp_kwargs)\n",
    ):
        assert piece in after, after
    runs = [two_ranks.run(text, timeout=600) for text in (program, after)]
    assert [run.status for run in runs] == ["ok", "ok"], "\n".join(map(str, runs))
    assert sorted(runs[1].stdout.splitlines()) == sorted(runs[0].stdout.splitlines())


TRAINER = """
class Trainer:
    def train(self, model):
        policy = CustomPolicy(lambda module: isinstance(module, Block))
        self.model = FSDP(model, auto_wrap_policy=policy)
        self.model(torch.ones(2, 8)).sum().backward()


def run(other):
    other.train(Net())


Trainer().train(Net())
run(build())
"""


def test_a_method_that_only_uses_a_policy(tmp_path: Path) -> None:
    """A library's method of the same name gives no policy."""
    text = migrated(tmp_path, f"from library import build\n{TRAINER}")
    assert "if isinstance(submodule, Block):" in text and "shard_by_policy" not in text


def test_a_custom_policy_cannot_stay(tmp_path: Path) -> None:
    program = PROGRAM.replace("body: Backbone, head: Backbone", "body, head").replace(
        "        return blocks\n",
        "        return CustomPolicy(lambda module: isinstance(module, Block))\n",
    )
    program = program.replace(
        "import _module_wrap_policy", "import CustomPolicy, _module_wrap_policy"
    )
    path = tmp_path / "train.py"
    path.write_text(program, encoding="utf-8")
    (found,) = plans_of(load([path]))
    assert "also uses this CustomPolicy" in str([one.reason for one in found.blockers])


def test_policies_stay_if_a_model_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    adapted = 'torch.load("language.pt")'
    path.write_text(OF_TRANSFORMERS.format(adapted=adapted), encoding="utf-8")
    (found,) = plans_of(load([path]))
    assert not found.blockers
