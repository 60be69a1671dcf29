"""States of the module inside of FSDP1's wrapper, in blocks that set their type."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

from fsdplint.engine.fix import fix
from fsdplint.engine.migrator import migration_rules
from fsdplint.engine.workspace import Workspace

FORMS = {
    "a state that is saved": (
        """
        def save(model, path):
            policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
                weights = model.module.state_dict()
            if dist.get_rank() == 0:
                torch.save(weights, path)


        model = FSDP(Net())
        save(model, "net.pt")
        """,
        """
        def save(model, path):
            policy = StateDictOptions(full_state_dict=True, cpu_offload=True)
            weights = get_model_state_dict(model, options=policy)
            if dist.get_rank() == 0:
                torch.save(weights, path)


        model = fully_shard(Net())
        save(model, "net.pt")
        """,
    ),
    "a state that is loaded": (
        """
        class Trainer:
            def __init__(self):
                self.net = FSDP(Net(), use_orig_params=True)

            def load(self, path):
                with FSDP.state_dict_type(self.net, StateDictType.FULL_STATE_DICT):
                    self.net.module.load_state_dict(torch.load(path))


        Trainer().load("net.pt")
        """,
        """
        class Trainer:
            def __init__(self):
                self.net = fully_shard(Net())

            def load(self, path):
                set_model_state_dict(
                    self.net, torch.load(path), options=StateDictOptions(full_state_dict=True)
                )


        Trainer().load("net.pt")
        """,
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_block_says_which_state_is_meant(name: str, tmp_path: Path) -> None:
    before, after = map(textwrap.dedent, FORMS[name])
    assert migrated(tmp_path, before).strip() == after.strip()
    path = tmp_path / "train.py"
    result = fix(Workspace([path]), [rule() for rule in migration_rules()])
    assert path in result.texts, [one.help for one in result.remaining]


def test_change_is_noted(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, FORMS["a state that is saved"][0])
    assert any("the module inside of the wrapper" in note.text for note in found.notes)


def test_sharded_state_of_the_inner_module_is_a_decision(tmp_path: Path) -> None:
    """Its files have flat parts that the program may read by their names."""
    body = """
    model = FSDP(Net())
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        torch.save(model.module.state_dict(), f"net_{dist.get_rank()}.pt")
    """
    found, _ = plan(tmp_path, body)
    assert "FSDP207-inner-state" in [one.blocker.code for one in found.blockers]
