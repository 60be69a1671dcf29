"""The units of FSDP1 as they are in a run, compared with those of a migration by hand."""

from __future__ import annotations

import textwrap

import pytest
from comparing import check, compared
from two_ranks import TwoRanks

HEAD = """\
import torch
import torch.distributed as dist
import torch.nn as nn

dist.init_process_group("gloo")
torch.manual_seed(0)
"""
FSDP1 = """\
from functools import partial

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

cpu = torch.device("cpu")
"""
FSDP2 = "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard\n"
LOOP = """\
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(2):
    torch.manual_seed(2 * step + dist.get_rank())
    model({batch}).float().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

NORMS = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.norm = NORM
        self.second = nn.Conv2d(4, 4, 3)

    def forward(self, x):
        return self.second(self.norm(self.first(x)))


model = Net()
"""
NORMS_FSDP1 = """\
policy = MixedPrecision(param_dtype=torch.bfloat16, _module_classes_to_ignore=[type(model.norm)])
model = FSDP(
    model,
    auto_wrap_policy=ModuleWrapPolicy({nn.Conv2d}),
    mixed_precision=policy,
    device_id=cpu,
)
"""
NORMS_FSDP2 = """\
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
fully_shard(model.first, mp_policy=policy)
fully_shard(model.norm, mp_policy=%s)
fully_shard(model.second, mp_policy=policy)
fully_shard(model, mp_policy=policy)
"""
IMAGES = LOOP.format(batch="torch.randn(2, 3, 8, 8)")


BATCH, GROUP = "nn.BatchNorm2d(4)", "nn.GroupNorm(2, 4)"


def norms(norm: str, policy: str = "") -> str:
    sharding = FSDP2, NORMS_FSDP2 % policy
    imports, shards = sharding if policy else (FSDP1, NORMS_FSDP1)
    return HEAD + imports + NORMS.replace("NORM", norm) + shards + IMAGES


@pytest.mark.parametrize("norm", [BATCH, GROUP])
def test_classes_that_fsdp1_keeps_in_float32(norm: str, two_ranks: TwoRanks) -> None:
    before = two_ranks.run(norms(norm), parameters=True)
    own = "MixedPrecisionPolicy(param_dtype=torch.float32, output_dtype=torch.bfloat16)"
    after = two_ranks.run(norms(norm, own), parameters=True)
    comparison = compared(before, after)
    assert comparison.holds, comparison.differences
    # The hooks of FSDP1 cast the inputs of a norm, after the call and before the forward.
    (types,) = {
        tuple(unit["inputs"])
        for record in before.records
        for unit in record.layouts[0]["units"]
        if unit["name"] == "norm"
    }
    assert types == ("torch.float32",)


def test_such_a_class_in_another_type(two_ranks: TwoRanks) -> None:
    before = two_ranks.run(norms(GROUP), parameters=True)
    after = two_ranks.run(norms(GROUP, "policy"), parameters=True)
    found = {one.name: one.detail for one in compared(before, after).differences}
    assert found["types of inputs and outputs"] == (
        "norm gets torch.float32 before, torch.bfloat16 after"
    )
    assert found["mixed precision"] == (
        "norm: computes in torch.float32, reduces in torch.float32 before, "
        "computes in torch.bfloat16, reduces in torch.bfloat16 after"
    )


MODELS = """\
model, average = nn.Linear(8, 8), nn.Linear(8, 8)
average.load_state_dict(model.state_dict())
"""
AVERAGE_FSDP1 = """\
model, average = (
    FSDP(one, device_id=cpu, use_orig_params=%s) for one in (model, average)
)
"""
AVERAGE_FSDP2 = """\
fully_shard(model)
fully_shard(average)
"""
AVERAGED = (
    LOOP.format(batch="torch.randn(2, 8)")
    + """\
    with torch.no_grad():
        for old, new in zip(average.parameters(), model.parameters()):
            old.mul_(0.9).add_(new, alpha=0.1)
"""
)


