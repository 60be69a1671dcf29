"""Functions that a `state_dict_type` block calls and that take no state of a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan

PROGRAM = """
def part_of(settings):
    return dist.get_rank() % max(1, settings["parts"])


class Files:
    @staticmethod
    def keep(settings, optimizer, folder):
        logger.info("saving to %s", folder)
        torch.save(optimizer.state_dict(), f"{{folder}}/{{part_of(settings)}}.pt")


def keep_model(owner):
    torch.save({state}, "model.pt")


class Owner:
    def __init__(self, model):
        self.model = model

    def update(self):
        return self.model.state_dict()


model = FSDP(Net(), use_orig_params=True)
owner = Owner(model)
optimizer = torch.optim.Adam(model.parameters())
with FSDP.state_dict_type(model, StateDictType.{kind}_STATE_DICT):
    {call}
"""


@pytest.mark.parametrize("kind", ["LOCAL", "FULL"])
def test_an_optimizers_own_state_needs_no_block(tmp_path: Path, kind: str) -> None:
    call = 'Files.keep({"parts": 8}, optimizer, "out")'
    after = migrated(tmp_path, PROGRAM.format(kind=kind, call=call, state="{}"))
    assert "state_dict_type" not in after
    assert f"\n{call}" in after
    assert "torch.save(optimizer.state_dict()," in after


@pytest.mark.parametrize("state", ["owner.model.state_dict()", "owner.take()", "owner.update()"])
def test_a_model_in_an_object(tmp_path: Path, state: str) -> None:
    found, _ = plan(tmp_path, PROGRAM.format(kind="FULL", call="keep_model(owner)", state=state))
    assert any("takes the state" in one.reason for one in found.blockers)
