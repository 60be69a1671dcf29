"""The fixes of saved states with `checkpoint = "dcp"` in the settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_ranks import TwoRanks

from fsdplint.config.options import DCP, Options
from fsdplint.engine.check import check
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.rules.fsdp301_save_sharded_state import SaveShardedState

OPTIONS = Options(checkpoint=DCP)
IMPORTS = """\
import os

import torch
import torch.distributed as dist
import torch.nn as nn
"""
NEEDED = """\
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
"""
START = """\
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(2, 8)).sum().backward()
optimizer.step()
"""
GETTERS = "from torch.distributed.checkpoint.state_dict import get_model_state_dict"
BOTH = """\
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
)
"""
END = "dist.destroy_process_group()\n"


def fixed(program: str, folder: Path) -> tuple[str | None, str | None]:
    """What the fix makes of a program, and why there is none."""
    path = folder / "train.py"
    path.write_text(program)
    (found,) = check(load([path]), [SaveShardedState()], OPTIONS)
    text = fix(Workspace([path], unsafe=True, options=OPTIONS), [SaveShardedState()]).texts.get(
        path
    )
    if text is not None:
        assert check(load([path], {path: text}), [SaveShardedState()], OPTIONS) == []
    return text, found.blocker


SAVED = {
    "on all ranks": (
        """\
torch.save(
    {
        "model": model.state_dict(),  # all of it
        "optimizer": optimizer.state_dict(),
        "step": 1,
    },
    "c.pt",
)
""",
        BOTH,
        """\
dcp.save(
    {
        "model": get_model_state_dict(model),  # all of it
        "optimizer": get_optimizer_state_dict(model, optimizer),
        "step": 1,
    },
    checkpoint_id="c.pt",
)
""",
    ),
    "under a test of the rank": (
        """\
state = {"model": model.state_dict()}
if dist.get_rank() == 0:
    # Behind the last step.
    torch.save(obj=state, f=os.path.join("runs", "c.pt"))
""",
        GETTERS + "\n",
        """\
state = {"model": get_model_state_dict(model)}
# Behind the last step.
dcp.save(state_dict=state, checkpoint_id=os.path.join("runs", "c.pt"))
""",
    ),
    "with more under the test": (
        """\
def save(folder, step):
    if dist.get_rank() != 0:
        return
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{step}.pt")
    checkpoint = {"model": model.state_dict()}
    checkpoint["step"] = step
    torch.save(checkpoint, path)
    print("saved to", path)


save("runs", 1)
""",
        GETTERS + "\n",
        """\
def save(folder, step):
    path = os.path.join(folder, f"{step}.pt")
    checkpoint = {"model": get_model_state_dict(model)}
    checkpoint["step"] = step
    dcp.save(checkpoint, checkpoint_id=path)
    if dist.get_rank() != 0:
        return
    os.makedirs(folder, exist_ok=True)
    print("saved to", path)


save("runs", 1)
""",
    ),
}


@pytest.mark.parametrize("case", SAVED.values(), ids=SAVED.keys())
def test_saving(case: tuple[str, str, str], tmp_path: Path, two_ranks: TwoRanks) -> None:
    before, imports, after = case
    text, _ = fixed(IMPORTS + START + before + END, tmp_path)
    assert text == NEEDED + imports + START + after + END
    read = """\
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
path = next(p for p in ("c.pt", "runs/c.pt", "runs/1.pt") if os.path.isdir(p))
whole = model[0].weight.full_tensor()
if dist.get_rank() == 0:
    dcp_to_torch_save(path, "whole.pt")
    content = torch.load("whole.pt")
    print("keys", *sorted(content))
    print("whole", torch.equal(content["model"]["0.weight"], whole))
"""
    outcome = two_ranks.run(text.removesuffix(END) + read + END)
    assert outcome.status == "ok", outcome.error
    assert "whole True" in outcome.stdout


BLOCKED = {
    "a reader": (
        'torch.save(model.state_dict(), "c.pt")\nmodel.load_state_dict(torch.load("c.pt"))\n',
        "may read the file",
    ),
    "a reader that is not reached": (
        "def resume(path):\n    return torch.load(path)\n\n\n"
        'torch.save(model.state_dict(), "c.pt")\n',
        "may read the file",
    ),
    "a reader by its name": (
        "from torch import load as read\n\n"
        'torch.save(model.state_dict(), "c.pt")\nif os.getenv("LAST"):\n'
        '    read(os.getenv("LAST"))\n',
        "may read the file",
    ),
    "a path of a file": (
        'path = "c.pt"\ntorch.save(model.state_dict(), path)\nprint(os.path.getsize(path))\n',
        "`os.path.getsize` (",
    ),
    "the same text of a path": (
        'torch.save(model.state_dict(), f"{1}.pt")\nlast = f"{1}.pt"\nos.remove(last)\n',
        "`os.remove` (",
    ),
    "a file that is opened": (
        'with open("c.pt", "wb") as file:\n    torch.save(model.state_dict(), file)\n',
        "the file is opened",
    ),
    "an opened file that is handed on": (
        "def save(state, to):\n    torch.save({'m': state.state_dict()}, f=to)\n\n\n"
        'save(model, open("c.pt", "wb"))\n',
        "the file is opened",
    ),
    "further arguments": (
        'torch.save(model.state_dict(), "c.pt", pickle_protocol=4)\n',
        "further arguments",
    ),
    "a state that is changed": (
        'torch.save({k: v.cpu() for k, v in model.state_dict().items()}, "c.pt")\n',
        "the states are changed",
    ),
    "a function under a test": (
        'def save():\n    torch.save(model.state_dict(), "c.pt")\n\n\n'
        "if dist.get_rank() == 0:\n    save()\n",
        "",
    ),
    "a test with another branch": (
        "state = model.state_dict()\nif dist.get_rank() == 0:\n"
        '    torch.save(state, "c.pt")\nelse:\n    print("waiting")\n',
        "can't be moved out of the rank test",
    ),
    "a dict that one rank has": (
        "state = model.state_dict()\nif dist.get_rank() == 0:\n    all = {'model': state}\n"
        'if dist.get_rank() == 0:\n    torch.save(all, "c.pt")\n',
        "can't be moved out of the rank test",
    ),
    "a state that one rank takes": (
        "if dist.get_rank() == 0:\n    state = model.state_dict()\n"
        'if dist.get_rank() == 0:\n    torch.save(state, "c.pt")\n',
        "can't be moved out of the rank test",
    ),
    "an entry that one rank has": (
        "all = {'model': model.state_dict()}\nif dist.get_rank() == 0:\n    all['x'] = 1\n"
        'if dist.get_rank() == 0:\n    torch.save(all, "c.pt")\n',
        "can't be moved out of the rank test",
    ),
    "work under the test": (
        "state = model.state_dict()\nif dist.get_rank() == 0:\n"
        "    path = input()\n    torch.save(state, path)\n",
        "can't be moved out of the rank test",
    ),
}


@pytest.mark.parametrize("case", BLOCKED.values(), ids=BLOCKED.keys())
def test_what_prevents_it(case: tuple[str, str], tmp_path: Path) -> None:
    program, reason = case
    text, blocker = fixed(IMPORTS + START + program + END, tmp_path)
    assert text is None
    assert blocker is not None
    assert reason in blocker
