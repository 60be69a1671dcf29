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


OTHER_ARMS = {
    "of another kind": SAVED.replace("{kind}", '"local"'),
    "without one for FSDP": SAVED.replace("{kind}", '"ddp"').replace(
        'elif backend == "fsdp"', "else"
    ),
}


@pytest.mark.parametrize("body", list(OTHER_ARMS.values()), ids=list(OTHER_ARMS))
def test_an_arm_that_may_get_the_model_is_unsafe(body: str, tmp_path: Path) -> None:
    """All ranks take the state of the model there."""
    found, text = plan(tmp_path, body)
    assert not found.blockers, [one.reason for one in found.blockers]
    assert "model.module" not in text
    assert "        model_state = get_model_state_dict(" in text
    assert any(note.unsafe and "inside of the wrapper" in note.text for note in found.notes)
