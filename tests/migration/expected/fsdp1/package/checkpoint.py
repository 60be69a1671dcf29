"""Sharded checkpoints with torch.distributed.checkpoint."""
import os

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)


def save_checkpoint(model, optimizer, scheduler, folder):
    """Every rank writes its own shards."""
    state = {
        "model": get_model_state_dict(model),
        "optim": get_optimizer_state_dict(model, optimizer),
    }
    state["scheduler"] = scheduler.state_dict()
    dcp.save(state, checkpoint_id=os.path.join(folder, "sharded"))


def load_checkpoint(model, optimizer, scheduler, folder):
    """Load in place; the number of ranks may differ from the one that saved."""
    reader = dcp.FileSystemReader(os.path.join(folder, "sharded"))
    state = {"model": get_model_state_dict(model), "scheduler": scheduler.state_dict()}
    dcp.load(state, storage_reader=reader)
    set_model_state_dict(model, state["model"])
    # A fresh optimizer has no state yet to load into, so that is read on its own.
    optim_state = {"optim": get_optimizer_state_dict(model, optimizer)}
    dcp.load(optim_state, storage_reader=reader)
    set_optimizer_state_dict(model, optimizer, optim_state["optim"])
    scheduler.load_state_dict(state["scheduler"])
    return scheduler.last_epoch
