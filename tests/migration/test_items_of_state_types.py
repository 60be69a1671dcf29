"""Types of states and their settings in a tuple, list or dict: the items are read one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan

SAVER = """
class Saver:
    def __init__(self, model, offload):
        self.model = model
        self.full = {made}

    def save(self):
        with FSDP.state_dict_type(self.model, {given}):
            weights = self.model.state_dict()
        if dist.get_rank() == 0:
            torch.save(weights, "last.pt")


Saver(FSDP(Net()), torch.cuda.is_available()).save()
"""
KIND = "StateDictType.FULL_STATE_DICT"
CONFIG = "FullStateDictConfig(offload_to_cpu=offload, rank0_only=True)"
OPTIONS = "StateDictOptions(full_state_dict=True, cpu_offload=True)"
MADE = {
    "a tuple": (f"({KIND}, {CONFIG})", "*self.full", f'("FULL_STATE_DICT", {OPTIONS})', "1"),
    "a list": (f"[{KIND}] + [{CONFIG}]", "*self.full", f'["FULL_STATE_DICT"] + [{OPTIONS}]', "1"),
    "a dict": (
        f"dict(state_dict_type={KIND}, state_dict_config={CONFIG})",
        "**self.full",
        f'dict(state_dict_type="FULL_STATE_DICT", state_dict_config={OPTIONS})',
        '"state_dict_config"',
    ),
}


@pytest.mark.parametrize("name", list(MADE))
def test_types_of_states_are_read_one_by_one(name: str, tmp_path: Path) -> None:
    made, given, after, key = MADE[name]
    text = " ".join(migrated(tmp_path, SAVER.format(made=made, given=given)).split())
    assert after in text.replace("( full", "(full").replace("=True )", "=True)")
    assert f"weights = get_model_state_dict(self.model, options=self.full[{key}])" in text


@pytest.mark.parametrize(
    "made",
    [
        f"({KIND}, {CONFIG}) if 'CONFIG' in os.environ else ({KIND},)",
        f"{{{KIND}}}",
    ],
)
def test_types_of_states_in_a_collection_of_unknown_length(made: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, SAVER.format(made=made, given="*self.full"))
    assert any("cannot be read here" in one.reason for one in found.blockers)
