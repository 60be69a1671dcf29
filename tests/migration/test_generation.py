"""Parts of a model that are called inside of `summon_full_params`, under mixed precision."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.diagnostics.finding import Safety
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

MODEL = """\
policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=policy)
model(torch.ones(2, 8))
"""
FORM = """\
with torch.no_grad():
    with torch.autocast("cuda", dtype=torch.bfloat16):
        # all of it
        with FSDP.summon_full_params(model):
            x = torch.ones(2, 8)
            for block in model.blocks:
                x = block(x)
"""
AFTER = """\
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
model = Net()
for module in reversed(list(model.modules())):
    if isinstance(module, Block):
        fully_shard(module, mp_policy=policy)
fully_shard(model, mp_policy=policy)
model(torch.ones(2, 8))
with torch.no_grad():
    with torch.autocast("cuda", dtype=torch.bfloat16):
        # all of it
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.unshard()
        x = torch.ones(2, 8)
        for block in model.blocks:
            x = block(x)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
"""


def test_inference_under_autocast_is_in_the_precision_of_training(tmp_path: Path) -> None:
    assert migrated(tmp_path, MODEL + FORM).strip() == textwrap.dedent(AFTER).strip()
    found, _ = plan(tmp_path, MODEL + FORM)
    notes = [note.text for note in found.notes]
    assert any("compute in `param_dtype`" in note for note in notes)
    assert any("FSDP1 corrupts them" in note for note in notes)


def test_a_compiled_model_has_been_called_before(tmp_path: Path) -> None:
    compiled = MODEL.replace("model(torch", "model = torch.compile(model)\nmodel(torch")
    assert "module.unshard()" in migrated(tmp_path, compiled + FORM)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.no_grad()", "torch.enable_grad()"),
        ("dtype=torch.bfloat16):\n        #", "enabled=False):\n        #"),
        ("x = torch.ones(2, 8)\n", "x = model.blocks[0].linear.weight\n"),
        ("with torch.autocast(", "with torch.profiler.record_function("),
    ],
    ids=["gradients", "autocast off", "parameters read", "no autocast"],
)
def test_what_is_not_only_inferred_blocks(old: str, new: str, tmp_path: Path) -> None:
    changed = FORM.replace(old, new)
    assert changed != FORM
    found, _ = plan(tmp_path, MODEL + changed)
    assert any("in full precision" in blocker.reason for blocker in found.blockers)


def test_nothing_is_spoilt_where_nothing_is_written_back(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, MODEL + FORM.replace("(model)", "(model, writeback=False)"))
    assert not found.blockers
    assert not any("spoils" in note.text for note in found.notes)


GENERATE = """\
from transformers import AutoModelForCausalLM
policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained("gpt2")
model = FSDP(model, auto_wrap_policy=size_based_auto_wrap_policy, mixed_precision=policy)
prompt = torch.zeros(1, 4, dtype=torch.long)
with FSDP.summon_full_params(model, writeback=False, recurse=False):
    tokens = model.generate(prompt, max_new_tokens=4)
"""


def test_generation_in_a_lower_precision_is_unsafe(tmp_path: Path) -> None:
    text = migrated(tmp_path, GENERATE)
    assert (
        "model.unshard()\ntokens = model.generate(prompt, max_new_tokens=4)\nmodel.reshard()"
        in text
    )
    found, _ = plan(tmp_path, GENERATE)
    assert found.safety is Safety.UNSAFE
    assert any("`generate` in `summon_full_params`" in note.text for note in found.notes)


CHOSEN = """
class Sampler(Net):
    @torch.no_grad()
    def sample(self, x):
        return self(x)


class Strategy:
    def __init__(self, half={default}):
        self.half = half

    def wrap(self, model):
        policy = MixedPrecision(param_dtype=torch.bfloat16) if self.half else None
        return FSDP(model, mixed_precision=policy)


