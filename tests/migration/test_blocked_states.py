"""States without a faithful rewrite, which block the migration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from forms import plan

BLOCKED = {
    "no state to broadcast": (
        "model = FSDP(Net(), use_orig_params=True)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "state = torch.load('state.pt') if dist.get_rank() == 0 else None\n"
        "loadable = FSDP.scatter_full_optim_state_dict(state, model, optim=optimizer)\n"
        "optimizer.load_state_dict(loadable)",
        "refuses to broadcast one without tensors",
    ),
    "an optimizer's state that only one rank takes": (
        "def save(optimizer, model):\n    torch.save(optimizer.state_dict(), 'steps.pt')\n\n\n"
        "model = FSDP(Net())\noptimizer = torch.optim.AdamW(model.parameters())\n"
        "torch.save(model.state_dict(), 'model.pt')\n"
        "if dist.get_rank() == 0:\n    save(optimizer, model)",
        "only that rank takes it",
    ),
    "one type or another": (
        "model = FSDP(Net())\nif os.environ.get('PARTS'):\n"
        "    FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)\nelse:\n"
        "    FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)\n"
        "state = model.state_dict()",
        "sets several types",
    ),
    "a function that others call too": (
        "def take(model):\n    return model.state_dict()\n\n\nmodel = FSDP(Net())\n"
        "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
        "    state = take(model)\nprint(take(model))",
        "a function that this block calls",
    ),
    "a state that is loaded in another place": (
        "model = FSDP(Net())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "if os.environ.get('RESUME'):\n"
        "    state = FSDP.optim_state_dict_to_load(model, optimizer, torch.load('x.pt'))\n"
        "    print('loaded')\nother(state)",
        "how this optimizer state is used",
    ),
    "a model that is another one in the branch": (
        "def main(load=False):\n    model = FSDP(Net())\n    if load:\n"
        "        model = other(model)\n        model.load_state_dict(torch.load('x.pt'))\n\n\nmain()",
        "does not reach",
    ),
    "a type that another function decides": (
        "def setup(model, first_only):\n"
        "    config = FullStateDictConfig(rank0_only=first_only)\n"
        "    FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, config)\n\n\n"
        "model = FSDP(Net())\nsetup(model, bool(os.environ.get('FIRST')))\n"
        "state = model.state_dict()",
        "the config of this state is only known at run time",
    ),
    "ranks of an optimizer's state that are chosen at run time": (
        "model = FSDP(Net())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "config = FullOptimStateDictConfig(rank0_only=bool(os.environ.get('FIRST')))\n"
        "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, None, config):\n"
        "    state = FSDP.optim_state_dict(model, optimizer)",
        "`rank0_only` is only known at run time",
    ),
    "a model of a library that saves itself in its own way": (
        "from diffusers import UNet2DModel\nmodel = FSDP(UNet2DModel())\nmodel.save_pretrained('x')",
        "takes the state by itself",
    ),
    "a part of what is wrapped": (
        "model = FSDP(Net())\nstate = model.blocks.state_dict()",
        "a part of the wrapped model, and FSDP1 may not wrap that part by itself",
    ),
    "a model with wrapped parts, in code that is not reached": (
        "def main(save=False):\n    model = Net()\n    model.blocks[0] = FSDP(model.blocks[0])\n"
        "    model(1)\n    if save:\n        torch.save(model.state_dict(), 'x')\n\n\nmain()",
        "does not reach",
    ),
    "sharded states in files that another program wrote": (
        "model = FSDP(Net())\nstate = torch.load(f'{dist.get_rank()}.pt')\n"
        "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
        "    model.load_state_dict(state['model'])",
        "cannot load FSDP1's ShardedTensors",
    ),
    "an optimizer's sharded state in files that another program wrote": (
        "model = FSDP(Net())\noptimizer = torch.optim.AdamW(model.parameters())\n"
        "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
        "    state = FSDP.optim_state_dict_to_load(model, optimizer, torch.load('x.pt'))\n"
        "    optimizer.load_state_dict(state)",
        "cannot load FSDP1's ShardedTensors",
    ),
    "local states of others": (
        "model = FSDP(Net())\nwith FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):\n"
        "    model.load_state_dict(torch.load(f'{dist.get_rank()}.pt'))",
        "flat parameters .* it is not saved here",
    ),
    "local states for others": (
        "model = FSDP(Net())\nwith FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):\n"
        "    state = model.state_dict()\n"
        "parts = {key: value.local_shards()[0].tensor for key, value in state.items()}",
        "flat parameters .* it is not loaded here",
    ),
}


@pytest.mark.parametrize(("body", "reason"), list(BLOCKED.values()), ids=list(BLOCKED))
def test_what_has_no_rewrite_blocks(body: str, reason: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, body + "\n")
    assert found.blockers
    assert any(re.search(reason, blocker.reason) for blocker in found.blockers)
    assert not found.edits


def test_sharded_states_in_files_of_the_program_itself_are_loaded(tmp_path: Path) -> None:
    body = (
        "model = FSDP(Net())\nwith FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
        "    state = model.state_dict()\ntorch.save(state, f'{dist.get_rank()}.pt')\n"
        "state = torch.load(f'{dist.get_rank()}.pt')\n"
        "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
        "    model.load_state_dict(state)\n"
    )
    found, _ = plan(tmp_path, body)
    assert not found.blockers
    assert any("cannot be loaded" in note.text for note in found.notes)


def test_sharded_states_of_a_mesh_are_loaded(tmp_path: Path) -> None:
    body = (
        "mesh = torch.distributed.device_mesh.init_device_mesh('cuda', (2,))\n"
        "model = FSDP(Net(), device_mesh=mesh)\nstate = torch.load(f'{dist.get_rank()}.pt')\n"
        "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
        "    model.load_state_dict(state)\n"
    )
    found, _ = plan(tmp_path, body)
    assert not found.blockers
