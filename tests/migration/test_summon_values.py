"""`summon_full_params(...)` as a value that a `with` statement enters elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from forms import plan
from two_ranks import TwoRanks

from fsdplint.diagnostics.finding import Safety
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

MODEL = """\
import contextlib
model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
model(torch.ones(2, 8))
whole = bool(os.environ.get("WHOLE"))
"""
VALUES = {
    "a choice in the head": (
        "with FSDP.summon_full_params(model) if whole else contextlib.nullcontext():\n"
        "    print(model.blocks[0](torch.ones(2, 8)))",
        "with unsharded_parameters(model) if whole else contextlib.nullcontext():\n"
        "    print(model.blocks[0](torch.ones(2, 8)))",
    ),
    "a variable": (
        "context = FSDP.summon_full_params(model, writeback=False)\n"
        "with context, torch.no_grad():\n    print(model(torch.ones(2, 8)))",
        "context = unsharded_parameters(model)\n"
        "with context, torch.no_grad():\n    print(model(torch.ones(2, 8)))",
    ),
    "a lambda": (
        "context = lambda: (FSDP.summon_full_params(model, recurse=False)\n"
        "                   if whole else contextlib.nullcontext())\n"
        "with context():\n    print(model(torch.ones(2, 8)))\n"
        "with context():\n    print(model(torch.ones(2, 8)))",
        "context = lambda: (unsharded_parameters(model, recurse=False)\n"
        "                   if whole else contextlib.nullcontext())\n"
        "with context():\n    print(model(torch.ones(2, 8)))\n"
        "with context():\n    print(model(torch.ones(2, 8)))",
    ),
    "a stack": (
        "with contextlib.ExitStack() as stack:\n    if whole:\n"
        "        stack.enter_context(FSDP.summon_full_params(model))\n"
        "    print(model(torch.ones(2, 8)))",
        "with contextlib.ExitStack() as stack:\n    if whole:\n"
        "        stack.enter_context(unsharded_parameters(model))\n"
        "    print(model(torch.ones(2, 8)))",
    ),
    "the result of a function": (
        "def gather(net):\n    return FSDP.summon_full_params(net, writeback=False)\n\n\n"
        "with gather(model):\n    print(model(torch.ones(2, 8)))",
        "def gather(net):\n    return unsharded_parameters(net)\n\n\n"
        "with gather(model):\n    print(model(torch.ones(2, 8)))",
    ),
    "a method of one of several objects": (
        "class Plain:\n    def gather(self, net):\n        return contextlib.nullcontext()\n\n\n"
        "class Sharded(Plain):\n    def gather(self, net):\n"
        "        return FSDP.summon_full_params(net, writeback=False)\n\n\n"
        "kinds = {'plain': Plain, 'sharded': Sharded}\nchosen = kinds[os.environ['HOW']]()\n"
        "with chosen.gather(model), torch.no_grad():\n    print(model(torch.ones(2, 8)))",
        "        return unsharded_parameters(net)\n\n\n"
        "kinds = {'plain': Plain, 'sharded': Sharded}\nchosen = kinds[os.environ['HOW']]()\n"
        "with chosen.gather(model), torch.no_grad():\n    print(model(torch.ones(2, 8)))",
    ),
    "a generator": (
        "@contextlib.contextmanager\ndef gather(net):\n    if whole:\n"
        "        with FSDP.summon_full_params(net):\n            yield\n    else:\n        yield\n\n\n"
        "with gather(model), torch.no_grad():\n    for p in model.parameters():\n        p.mul_(0.5)",
        "        with gathered_parameters(net):\n            yield\n    else:\n        yield\n\n\n"
        "with gather(model), torch.no_grad():\n    for p in model.parameters():\n        p.mul_(0.5)",
    ),
    "a result that another function returns": (
        "def gather(net):\n    return FSDP.summon_full_params(net, writeback=False)\n\n\n"
        "def context(net):\n    return gather(net) if whole else contextlib.nullcontext()\n\n\n"
        "with context(model):\n    print(model(torch.ones(2, 8)))",
        "def context(net):\n    return gather(net) if whole else contextlib.nullcontext()\n\n\n"
        "with context(model):\n    print(model(torch.ones(2, 8)))",
    ),
    "a block with other contexts that is left early": (
        "def run(model):\n    with torch.no_grad(), FSDP.summon_full_params(model):\n"
        "        return model.blocks[0](torch.ones(2, 8))\n\n\nrun(model)",
        "def run(model):\n    with torch.no_grad(), unsharded_parameters(model):\n"
        "        return model.blocks[0](torch.ones(2, 8))\n\n\nrun(model)",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_context_manager_replaces_the_value(name: str, tmp_path: Path) -> None:
    before, after = VALUES[name]
    found, text = plan(tmp_path, MODEL + before)
    assert not found.blockers
    assert text.strip().endswith(after)
    assert len(re.findall(r"def (?:unsharded|gathered)_parameters\(", text)) == 1


def test_a_generator_may_yield_the_inner_module(tmp_path: Path) -> None:
    body = (
        "@contextlib.contextmanager\ndef gather(net):\n"
        "    with FSDP.summon_full_params(net, writeback=False):\n        yield net.module\n\n\n"
        "with torch.no_grad(), gather(model) as inner:\n    print(inner(torch.ones(2, 8)))"
    )
    found, text = plan(tmp_path, MODEL + body)
    assert not found.blockers
    assert "            fsdp_module.unshard()\n    yield net\n" in text


BLOCKED = {
    "other uses": "context = FSDP.summon_full_params(model)\nprint(context)\nwith context:\n    pass",
    "an unknown function": "enter(FSDP.summon_full_params(model))",
    "a result that is handed on": (
        "def gather(net):\n    return FSDP.summon_full_params(net)\n\n\nenter(gather(model))"
    ),
    "a method that a name chooses": (
        "class Strategy:\n    def gather(self, net):\n        return FSDP.summon_full_params(net)\n\n\n"
        "with getattr(Strategy(), os.environ.get('HOW', 'gather'))(model):\n    pass\n"
        "with Strategy().gather(model):\n    pass"
    ),
}


@pytest.mark.parametrize("name", BLOCKED)
def test_what_is_not_seen_blocks(name: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, MODEL + BLOCKED[name])
    assert any("summon_full_params" in blocker.reason for blocker in found.blockers)


PROGRAM = """\
import contextlib
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