dist.init_process_group("nccl")
model = Strategy().wrap(Sampler())
with FSDP.summon_full_params(model, writeback=False):
    x = model.module.sample(torch.ones(2, 8))
"""


def test_a_precision_that_the_program_never_chooses_is_safe(tmp_path: Path) -> None:
    found, text = plan(tmp_path, CHOSEN.format(default="False"))
    assert "model.unshard()\nx = model.sample(torch.ones(2, 8))\nmodel.reshard()\n" in text
    assert found.safety is Safety.SAFE
    assert any("compute in `param_dtype`" in note.text for note in found.notes)


@pytest.mark.parametrize("default", ["True", 'bool(os.environ.get("HALF"))'])
def test_a_precision_that_the_program_may_choose_is_unsafe(default: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, CHOSEN.format(default=default))
    assert found.safety is Safety.UNSAFE


def test_generation_beside_a_read_of_parameters_blocks(tmp_path: Path) -> None:
    found, _ = plan(
        tmp_path,
        GENERATE + "    print(model.lm_head.weight.sum(), next(model.parameters()).sum())\n",
    )
    assert found.blockers


INFER = """\
class Sampler(Net):
    @torch.no_grad()
    def sample(self, x):
        for _ in range(3):
            x = self(x)
        return x


policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
model = FSDP(Sampler(), mixed_precision=policy)
with FSDP.summon_full_params(model, recurse=False, writeback=False):
    x = model.module.sample(torch.ones(2, 8))
"""


def test_a_first_call_of_the_whole_model(tmp_path: Path) -> None:
    body = INFER.replace(", mixed_precision=policy", "").replace("policy = ", "# ")
    text = migrated(tmp_path, body)
    assert "model.unshard()\nx = model.sample(torch.ones(2, 8))\nmodel.reshard()\n" in text


def test_a_first_call_of_a_part_blocks(tmp_path: Path) -> None:
    body = INFER.replace(", mixed_precision=policy", "").replace("policy = ", "# ")
    found, _ = plan(tmp_path, body.replace("self(x)", "self.blocks[0](x)"))
    assert [one.code for one in found.blockers] == ["FSDP299-summon-calls-parts-first"]


def test_inference_in_a_lower_precision_is_unsafe(tmp_path: Path) -> None:
    found, text = plan(tmp_path, INFER)
    assert "model.unshard()\nx = model.sample(torch.ones(2, 8))\nmodel.reshard()\n" in text
    assert any("compute in `param_dtype`" in note.text for note in found.notes if note.unsafe)
    found, _ = plan(tmp_path, INFER.replace("    @torch.no_grad()\n", ""))
    assert [one.code for one in found.blockers] == ["FSDP299-summon-calls-in-full-precision"]


PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x):
        return x / x.pow(2).mean(-1, keepdim=True).sqrt() * self.weight


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Norm()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return x + self.linear(self.norm(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = Norm()
        self.head = nn.Linear(16, 11)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
model = FSDP(
    Net(),
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    mixed_precision=policy,
    device_id=torch.device("cpu"),
    use_orig_params=True,
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
generator = torch.Generator().manual_seed(dist.get_rank())
tokens = torch.randint(0, 11, (4, 6), generator=generator)
for step in range(4):
    model.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.9f}")
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        with FSDP.summon_full_params(model, writeback=False):
            x = model.embed(tokens)
            for block in model.blocks:
                x = block(x)
            logits = model.head(model.norm(x[:, -1]))
    print("logits", *(f"{x:.9f}" for x in logits.float().flatten().tolist()))
dist.destroy_process_group()
"""


def numbers(stdout: str, label: str) -> list[float]:
    lines = re.findall(rf"{label} (.*)", stdout)
    return [float(number) for line in lines for number in line.split()]


