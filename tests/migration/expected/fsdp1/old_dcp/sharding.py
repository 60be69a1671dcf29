"""Everything about FSDP is in this file."""

import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard


def wrap(model, names, device):
    """Make a unit of every submodule with one of these class names."""
    for module in reversed(list(model.modules())[1:]):
        if type(module).__name__ in names:
            fully_shard(module)
    return fully_shard(model)


def save_sharded(model, optimizer, folder):
    state = {
        "model": get_model_state_dict(model),
        "optim": get_optimizer_state_dict(
            model, optimizer, options=StateDictOptions(cpu_offload=True)
        ),
    }
    dist_cp.save(state_dict=state, storage_writer=dist_cp.FileSystemWriter(folder))


def load_sharded(model, optimizer, folder):
    state = {"model": get_model_state_dict(model)}  # the optimizer's state cannot be read with it
    dist_cp.load(state_dict=state, storage_reader=dist_cp.FileSystemReader(folder))
    set_model_state_dict(model, state["model"])

    optim_state = {"optim": get_optimizer_state_dict(model, optimizer)}
    dist_cp.load(optim_state, storage_reader=dist_cp.FileSystemReader(folder))
    set_optimizer_state_dict(model, optimizer, optim_state["optim"])
