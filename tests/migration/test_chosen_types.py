"""Types of states that the arms of an `if` or the sides of an expression choose."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import (
    FullOptimStateDictConfig, FullStateDictConfig, FullyShardedDataParallel as FSDP,
    ShardedOptimStateDictConfig, ShardedStateDictConfig, StateDictType,
)


def states(model, optimizer, kind):
    if kind == "full":
        state_type = StateDictType.FULL_STATE_DICT
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        optim_config = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)
    elif kind == "sharded":
        state_type = StateDictType.SHARDED_STATE_DICT
        config = ShardedStateDictConfig(offload_to_cpu=True)
        optim_config = ShardedOptimStateDictConfig(offload_to_cpu=True)
    else:
        raise ValueError(kind)
    if dist.get_rank() == 0:
        print("takes", kind)

    # Both states at once.
    with FSDP.state_dict_type(model, state_type, config, optim_config):
        state = model.state_dict()
        optim_state = FSDP.optim_state_dict(model, optimizer)
    return state, optim_state


dist.init_process_group("gloo")
model = FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
for kind in ("full", "sharded"):
    state, optim_state = states(model, optimizer, kind)
    whole = kind == "full" and type(state["weight"]) is torch.Tensor if state else False
    print("got:", dist.get_rank(), kind, sorted(state), sorted(optim_state.get("state", ())), whole)
dist.destroy_process_group()
"""


def test_each_arm_takes_its_kind_of_state(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert after.count("        # Both states at once.\n") == 2 and "state_type" not in after
    runs = [two_ranks.run(text, timeout=600) for text in (PROGRAM, after)]
    assert [run.status for run in runs] == ["ok", "ok"], runs
    found = [sorted(x for x in run.stdout.split("\n") if "got:" in x) for run in runs]
    assert len(found[0]) == 4 and found[0] == found[1]


HEAD = "model = FSDP(Net())\nwhole = bool(os.environ.get('WHOLE'))\n"
FULL, SHARDED = "StateDictType.FULL_STATE_DICT", "StateDictType.SHARDED_STATE_DICT"
BLOCK = "with FSDP.state_dict_type(model, kind):\n    state = model.state_dict()\n"
TAKEN = """\
if whole:
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
else:
    state = get_model_state_dict(model)
"""
EXPRESSIONS = {
    "an expression": f"kind = {FULL} if whole else {SHARDED}\n{BLOCK}",
    "in the head": BLOCK.replace("kind", f"{FULL} if whole else {SHARDED}"),
    "arms": f"if whole:\n    kind = {FULL}\nelse:\n    kind = {SHARDED}\n{BLOCK}",
}


@pytest.mark.parametrize("body", list(EXPRESSIONS.values()), ids=list(EXPRESSIONS))
def test_the_block_is_written_for_each_kind(body: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, HEAD + body)
    if "else:\n    kind" in body:
        assert "if whole:\n    state = get_model_state_dict(" in text
        assert text.endswith("else:\n    state = get_model_state_dict(model)\n")
    else:
        assert text.endswith(TAKEN)


def test_configs_go_with_their_types(tmp_path: Path) -> None:
    body = (
        f"kind = {FULL} if whole else {SHARDED}\n"
        "config = FullStateDictConfig(rank0_only=True) if whole else ShardedStateDictConfig()\n"
        "with FSDP.state_dict_type(model, kind, config):\n    state = model.state_dict()\n"
    )
    text = migrated(tmp_path, HEAD + body)
    assert "StateDictOptions(full_state_dict=True, cpu_offload=True)" in text


STAYING = {
    "another test": (
        f"kind = {FULL} if whole else {SHARDED}\nwhole = not whole\n{BLOCK}print(state)\n"
    ),
    "an arm without a type": (
        f"kind = {FULL}\nif whole:\n    kind = {SHARDED}\nelse:\n    print('full')\n{BLOCK}"
    ),
    "a text of several lines": textwrap.dedent(
        f'''
        if whole:
            kind = {FULL}
        else:
            kind = {SHARDED}
        with FSDP.state_dict_type(model, kind):
            print("""a
        b""")
            state = model.state_dict()
        '''
    ),
}


@pytest.mark.parametrize("body", list(STAYING.values()), ids=list(STAYING))
def test_other_choices_block(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, HEAD + body)
    assert found.blockers