def test_it_trains_as_before_and_infers_within_the_rounding(
    tmp_path: Path, two_ranks: TwoRanks
) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "FullyShardedDataParallel" not in after
    old, new = two_ranks.run(PROGRAM), two_ranks.run(after)
    assert old.status == "ok", str(old)
    assert new.status == "ok", str(new)
    assert numbers(new.stdout, "loss") == numbers(old.stdout, "loss")
    before, now = numbers(old.stdout, "logits"), numbers(new.stdout, "logits")
    largest = max(map(abs, before))
    differences = [abs(a - b) for a, b in zip(before, now, strict=True)]
    assert len(before) > 4 and 0 < max(differences) < 4 * 2**-8 * largest

    # Without `writeback=False` FSDP1 itself trains otherwise from there on; FSDP2 does not.
    writing = PROGRAM.replace("(model, writeback=False)", "(model)")
    spoilt = two_ranks.run(writing)
    assert spoilt.status == "ok", str(spoilt)
    assert numbers(spoilt.stdout, "loss")[0] == numbers(old.stdout, "loss")[0]
    assert numbers(spoilt.stdout, "loss") != numbers(old.stdout, "loss")
    path.write_text(writing, encoding="utf-8")
    assert fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path] == after


GENERATES = """\
class Generator(Net):
    @torch.no_grad()
    def generate(self, x):
        for _ in range(3):
            x = self(x)
        return x


model = FSDP(Generator(), auto_wrap_policy=ModuleWrapPolicy({Block}))
with FSDP.summon_full_params(model, writeback=False, recurse=False):
    x = model.module.generate(torch.ones(2, 8))
"""


def test_a_generate_of_the_program_that_calls_the_whole_model(tmp_path: Path) -> None:
    text = migrated(tmp_path, GENERATES)
    assert "model.unshard()\nx = model.generate(torch.ones(2, 8))\nmodel.reshard()\n" in text
    found, _ = plan(tmp_path, GENERATES.replace("self(x)", "self.blocks[0](x)"))
    assert [one.code for one in found.blockers] == ["FSDP299-summon-calls-parts-first"]


WHOLE = """\
policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=policy)


@torch.no_grad()
def generate(model, x):
    model.eval()
    with FSDP.summon_full_params(model, writeback=False):
        for _ in range(3):
            x = model(x)
    return x


print(generate(model, torch.ones(2, 8)))
"""


def test_a_call_of_the_wrapped_model_gathers_the_parameters_itself(tmp_path: Path) -> None:
    found, text = plan(tmp_path, WHOLE)
    assert not found.blockers and found.safety is Safety.SAFE
    assert "    model.eval()\n    for _ in range(3):\n        x = model(x)\n    return x\n" in text
    for old, new in [
        ("x = model(x)", "x = model(x) + model.blocks[0].linear.weight.sum()"),
        ("x = model(x)", "x = model.blocks[0](model(x))"),
        ("@torch.no_grad()\n", ""),
    ]:
        found, _ = plan(tmp_path, WHOLE.replace(old, new))
        assert found.blockers or found.safety is Safety.UNSAFE, old


PARTS = """\
class Sampler(Net):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        return self.head(super().forward(x))

    @torch.no_grad()
    def sample(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


policy = MixedPrecision(param_dtype=torch.bfloat16) if os.environ.get("HALF") else None
model = FSDP(Sampler(), auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=policy)
model(torch.ones(2, 8)).sum().backward()
with FSDP.summon_full_params(model, writeback=False, recurse=False):
    x = model.module.sample(torch.ones(2, 8))
"""


def test_units_that_run_where_only_the_rest_is_gathered(tmp_path: Path) -> None:
    text = migrated(tmp_path, PARTS)
    assert "with gathered_parameters(model" in text
    first = PARTS.replace("model(torch.ones(2, 8)).sum().backward()\n", "")
    found, _ = plan(tmp_path, first)
    assert found.blockers
    found, _ = plan(tmp_path, PARTS.replace(", recurse=False", ""))
    assert found.blockers
