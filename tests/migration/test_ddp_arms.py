"""Arms for models of DDP beside the arm for FSDP1's."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan

SAVED = """
def save(model, optimizer, backend):
    if backend == {kind}:
        if dist.get_rank() == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, "ddp.pt")
    elif backend == "fsdp":
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            state = model.state_dict()
        torch.save(state, "fsdp.pt")


model = FSDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.zeros(8)).sum().backward()
optimizer.step()
save(model, optimizer, os.environ["BACKEND"])
"""


@pytest.mark.parametrize("kind", ["ddp", "DataParallel"])
def test_the_arm_of_ddp_stays(kind: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, SAVED.replace("{kind}", f'"{kind}"'))
    arm = SAVED[SAVED.index("        if dist.") : SAVED.index("    elif")]
    assert arm in text and "state = get_model_state_dict(" in text


def test_an_arm_of_another_kind_blocks(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, SAVED.replace("{kind}", '"local"'))
    assert "FSDP207-inner-state" in [one.blocker.code for one in found.blockers]


def test_an_arm_without_an_arm_for_fsdp_blocks(tmp_path: Path) -> None:
    body = SAVED.replace("{kind}", '"ddp"').replace('elif backend == "fsdp"', "else")
    found, _ = plan(tmp_path, body)
    assert "FSDP207-inner-state" in [one.blocker.code for one in found.blockers]
