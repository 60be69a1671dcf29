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


{wrapping}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.zeros(8)).sum().backward()
optimizer.step()
save(model, optimizer, os.environ["BACKEND"])
"""


ALWAYS = "model = FSDP(Net())"
WRAPPING = {
    "arm": """
def parallelize(model, backend):
    if backend == {kind}:
        return nn.parallel.DistributedDataParallel(model)
    return FSDP(model)


model = parallelize(Net(), os.environ["BACKEND"])
""",
    "last arm": """
if os.environ["BACKEND"] == "fsdp":
    model = FSDP(Net())
else:
    model = nn.parallel.DistributedDataParallel(Net())
""",
    "function": """
def replicate(model):
    return nn.parallel.DistributedDataParallel(model)


def parallelize(model, backend):
    return replicate(model) if backend != "fsdp" else FSDP(model)


if os.environ["BACKEND"] == {kind}:
    model = replicate(Net())
else:
    model = parallelize(Net(), os.environ["BACKEND"])
""",
}


def saved(kind: str, wrapping: str = ALWAYS) -> str:
    return SAVED.replace("{wrapping}", wrapping.strip()).replace("{kind}", f'"{kind}"')


@pytest.mark.parametrize("wrapping", list(WRAPPING.values()), ids=list(WRAPPING))
@pytest.mark.parametrize("kind", ["ddp", "replicas"])
def test_the_arm_of_ddp_stays(kind: str, wrapping: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, saved(kind, wrapping))
    arm = SAVED[SAVED.index("        if dist.") : SAVED.index("    elif")]
    assert arm in text and "state = get_model_state_dict(" in text


OTHER_ARMS = {
    "of another kind": saved("local"),
    "of a text that means something else": saved("distributed"),
    "without one for FSDP": saved("ddp").replace('elif backend == "fsdp"', "else"),
}


@pytest.mark.parametrize("body", list(OTHER_ARMS.values()), ids=list(OTHER_ARMS))
def test_an_arm_that_may_get_the_model_is_unsafe(body: str, tmp_path: Path) -> None:
    """All ranks take the state of the model there."""
    found, text = plan(tmp_path, body)
    assert not found.blockers, [one.reason for one in found.blockers]
    assert "model.module" not in text
    assert "        model_state = get_model_state_dict(" in text
    assert any(note.unsafe and "inside of the wrapper" in note.text for note in found.notes)
