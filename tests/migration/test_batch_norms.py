"""Batch norms, which FSDP1 keeps out of mixed precision if it gets a policy."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import POLICY, migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.migration.blockers.constructor import CLASSES_TO_IGNORE
from fsdplint.registry.rules import all_rules

PROGRAM = """
import functools
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy
)
from torch.distributed.fsdp.wrap import (
    CustomPolicy, ModuleWrapPolicy, always_wrap_policy, lambda_auto_wrap_policy,
    size_based_auto_wrap_policy,
)


class Block(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.conv = nn.Conv1d(inputs, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(4), Block(8))
        self.head = nn.Linear(8, 3)
        self.register_buffer("scale", torch.tensor(0.3))

    def forward(self, x):
        return self.head(self.blocks(x).mean(-1)) * self.scale


dist.init_process_group("gloo")
torch.manual_seed(0)
precision = MixedPrecision(
    param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16
)
model = FSDP(
    Net(),
    auto_wrap_policy=POLICY,
    mixed_precision=precision,
    device_id=torch.device("cpu"),
    use_orig_params=True,
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(dist.get_rank())
lines = []
for step in range(3):
    loss = model(torch.randn(6, 4, 5, generator=generator)).float().pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    lines.append(f"{dist.get_rank()} {loss.item():.7f}")
for name, buffer in model.named_buffers():
    lines.append(f"{dist.get_rank()} {buffer.dtype} {buffer.float().sum().item():.6f}")
print("\\n".join(lines))
dist.destroy_process_group()
"""
POLICIES = {
    "classes": "ModuleWrapPolicy({Block})",
    "all": "always_wrap_policy",
    "size": "functools.partial(size_based_auto_wrap_policy, min_num_params=100)",
    "a test": (
        "functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, Block))"
    ),
    "a strategy of their own": (
        'CustomPolicy(lambda m: {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP} '
        "if isinstance(m, Block) else False)"
    ),
}
CHOOSE = """
def choose(module):
    if isinstance(module, nn.Linear):
        return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
    return isinstance(module, Block)


def initialize(module):
    module.to_empty(device=torch.device("cpu"), recurse=False)
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()


dist.init_process_group"""
ON_META = """
with torch.device("meta"):
    net = Net()
model = FSDP(
    net,
    param_init_fn=initialize,
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
def test_batch_norms_compute_as_before(policy: str, tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    before = PROGRAM.replace("POLICY", policy)
    path.write_text(before, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    runs = [two_ranks.run(text, timeout=600) for text in (before, after)]
    assert [run.status for run in runs] == ["ok", "ok"], "\n".join(map(str, runs))
    assert len(runs[0].stdout.splitlines()) == 20
    assert sorted(runs[1].stdout.splitlines()) == sorted(runs[0].stdout.splitlines())


OPTIONAL = """
class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(4), Block(8))

    def forward(self, x):
        return self.blocks(x)


def pick(units):
    if units == "none":
        return None
    return ModuleWrapPolicy({Block})


units = os.environ.get("UNITS", "UNITS_BY_DEFAULT")
policy = pick(units)
dist.init_process_group"""


@pytest.mark.parametrize("net", ["Net", "Plain"])
@pytest.mark.parametrize("units", ["none", "blocks"])
def test_without_a_policy_batch_norms_are_as_other_modules(
    net: str, units: str, tmp_path: Path, two_ranks: TwoRanks
) -> None:
    optional = OPTIONAL.replace("UNITS_BY_DEFAULT", units)
    before = PROGRAM.replace("dist.init_process_group", optional, 1).replace("Net(),", f"{net}(),")
    before = before.replace("POLICY", "policy", 1).replace(
        "import functools", "import functools\nimport os"
    )
    path = tmp_path / "train.py"
    path.write_text(before, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "if policy is None or not isinstance(module, " in after
    runs = [two_ranks.run(text, timeout=600) for text in (before, after)]
    assert [run.status for run in runs] == ["ok", "ok"], "\n".join(map(str, runs))
    assert sorted(runs[1].stdout.splitlines()) == sorted(runs[0].stdout.splitlines())


@pytest.mark.parametrize("on_meta", [False, True])
def test_units_with_arguments_of_their_own(
    tmp_path: Path, two_ranks: TwoRanks, *, on_meta: bool
) -> None:
    before = PROGRAM.replace("POLICY", "CustomPolicy(choose)")
    before = before.replace("\ndist.init_process_group", CHOOSE, 1)
    if on_meta:
        before = before.replace("\nmodel = FSDP(\n    Net(),\n", ON_META)
        before = before.replace('        self.register_buffer("scale", torch.tensor(0.3))\n', "")
        before = before.replace(" * self.scale", "")
    path = tmp_path / "train.py"
    path.write_text(before, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    runs = [two_ranks.run(text, timeout=600) for text in (before, after)]
    assert [run.status for run in runs] == ["ok", "ok"], "\n".join(map(str, runs))
    assert sorted(runs[1].stdout.splitlines()) == sorted(runs[0].stdout.splitlines())


GIVEN = "mixed_precision=MixedPrecision(param_dtype=torch.bfloat16)"


def test_a_batch_norm_is_one_of_torchs(tmp_path: Path) -> None:
    call = f"model = FSDP(Net(), {POLICY}, {GIVEN})\n"
    assert "_BatchNorm" not in migrated(tmp_path, f"# no nn.BatchNorm2d here\n{call}")
    assert "_BatchNorm" in migrated(tmp_path, f"norm = nn.BatchNorm2d(8)\n{call}")


@pytest.mark.parametrize(("name", "norms"), [("resnet50", True), ("vit_b_16", False)])
def test_a_library_model_with_batch_norms(tmp_path: Path, name: str, *, norms: bool) -> None:
    body = f"""
    from torchvision import models

    MODELS = {{"model": models.{name}}}
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=100)
    precision = MixedPrecision(param_dtype=torch.bfloat16)
    model = FSDP(MODELS["model"](), auto_wrap_policy=policy, mixed_precision=precision)
    """
    assert ("_BatchNorm" in migrated(tmp_path, body)) == norms


def test_models_with_and_without_mixed_precision(tmp_path: Path) -> None:
    size = "functools.partial(size_based_auto_wrap_policy, min_num_params=20)"
    body = f"""
    norm = nn.BatchNorm2d(8)
    plain = FSDP(Net(), auto_wrap_policy={size})
    model = FSDP(Net(), auto_wrap_policy={size}, {GIVEN})
    """
    text = migrated(tmp_path, body)
    assert text.count("def shard_large_modules") == 1
    assert text.count("if isinstance(module, nn.modules.batchnorm._BatchNorm)") == 1


@pytest.mark.parametrize(
    ("made", "ignored", "same"),
    [
        ("nn.BatchNorm1d", "(nn.BatchNorm1d,)", True),
        ("nn.BatchNorm1d", "[nn.BatchNorm1d, nn.BatchNorm2d]", True),
        ("nn.BatchNorm1d", "(nn.modules.batchnorm._BatchNorm,)", True),
        ("nn.BatchNorm1d", "(nn.BatchNorm2d,)", False),
        ("nn.BatchNorm1d", "(nn.BatchNorm1d, nn.LayerNorm)", False),
        ("nn.BatchNorm1d", "None", False),
        ("nn.BatchNorm1d", "()", False),
        ("nn.GroupNorm", "None", True),
        ("nn.GroupNorm", "()", True),
        ("nn.GroupNorm", "(nn.GroupNorm,)", False),
    ],
)
def test_classes_to_ignore(tmp_path: Path, made: str, ignored: str, *, same: bool) -> None:
    body = f"""
    norm = {made}(8)
    precision = MixedPrecision(param_dtype=torch.bfloat16, _module_classes_to_ignore={ignored})
    model = FSDP(Net(), {POLICY}, mixed_precision=precision)
    """
    found, text = plan(tmp_path, body)
    assert [one.code for one in found.blockers] == ([] if same else [CLASSES_TO_IGNORE.code])
    assert "_module_classes_to_ignore" not in text
    if same:
        assert ("_BatchNorm" in text) == (made == "nn.BatchNorm1d")


MAYBE = "MixedPrecision(param_dtype=torch.bfloat16)"


@pytest.mark.parametrize(
    ("precision", "maybe"),
    [
        (f'None\nif os.environ.get("LOW"):\n    precision = {MAYBE}', True),
        (f'{MAYBE} if os.environ.get("LOW") else None', True),
        (MAYBE, False),
    ],
)
def test_precision_that_the_program_may_not_have(
    tmp_path: Path, precision: str, *, maybe: bool
) -> None:
    body = f"""norm = nn.BatchNorm2d(8)
precision = {precision}
model = FSDP(Net(), {POLICY}, mixed_precision=precision)
"""
    assert _tests_precision(migrated(tmp_path, body)) == maybe


@pytest.mark.parametrize(
    ("precision", "maybe"), [(f'{MAYBE} if os.environ.get("LOW") else None', True), (MAYBE, False)]
)
def test_precision_in_the_call(tmp_path: Path, precision: str, *, maybe: bool) -> None:
    body = f"""norm = nn.BatchNorm2d(8)
model = FSDP(Net(), {POLICY}, mixed_precision={precision})
"""
    assert _tests_precision(migrated(tmp_path, body)) == maybe


def _tests_precision(text: str) -> bool:
    """Whether batch norms have a policy of their own only under mixed precision."""
    return ".param_dtype is not None and isinstance(module, nn.modules.batchnorm" in text


def test_batch_norms_beside_ignored_modules(tmp_path: Path) -> None:
    body = f"""
    model = Net()
    model.blocks[0] = nn.BatchNorm1d(8)
    model.blocks[0].requires_grad_(False)
    model = FSDP(model, {POLICY}, {GIVEN}, ignored_modules=[model.blocks[0]])
    """
    found, _ = plan(tmp_path, body)
    assert [one.blocker.code for one in found.blockers] == ["FSDP201-batch-norm"]


def test_modules_that_are_wrapped_one_by_one(tmp_path: Path) -> None:
    body = f"""
    norm = nn.BatchNorm2d(8)
    with enable_wrap(wrapper_cls=FSDP, {GIVEN}):
        model = wrap(nn.Sequential(wrap(Block()), wrap(Block())))
    """
    assert "_BatchNorm" not in migrated(tmp_path, body)