@pytest.mark.parametrize("original", [True, False])
def test_a_unit_that_runs_no_forward(original: bool, two_ranks: TwoRanks) -> None:
    """FSDP1 sets its units up in the first forward; they are sharded before it, too."""
    before = two_ranks.run(
        HEAD + FSDP1 + MODELS + AVERAGE_FSDP1 % original + AVERAGED, parameters=True
    )
    after = two_ranks.run(HEAD + FSDP2 + MODELS + AVERAGE_FSDP2 + AVERAGED, parameters=True)
    assert all(
        {unit["name"] for unit in line["units"]} == {"0:", "1:"}
        for record in before.records
        for line in record.layouts
    )
    comparison = compared(before, after)
    assert comparison.holds, comparison.differences
    assert check(comparison, "placement of parameters").detail == (
        "the same for 4 parameters on each rank"
    )


LIST = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])

    def forward(self, x):
        return self.layers[1](self.layers[0](x).relu())


model = Net()
"""
LIST_FSDP1 = """\
from torch.distributed.fsdp.wrap import always_wrap_policy

model = FSDP(model, auto_wrap_policy=always_wrap_policy, device_id=cpu)
"""
LIST_FSDP2 = """\
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
"""


def test_a_wrapper_without_parameters_is_no_unit(two_ranks: TwoRanks) -> None:
    """`always_wrap_policy` wraps lists of modules, too, which gather nothing."""
    loop = LOOP.format(batch="torch.randn(2, 8)")
    before = two_ranks.run(HEAD + FSDP1 + LIST + LIST_FSDP1 + loop, parameters=True)
    after = two_ranks.run(HEAD + FSDP2 + LIST + LIST_FSDP2 + loop, parameters=True)
    comparison = compared(before, after)
    assert comparison.holds, comparison.differences
    one_unit = LIST_FSDP2.replace("for layer in model.layers:\n    fully_shard(layer)\n", "")
    after = two_ranks.run(HEAD + FSDP2 + LIST + one_unit + loop, parameters=True)
    found = {one.name: one.detail for one in compared(before, after).differences}
    assert found["sharded modules"] == ("only before: layers.0, layers.1; only after: (root)")


FULL_PRECISION = "mixed_precision=MixedPrecision(param_dtype=torch.float32), "


def test_the_own_type_as_precision_of_several_models(two_ranks: TwoRanks) -> None:
    loop = LOOP.format(batch="torch.randn(2, 8)").replace(
        "model({batch})", "average(torch.randn(2, 8)); model({batch})"
    )
    wrapped = AVERAGE_FSDP1.replace("device_id=cpu, ", FULL_PRECISION + "device_id=cpu, ") % True
    before = two_ranks.run(HEAD + FSDP1 + MODELS + wrapped + loop, parameters=True)
    after = two_ranks.run(HEAD + FSDP2 + MODELS + AVERAGE_FSDP2 + loop, parameters=True)
    assert before.status == after.status == "ok", str(before) + str(after)
    differences = {one.name for one in compared(before, after).differences}
    assert "mixed precision" not in differences


SUBCLASS = """\
class Sharded(FSDP):
    def __init__(self, module):
        super().__init__(module, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=cpu)


model = Sharded(model)
"""


def test_wrappers_of_a_subclass(two_ranks: TwoRanks) -> None:
    loop = LOOP.format(batch="torch.randn(2, 8)")
    before = two_ranks.run(HEAD + FSDP1 + LIST + SUBCLASS + loop, parameters=True)
    after = two_ranks.run(HEAD + FSDP2 + LIST + LIST_FSDP2 + loop, parameters=True)
    comparison = compared(before, after)
    assert comparison.holds, comparison.differences


DROPPED = """\
import copy, gc

for attempt in range(2):
    torch.manual_seed(attempt)
    model = nn.Linear(8, 8)
    average = copy.deepcopy(model)
%s%s    del model, average, old, new
    gc.collect()
"""


def test_models_that_the_program_drops(two_ranks: TwoRanks) -> None:
    """A copy has no constructor call, and only FSDP1 has wrappers, which have one."""
    outcomes = [
        two_ranks.run(
            HEAD + imports + DROPPED % (indented(shards), indented(AVERAGED)), parameters=True
        )
        for imports, shards in ((FSDP1, AVERAGE_FSDP1 % True), (FSDP2, AVERAGE_FSDP2))
    ]
    comparison = compared(*outcomes)
    assert comparison.holds, comparison.differences


def indented(text: str) -> str:
    return textwrap.indent(text, "    ")
