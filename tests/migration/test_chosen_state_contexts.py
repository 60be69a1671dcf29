"""Contexts of states that the arms of an `if` or the sides of an expression choose."""

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
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, StateDictType


def of_arms(model, optimizer, full):
    if full:
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        context = FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config)
    else:
        context = FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    # Both states at once.
    with context:
        return model.state_dict(), FSDP.optim_state_dict(model, optimizer)


def of_expression(model):
    context = (
        FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)
        if isinstance(model, FSDP)
        else nullcontext()
    )
    with context:
        state = model.state_dict()
    return state


def of_one_arm(model):
    context = nullcontext()
    if isinstance(model, FSDP):
        context = FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)
    with context:
        state = model.state_dict()
    return state


def show(name, state):
    found = {key: getattr(x, "full_tensor", lambda x=x: x)().sum().item() for key, x in state.items()}
    print("got:", dist.get_rank(), name, found)


dist.init_process_group("gloo")
torch.manual_seed(0)
plain = nn.Linear(4, 4)
model = FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
state, optim_state = of_arms(model, optimizer, True)
show("full", state)
print("got:", dist.get_rank(), sorted(optim_state.get("state", ())))
print("got:", dist.get_rank(), sorted(of_arms(model, optimizer, False)[0]))
for one in (plain, model):
    show("expression", of_expression(one))
    show("one arm", of_one_arm(one))
dist.destroy_process_group()
"""


def test_the_states_stay(tmp_path: Path, two_ranks: TwoRanks) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "context" not in after and after.count("    # Both states at once.\n") == 2
    runs = [two_ranks.run(text, timeout=600) for text in (PROGRAM, after)]
    assert [run.status for run in runs] == ["ok", "ok"], runs
    found = [sorted(x for x in run.stdout.split("\n") if "got:" in x) for run in runs]
    assert len(found[0]) == 14 and found[0] == found[1]


HEAD = """
import contextlib
model = FSDP(Net())
whole = bool(os.environ.get("WHOLE"))
"""
FULL = "FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)"
BLOCK = "with context:\n    # The state.\n    state = model.state_dict()\n"
TAKEN = """\
if whole:
    # The state.
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
else:
    # The state.
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
"""
FORMS = {
    "an expression": f"context = {FULL} if whole else contextlib.nullcontext()\n{BLOCK}",
    "in the head": BLOCK.replace("context", f"{FULL} if whole else contextlib.nullcontext()"),
    "one arm": f"context = contextlib.nullcontext()\nif whole:\n    context = {FULL}\n{BLOCK}",
    "arms": (
        f"if whole:\n    context = {FULL}\nelse:\n    context = contextlib.nullcontext()\n{BLOCK}"
    ),
}


@pytest.mark.parametrize("body", list(FORMS.values()), ids=list(FORMS))
def test_the_block_is_written_for_each_context(body: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, HEAD + body).endswith(TAKEN)


STAYING = {
    "another test": (
        f"context = {FULL} if whole else contextlib.nullcontext()\nwhole = not whole\n{BLOCK}"
        "print(whole)\n"
    ),
    "another test in the arm": (
        f"context = contextlib.nullcontext()\nif whole:\n    context = {FULL}\n    whole = False\n"
        f"{BLOCK}print(whole)\n"
    ),
    "an attribute that changes": (
        f"class Saver:\n    whole = True\nsaver = Saver()\n"
        f"context = {FULL} if saver.whole else contextlib.nullcontext()\n"
        f"saver.whole = False\n{BLOCK}"
    ),
    "an attribute that a function changes": (
        f"class Saver:\n    whole = True\nsaver = Saver()\n"
        f"def finish():\n    saver.whole = False\n"
        f"context = {FULL} if saver.whole else contextlib.nullcontext()\n"
        f"finish()\n{BLOCK}"
    ),
    "a list that changes": (
        f"found = []\ncontext = {FULL} if not found else contextlib.nullcontext()\n"
        f"found.append(1)\n{BLOCK}"
    ),
    "another model": (
        f"context = {FULL}\nmodel = FSDP(Net())\nif whole:\n"
        f"    context = contextlib.nullcontext()\n{BLOCK}"
    ),
    "a test that may change something": (
        f"context = {FULL} if os.remove('x') else contextlib.nullcontext()\n{BLOCK}"
    ),
    "a context of another kind": f"context = {FULL} if whole else torch.no_grad()\n{BLOCK}",
    "a second read": f"{FORMS['arms']}print(context)\n",
    "an arm without a context": (
        f"context = contextlib.nullcontext()\nif whole:\n    context = {FULL}\n"
        f"else:\n    print('sharded')\n{BLOCK}"
    ),
    "a text of several lines": textwrap.dedent(
        f'''
        context = {FULL} if whole else contextlib.nullcontext()
        with context:
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
