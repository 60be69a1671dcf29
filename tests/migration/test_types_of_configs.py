"""States whose type is a setting: FSDP1 takes only the type of the config that the call has."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

FULL = "get_model_state_dict("
FORMS = {
    "an enum by its name": """
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType[os.environ["KIND"]], config):
            state = model.state_dict()
    """,
    "a setting": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--kind", default="FULL_STATE_DICT")
        kind = getattr(StateDictType, parser.parse_args().kind)
        with FSDP.state_dict_type(model, kind, state_dict_config=FullStateDictConfig()):
            state = model.state_dict()
    """,
    "an attribute of an object": """
        class Settings:
            def __init__(self, kind):
                self.kind = kind
                self.config = FullStateDictConfig(rank0_only=True)


        settings = Settings(os.environ["KIND"])
        with FSDP.state_dict_type(model, StateDictType[settings.kind], settings.config):
            state = model.state_dict()
    """,
    "a config of the optimizer": """
        optimizer = torch.optim.Adam(model.parameters())
        with FSDP.state_dict_type(
            model,
            StateDictType[os.environ["KIND"]],
            optim_state_dict_config=FullOptimStateDictConfig(rank0_only=True),
        ):
            state = model.state_dict()
    """,
}


@pytest.mark.parametrize("body", list(FORMS.values()), ids=list(FORMS))
def test_the_config_gives_the_type(tmp_path: Path, body: str) -> None:
    text = migrated(tmp_path, "model = FSDP(Net())\n" + textwrap.dedent(body))
    assert FULL in text and "full_state_dict=True" in text


def test_a_sharded_config(tmp_path: Path) -> None:
    body = """
        model = FSDP(Net())
        with FSDP.state_dict_type(model, StateDictType[os.environ["KIND"]], ShardedStateDictConfig()):
            state = model.state_dict()
    """
    assert "state = get_model_state_dict(model)" in migrated(tmp_path, body)


BLOCKED = {
    "no config": "FSDP.state_dict_type(model, StateDictType[os.environ['KIND']])",
    "no known config": "FSDP.state_dict_type(model, StateDictType[os.environ['KIND']], configs())",
    "one of two configs": (
        "FSDP.state_dict_type(model, StateDictType[os.environ['KIND']], "
        "FullStateDictConfig() if os.environ.get('FULL') else ShardedStateDictConfig())"
    ),
}


@pytest.mark.parametrize("head", list(BLOCKED.values()), ids=list(BLOCKED))
def test_other_settings_block(tmp_path: Path, head: str) -> None:
    found, _ = plan(
        tmp_path, f"model = FSDP(Net())\nwith {head}:\n    state = model.state_dict()\n"
    )
    assert [one.blocker.code for one in found.blockers] == ["FSDP202-type-at-run-time"]


REJECTED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import FullStateDictConfig, StateDictType

dist.init_process_group("gloo")
model = FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"))
with FSDP.state_dict_type(model, StateDictType.KIND, FullStateDictConfig()):
    print(len(model.state_dict()))
dist.destroy_process_group()
"""


def test_fsdp1_rejects_every_other_type(two_ranks: TwoRanks) -> None:
    assert two_ranks.run(REJECTED.replace("KIND", "FULL_STATE_DICT")).status == "ok"
    for kind in ("SHARDED_STATE_DICT", "LOCAL_STATE_DICT"):
        outcome = two_ranks.run(REJECTED.replace("KIND", kind))
        assert "Expected state_dict_config of type" in outcome.error
