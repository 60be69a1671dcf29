"""The right migration of `before.py` to FSDP2.

torchrun --nproc-per-node 2 after.py
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first = Block(width)
        self.second = Block(width)
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.second(self.first(x))
        return self.head(self.frozen(x.float()).to(x.dtype))


def shard(model):
    options = {
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        "offload_policy": CPUOffloadPolicy(),
        "ignored_params": set(model.frozen.parameters()),
    }
    for module in (model.first, model.second):
        fully_shard(module, **options)
    fully_shard(model, **options)
    return model


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = shard(Net())
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    if os.path.exists("last.pt"):
        options = StateDictOptions(full_state_dict=True)
        set_model_state_dict(model, torch.load("last.pt"), options=options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    scaler = torch.amp.GradScaler()
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            model.set_requires_gradient_sync(False)
            scaler.scale((model(x) - y).square().mean()).backward()
            model.set_requires_gradient_sync(True)
            scaler.scale((model(x) - y).square().mean()).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(model, options=options)
        if rank == 0:
            torch.save(state, "last.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
