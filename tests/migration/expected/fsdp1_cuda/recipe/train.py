"""Entry point of the recipe.

    torchrun --nproc-per-node 2 recipe/train.py --folder runs/a
    torchrun --nproc-per-node 2 recipe/train.py --folder runs/a --resume
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.fsdp import OffloadPolicy
from torch.distributed.fsdp import fully_shard

import checkpoints
from config import fsdp_config as FSDP_CONFIG
from config import train_config as TRAIN_CONFIG
from model import Decoder, DecoderBlock
from policies import get_policies


def update(config):
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default=config.folder)
    parser.add_argument("--resume", action="store_true")
    for name, value in vars(parser.parse_args()).items():
        setattr(config, name, value)


def train(model, optimizer, cfg, rank):
    rng = torch.Generator().manual_seed(10 * rank + cfg.resume)
    model.train()
    for step in range(cfg.steps):
        total = 0.0
        for micro in range(cfg.accumulation):
            start = torch.randint(16, (cfg.batch_size, 1), generator=rng)
            tokens = ((start + torch.arange(7)) % 16).cuda()
            last = micro == cfg.accumulation - 1
            model.set_requires_gradient_sync(last)
            logits = model(tokens[:, :-1]).float()
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss = loss / cfg.accumulation
            loss.backward()
            total += loss.detach().item()
        if cfg.grad_clip and cfg.grad_clip > 0.0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} loss {total:.6f}")


def sharding_arguments(strategy):
    """The arguments of fully_shard for the name of one of FSDP1's sharding strategies."""
    if strategy == "NO_SHARD":
        shape = (dist.get_world_size(), 1)
    elif strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        per_node = torch.cuda.device_count()
        shape = (dist.get_world_size() // per_node, per_node)
    else:
        return {"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {}
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    arguments = {"mesh": mesh}
    if strategy == "_HYBRID_SHARD_ZERO2":
        arguments["reshard_after_forward"] = False
    return arguments


def main():
    train_cfg, fsdp_cfg = TRAIN_CONFIG(), FSDP_CONFIG()
    update(train_cfg)
    dist.init_process_group("cpu:gloo,cuda:nccl")
    local_rank, rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
    torch.cuda.set_device(local_rank)
    torch.manual_seed(train_cfg.seed)

    model = Decoder()
    mixed_precision_policy, wrapping_policy = get_policies(fsdp_cfg, rank)
    fsdp_kwargs = {
        **sharding_arguments(fsdp_cfg.sharding_strategy),
        "offload_policy": CPUOffloadPolicy() if fsdp_cfg.fsdp_cpu_offload else OffloadPolicy(),
        "mp_policy": mixed_precision_policy or MixedPrecisionPolicy(),
    }
    for submodule in reversed(list(model.modules())):
        if wrapping_policy(submodule):
            fully_shard(submodule, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    wrapper = lambda block: checkpoint_wrapper(block, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=wrapper, check_fn=lambda module: isinstance(module, DecoderBlock)
    )
    if train_cfg.resume:
        checkpoints.load_model_sharded(model, rank, train_cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=train_cfg.lr)
    if train_cfg.resume:
        checkpoints.load_optimizer_checkpoint(model, optimizer, rank, train_cfg)

    train(model, optimizer, train_cfg, rank)

    if fsdp_cfg.checkpoint_type == "SHARDED_STATE_DICT":
        checkpoints.save_model_and_optimizer_sharded(model, rank, train_cfg, optim=optimizer)
    checkpoints.save_model_checkpoint(model, rank, train_cfg)
    if fsdp_cfg.save_optimizer:
        checkpoints.save_optimizer_checkpoint(model, optimizer, rank, train_cfg)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
