"""Activations go to the CPU between forward and backward: offload_wrapper around every block.

torchrun --nproc-per-node 2 offloaded_activations.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    offload_wrapper,
)
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.linear = nn.Linear(d, d)

    def forward(self, x):
        return x + nn.functional.silu(self.linear(self.norm(x)))


def is_block(module):
    return isinstance(module, Block)


class Runner:
    def __init__(self, device, steps=3):
        self.device = device
        self.steps = steps
        torch.manual_seed(9)
        net = nn.Sequential(nn.Linear(4, 16), Block(16), Block(16), nn.Linear(16, 2))
        for submodule in reversed(list(net.modules())):
            if isinstance(submodule, Block):
                fully_shard(submodule, reshard_after_forward=False)
        self.net = fully_shard(net, reshard_after_forward=False)
        apply_activation_checkpointing(self.net, checkpoint_wrapper_fn=offload_wrapper, check_fn=is_block)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-2)

    def run(self):
        rng = torch.Generator().manual_seed(33 + dist.get_rank())
        for step in range(self.steps):
            x = torch.randn(8, 4, generator=rng).to(self.device)
            loss = nn.functional.mse_loss(self.net(x), x[:, :2] + x[:, 2:])
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.optimizer.step()
            if dist.get_rank() == 0:
                print(f"step {step}: {loss.item():.6f}")


def main():
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    Runner(device).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
