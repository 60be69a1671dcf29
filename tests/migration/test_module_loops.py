"""Loops over all modules of a model that test for FSDP1's wrapper."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import POLICY, plan
from two_ranks import TwoRanks

MODEL = f"model = FSDP(Net(), {POLICY})\n"
LOOP = "for module in model.modules():\n"
NAMED = "for name, module in model.named_modules():\n"
ASK = "isinstance(module, FSDP)"
NOW = "isinstance(module, FSDPModule)"
FORMS = {
    "wrappers are skipped": (
        f"{LOOP}    if {ASK}:\n        continue\n    module.track = True",
        f"{LOOP}    module.track = True",
    ),
    "wrappers and others are skipped": (
        f"{NAMED}    if {ASK} or isinstance(module, nn.Linear):\n        continue\n    print(name)",
        f"{NAMED}    if isinstance(module, nn.Linear):\n        continue\n    print(name)",
    ),
    "code for modules that are no wrappers": (
        f"{LOOP}    if not {ASK}:\n        module.track = True\n        print(module)",
        f"{LOOP}    module.track = True\n    print(module)",
    ),
    "code for some modules that are no wrappers": (
        f"{LOOP}    if isinstance(module, Block) and not {ASK}:\n        module.track = True",
        f"{LOOP}    if isinstance(module, Block):\n        module.track = True",
    ),
    "a list without wrappers": (
        f"found = [module for module in model.modules() if not {ASK}]",
        "found = [module for module in model.modules()]",
    ),
    "a list of some modules without wrappers": (
        f"print(*(m for m in list(model.modules()) if not {ASK.replace('module', 'm')} and m.training))",
        "print(*(m for m in list(model.modules()) if m.training))",
    ),
    "the other code runs for the modules inside of wrappers": (
        f"{LOOP}    if {ASK}:\n        print(module)\n        continue\n    module.track = True",
        f"{LOOP}    if {NOW}:\n        print(module)\n    module.track = True",
    ),
}
KEPT = [
    f"{LOOP}    if {ASK}:\n        module.track = True",
    f"{LOOP}    if not {ASK}:\n        continue\n    module.track = True",
    f"{LOOP}    if {ASK}:\n        module.track = True\n    else:\n        continue",
    f"count = sum({ASK} for module in model.modules())",
    f"count = len([module for module in model.modules() if {ASK}])",
    f"for module in model.children():\n    if {ASK}:\n        continue\n    module.track = True",
]
UNSAFE = [
    f"{LOOP}    if {ASK}:\n        print(module)\n    else:\n        module.track = True",
    f"{LOOP}    if isinstance(module, (FSDP, nn.Linear)):\n        continue\n    module.track = True",
    f"{LOOP}    if not {ASK}:\n        module.track = True\n        continue\n    print(module)",
]


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_loop_becomes(tmp_path: Path, before: str, after: str) -> None:
    found, text = plan(tmp_path, MODEL + before + "\n")
    assert [one.reason for one in found.blockers] == []
    assert text.endswith("fully_shard(model)\n" + after + "\n")
    assert not any(note.unsafe for note in found.notes)


@pytest.mark.parametrize("before", KEPT)
def test_code_for_wrappers_is_for_sharded_modules(tmp_path: Path, before: str) -> None:
    found, text = plan(tmp_path, MODEL + before + "\n")
    assert text.endswith("fully_shard(model)\n" + before.replace(ASK, NOW) + "\n")
    assert not any(note.unsafe for note in found.notes)


@pytest.mark.parametrize("before", UNSAFE)
def test_code_that_fewer_modules_run_is_unsafe(tmp_path: Path, before: str) -> None:
    found, _ = plan(tmp_path, MODEL + before + "\n")
    notes = [note.text for note in found.notes if note.unsafe]
    assert len(notes) == 1 and "no longer runs code" in notes[0]


RUN = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Sequential(nn.Linear(8, 8)))
policy = ModuleWrapPolicy({nn.Linear})
model = FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))
for module in model.modules():
    if isinstance(module, FSDP):
        continue
    module.visited = True
visited = [
    part for part in model.modules() if getattr(part, "visited", False) and not isinstance(part, FSDP)
]
print(len(visited), model(torch.ones(2, 8)).shape)
"""


def test_the_loop_visits_the_same_modules(tmp_path: Path, two_ranks: TwoRanks) -> None:
    _, text = plan(tmp_path, RUN, head="")
    before, after = two_ranks.run(RUN), two_ranks.run(text)
    assert before.status == after.status == "ok", f"{before}\n{after}"
    assert before.stdout == after.stdout
