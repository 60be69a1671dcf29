"""Functions and methods that take the state for a `state_dict_type` block."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan

PROGRAM = """
class Saver:
    def __init__(self):
        self.model = FSDP(Net(), use_orig_params=True)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def _state(self, model, optimizer):
        return {{"model": model.state_dict(), "optim": FSDP.optim_state_dict(model, optimizer)}}

    def save(self):
        with FSDP.state_dict_type(self.model, StateDictType.SHARDED_STATE_DICT):
            torch.save(self._state(self.model, self.optimizer), "x.pt")


{other}
saver = Saver()
saver.save()
{last}
"""


def test_a_method(tmp_path: Path) -> None:
    after = migrated(tmp_path, PROGRAM.format(other="", last=""))
    assert '"model": get_model_state_dict(model),' in after
    assert 'torch.save(self._state(self.model, self.optimizer), "x.pt")' in after


@pytest.mark.parametrize(
    ("other", "last"),
    [
        ("class Other(Saver):\n    def _state(self, model, optimizer):\n        return {}", ""),
        ("", "print(saver._state(saver.model, saver.optimizer))"),
        ("", "take = saver._state"),
    ],
)
def test_a_method_with_other_meanings(tmp_path: Path, other: str, last: str) -> None:
    found, _ = plan(tmp_path, PROGRAM.format(other=other, last=last))
    assert any("takes the state" in one.reason for one in found.blockers)