class Gathering:
    def whole(self, net):
        return FSDP.summon_full_params(net, writeback=False)


@contextlib.contextmanager
def written(net):
    with FSDP.summon_full_params(net):
        yield


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
context = lambda whole: contextlib.nullcontext()
for step in range(3):
    x = torch.full((2, 8), float(step + dist.get_rank()))
    loss = model(x).pow(2).mean()
    loss.backward()
    whole = lambda: FSDP.summon_full_params(model, writeback=False) if step else contextlib.nullcontext()
    with torch.no_grad(), whole():
        if step:
            print("norm", round(sum(p.norm() for p in model.parameters()).item(), 5))
    optimizer.step()
    optimizer.zero_grad()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(FSDP.summon_full_params(model, recurse=False, writeback=False))
        print("first", round(model.first(x).sum().item(), 5))
    print("loss", round(loss.item(), 5))
    with torch.no_grad(), written(model):
        for p in model.parameters():
            p.mul_(0.9)
    with Gathering().whole(model):
        print("norm", round(sum(p.norm() for p in model.parameters()).item(), 5))
dist.destroy_process_group()
"""


def test_it_runs_as_before(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FullyShardedDataParallel" not in after
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert re.findall(r"(?:norm|first|loss) .*", old.stdout)
    assert new.stdout == old.stdout


GENERATION = """\
import contextlib
from transformers import AutoModelForCausalLM
model = FSDP(
    AutoModelForCausalLM.from_pretrained("gpt2"),
    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
)
model(torch.ones(2, 8))
whole = bool(os.environ.get("WHOLE"))
context = FSDP.summon_full_params(model, writeback=False) if whole else contextlib.nullcontext()
with context, {0}:
    print(model.{1}(torch.ones(2, 8)))
"""
AUTOCAST = 'torch.autocast("cuda", dtype=torch.bfloat16)'


@pytest.mark.parametrize(
    ("other", "method", "is_kept", "safety"),
    [
        (AUTOCAST, "generate", True, Safety.SAFE),
        ("torch.no_grad()", "generate", True, Safety.UNSAFE),
        (AUTOCAST, "transformer", False, Safety.SAFE),
    ],
)
def test_generation_in_the_precision_of_training(
    other: str, method: str, is_kept: bool, safety: Safety, tmp_path: Path
) -> None:
    """In the block that enters the value, `generate` may use gathered parameters. Without autocast,
    its precision changes."""
    found, text = plan(tmp_path, GENERATION.format(other, method))
    assert bool(found.blockers) is not is_kept
    assert not is_kept or found.safety is safety
    assert ("unsharded_parameters(model) if whole" in text) is is_kept
    assert any("in `param_dtype`" in note.text for note in found.notes) is is_kept


@pytest.mark.parametrize(
    ("name", "is_kept"), [("AutoModelForCausalLM", True), ("T5ForConditionalGeneration", False)]
)
def test_generation_before_the_first_forward(name: str, is_kept: bool, tmp_path: Path) -> None:
    """A decoder is called itself; a model with an encoder calls the encoder first."""
    body = GENERATION.replace("model(torch.ones(2, 8))\n", "", 1).replace(
        "AutoModelForCausalLM", name
    )
    found, text = plan(tmp_path, body.format(AUTOCAST, "generate"))
    assert bool(found.blockers) is not is_kept
    assert ("unsharded_parameters(model) if whole" in text) is is_kept
