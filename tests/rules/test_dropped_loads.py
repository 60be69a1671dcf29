"""FSDP319: checkpoints that are read and not put back."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings as of_program
from programs import program
from test_resumed_training import LOOP, findings

FULL = "options=StateDictOptions(full_state_dict=True)"
COPY = f"state = {{'model': get_model_state_dict(model, {FULL})}}\n"
READ = "dcp.load(state, checkpoint_id=args.file)\n"
PUT = f"set_model_state_dict(model, state['model'], {FULL})\n"
FSDP1 = """
import torch.distributed.fsdp as fsdp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
model = FSDP(nn.Linear(4, 1))
opt = torch.optim.AdamW(model.parameters())
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
"""
TYPED = "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n    "
IMPORT = "from torch.distributed.checkpoint.state_dict import StateDictOptions\n"
SAVE = LOOP + "    dcp.save({'model': get_model_state_dict(model)}, checkpoint_id=args.file)\n"


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "body",
    [
        COPY + READ,
        "if args.resume:\n" + indented(COPY + READ),
        f"dcp.load({{'m': get_model_state_dict(model, {FULL})}}, checkpoint_id=args.file)\n",
        f"weights = get_model_state_dict(model, {FULL})\nstate = dict(model=weights)\n" + READ,
        COPY.replace("}\n", ", 'step': 0}\n") + READ + "start = state['step']\n",
        "def resume(path):\n" + indented(COPY + READ.replace("args.file", "path"))
        + "resume(args.file)\n",
        "def resume(net):\n" + indented((COPY + READ).replace("(model", "(net")) + "resume(model)\n",
        FSDP1 + TYPED + "state = {'model': model.state_dict()}\n" + READ,
        FSDP1 + "state = {'model': get_model_state_dict(model)}\n" + READ,
        FSDP1 + TYPED + "state = model.state_dict()\n" + READ,
    ],
)  # fmt: skip
def test_a_load_into_copies_is_found(tmp_path: Path, body: str) -> None:
    found = findings(tmp_path, IMPORT + body + SAVE)
    assert ["copies" in one.message for one in found] == [True]


@pytest.mark.parametrize(
    "body",
    [
        COPY + READ + PUT,
        COPY + READ + "model.load_state_dict(state['model'])\n",
        # the state of `fully_shard` has the parameters themselves
        f"state = {{'model': get_model_state_dict(model)}}\n{READ}",
        "state = {'model': model.state_dict()}\n" + READ,
        # other code reads the state
        COPY + READ + "check(state['model'])\n",
        COPY + READ + "for name, p in model.named_parameters(): p.data.copy_(state['model'][name])\n",
        f"def read():\n{indented(COPY + READ)}    return state\nstate = read()\ncheck(state)\n",
        f"def read(state):\n{indented(READ)}{COPY}read(state)\n{PUT}",
        COPY + READ + "torch.save(state, 'weights.pt')\n",
        f"class Box:\n    pass\nbox = Box()\nbox.state = get_model_state_dict(model, {FULL})\n"
        "state = {'model': box.state}\n" + READ + "from elsewhere import put\nput(model, box)\n",
        # a trained model is compared with its checkpoint
        LOOP + COPY + READ,
        # another configuration puts it back
        COPY + READ + "if args.init:\n    " + PUT,
        FSDP1 + TYPED + "state = {'model': model.state_dict()}\n" + READ
        + "model.load_state_dict(state['model'])\n",
    ],
)  # fmt: skip
def test_a_load_that_may_have_a_use_is_not_reported(tmp_path: Path, body: str) -> None:
    assert findings(tmp_path, IMPORT + body + SAVE) == []


OFFLOADED = """\
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

{group}
model = nn.Linear(8, 8)
fully_shard(model{options})
optimizer = torch.optim.AdamW(model.parameters())
state = get_model_state_dict(model, options=StateDictOptions(cpu_offload=True))
dcp.load(state, checkpoint_id="checkpoint")
for step in range(3):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
MESH = 'mesh = init_device_mesh("{kind}", (2,))'


@pytest.mark.parametrize(
    ("group", "options", "number"),
    [
        ('dist.init_process_group("nccl")', "", 1),
        (MESH.format(kind="cuda"), ", mesh=mesh", 1),
        # the state has the parameters themselves
        ('dist.init_process_group("gloo")', "", 0),
        (MESH.format(kind="cpu"), ", mesh=mesh", 0),
        ('dist.init_process_group("nccl")', ", offload_policy=CPUOffloadPolicy()", 0),
        ('dist.init_process_group("cpu:gloo,cuda:nccl")', "", 0),
    ],
)
def test_state_on_the_cpu(tmp_path: Path, group: str, options: str, number: int) -> None:
    lines = OFFLOADED.format(group=group, options=options)
    found = program(tmp_path, lines, header="")
    assert len(of_program(found, "FSDP319")) == number
