"""States of the units that a program picks from the modules of a model."""

from __future__ import annotations

from pathlib import Path

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.comparing import compare_sides, side

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel as FSDP, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

dist.init_process_group("nccl")
torch.cuda.set_device(0)
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
"""
UNKNOWN = "model = FSDP(net, auto_wrap_policy=torch.load('policy.pt'))\n"
KNOWN = "model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({nn.Embedding}))\n"
AFTER = """
for module in reversed(list(net.modules())[1:]):
    fully_shard(module)
model = fully_shard(net)
"""
STATES = """
states = {}
for name, module in model.named_modules():
    if isinstance(module, CLASS) and len(list(module.INNERchildren())) == 0:
        states[name] = module.state_dict()
"""
OF_FSDP1 = STATES.replace("CLASS", "FSDP").replace("INNER", "module.")
OF_FSDP2 = STATES.replace("CLASS", "FSDPModule").replace("INNER", "")


def open_states(tmp_path: Path, before: str, after: str) -> set[str]:
    """The modules whose states may be there before, too, since the units are not known."""
    paths = tmp_path / "before.py", tmp_path / "after.py"
    for path, text in zip(paths, (before, after), strict=True):
        path.write_text(HEAD + text)
    facts = compare_sides(side(paths[0]), side(paths[1])).facts
    found = [one for one in facts if one.topic == "state is taken" and "polic" in one.reason]
    assert all(one.outcome is Outcome.NOT_FOLLOWED for one in found)
    return {one.subject for one in found}


def test_units_of_an_unknown_policy(tmp_path: Path) -> None:
    found = open_states(tmp_path, UNKNOWN + OF_FSDP1, AFTER + OF_FSDP2)
    assert found == {"model.0", "model.1"}


def test_other_units(tmp_path: Path) -> None:
    assert open_states(tmp_path, KNOWN + OF_FSDP1, AFTER + OF_FSDP2) == set()


def test_the_state_of_the_model_is_that_of_no_unit(tmp_path: Path) -> None:
    after = AFTER + "state = model.state_dict()\n"
    assert open_states(tmp_path, UNKNOWN + OF_FSDP1, after) == set()


def test_a_load_of_an_unknown_state_is_not_lost(tmp_path: Path) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    load = "import library\nmodel = FSDP(net)\nmodel.load_state_dict(library.state())\n"
    before.write_text(HEAD + load)
    after.write_text(HEAD + "model = fully_shard(net)\n")
    result = compare_sides(side(before), side(after))
    found = [one.outcome for one in result.facts if one.topic == "state is loaded"]
    assert found == [Outcome.DIFFERS]
