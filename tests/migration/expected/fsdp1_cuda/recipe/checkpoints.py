"""Saving and loading, whole or in shards."""
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter, save_state_dict
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

fullstate_save_policy = StateDictOptions(full_state_dict=True, cpu_offload=True)


def save_model_and_optimizer_sharded(model, rank, cfg, optim=None):
    save_dir = os.path.join(cfg.folder, "sharded")
    state_dict = {"model": get_model_state_dict(model)}
    if optim is not None:
        state_dict["optim"] = get_optimizer_state_dict(
            model, optim, options=StateDictOptions(cpu_offload=True)
        )
    dist_cp.save(
        state_dict=state_dict,
        storage_writer=FileSystemWriter(save_dir),
        planner=DefaultSavePlanner(),
    )
    dist.barrier()
    if rank == 0:
        print(f"Sharded state checkpoint saved to {save_dir}")


def load_model_sharded(model, rank, cfg):
    reader = FileSystemReader(os.path.join(cfg.folder, "sharded"))
    checkpoint = {"model": get_model_state_dict(model)}
    dist_cp.load(state_dict=checkpoint, storage_reader=reader, planner=DefaultLoadPlanner())
    set_model_state_dict(model, checkpoint["model"])
    if rank == 0:
        print(f"Sharded state checkpoint loaded from {reader.path}")


def save_model_checkpoint(model, rank, cfg):
    cpu_state = get_model_state_dict(model, options=fullstate_save_policy)
    if rank == 0:
        os.makedirs(cfg.folder, exist_ok=True)
        torch.save(cpu_state, os.path.join(cfg.folder, "model.pt"))


def save_optimizer_checkpoint(model, optimizer, rank, cfg):
    optim_state = get_optimizer_state_dict(
        model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if rank == 0:
        torch.save(optim_state, os.path.join(cfg.folder, "optimizer.pt"))


def separate_steps(state):
    """Give each parameter a step of its own: in FSDP1's checkpoints, a unit shares one."""
    for values in state.get("state", {}).values():
        if "step" in values:
            values["step"] = values["step"].clone()
    return state


def load_optimizer_checkpoint(model, optimizer, rank, cfg):
    full_osd = None
    if rank == 0:
        full_osd = torch.load(os.path.join(cfg.folder, "optimizer.pt"))
    # the other ranks get their parts from rank 0
    set_optimizer_state_dict(
        model,
        optimizer,
        separate_steps(full_osd or {}),
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
    )
