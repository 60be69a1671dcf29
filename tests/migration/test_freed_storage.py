"""Storage of flat parameters that a program frees."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.utils import _free_storage


def free(model):
    for m in model.modules():
        if isinstance(m, FSDP):
            _free_storage(m._handle.flat_param.data)


dist.init_process_group("gloo")
model = FSDP(
    nn.Sequential(nn.Linear(5, 3), nn.Sequential(nn.Linear(3, 3))),
    auto_wrap_policy=ModuleWrapPolicy({nn.Sequential}),
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    device_id=torch.device("cpu"),
)
with torch.no_grad():
    model(torch.ones(2, 5))
free(model)
held = [p.data for p in model.parameters()]
held = [getattr(one, "_local_tensor", one).untyped_storage().size() for one in held]
print("held", sum(held))
dist.destroy_process_group()
"""


def test_no_parameter_holds_memory(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "isinstance(m, FSDPModule)" in after and "_handle" not in after
    for run in (two_ranks.run(text, timeout=600) for text in (PROGRAM, after)):
        assert run.status == "ok" and "held 0" in run.stdout, run


FORMS = {
    "the parameter": (
        "for one in model.modules():\n    if isinstance(one, FSDP):\n"
        "        _free_storage(one._handle.flat_param)\n",
        "        one.reshard()\n        for parameter in one.parameters():\n"
        "            if isinstance(parameter, DTensor):\n"
        "                _free_storage(parameter.to_local())\n",
    ),
    "the storage": (
        "for m in model.modules():\n    if isinstance(m, FSDP):\n"
        "        m._handle.flat_param.data.untyped_storage().resize_(0)\n",
        "                parameter.to_local().untyped_storage().resize_(0)\n",
    ),
}
HEAD = "from torch.distributed.utils import _free_storage\nmodel = FSDP(Net())\n"


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_the_shards_are_freed(before: str, after: str, tmp_path: Path) -> None:
    assert after in migrated(tmp_path, HEAD + before)


STAYING = {
    "one unit": "_free_storage(model._handle.flat_param.data)\n",
    "another tensor": "for m in model.modules():\n    _free_storage(m._handle.flat_param.grad)\n",
    "another size": (
        "for m in model.modules():\n    m._handle.flat_param.untyped_storage().resize_(8)\n"
    ),
}


@pytest.mark.parametrize("body", list(STAYING.values()), ids=list(STAYING))
def test_other_uses_of_the_flat_parameter_block(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, HEAD + body)
    assert found.blockers
