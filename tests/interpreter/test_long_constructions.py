"""Constructions of modules that take very many steps: the code after them is reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.interpreter import long_constructions
from fsdplint.trace import Collective, ModuleBuilt

BODY = """
def describe(module, names):
    for name in names:
        for part in module.children():
            label = f"{name}.{part}"
            names = names + [label]
    return names

class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        for number in (1, 2, 3, 4, 5, 6, 7, 8):
            describe(self, ["a", "b", "c"])
        self.last = make()

    def forward(self, x):
        return self.last(self.first(x))

def make():
    return nn.Linear(8, 8)

model = Large()
fully_shard(model)
dist.barrier()
if dist.get_rank() == 0:
    dist.barrier()
"""


def test_what_comes_after_a_long_construction_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_constructions, "MAX_STEPS", 100)
    found = program(tmp_path, BODY)
    assert len({event.site for event in events(found, Collective)}) == 2
    assert findings(found, "FSDP501")


def test_the_parts_that_it_builds_at_last_are_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = program(tmp_path, BODY)
    monkeypatch.setattr(long_constructions, "MAX_STEPS", 100)
    part = program(tmp_path, BODY)
    assert len(list(events(part, ModuleBuilt))) < len(list(events(whole, ModuleBuilt)))
    (info,) = (one for one in part.traces[0].modules.values() if one.class_name == "Large")
    assert not info.children_known


def test_a_short_construction_is_followed(tmp_path: Path) -> None:
    found = program(tmp_path, BODY)
    (info,) = (one for one in found.traces[0].modules.values() if one.class_name == "Large")
    assert info.children_known


def test_the_cut_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not program(tmp_path, BODY).cut_short
    monkeypatch.setattr(long_constructions, "MAX_STEPS", 100)
    found = program(tmp_path, BODY)
    assert any("too many steps to be built" in cut.reason for cut in found.cuts.values())
