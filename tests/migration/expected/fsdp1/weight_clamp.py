"""A critic whose weights are clamped after every step, as a Wasserstein GAN's.

torchrun --nproc-per-node 2 weight_clamp.py --out checkpoints
"""
import argparse
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

LIMIT = 0.08


class Half(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x):
        return nn.functional.leaky_relu(self.linear(x), 0.2)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Half(6, 16)
        self.second = Half(16, 16)
        self.score = nn.Linear(16, 1)

    def forward(self, x):
        return self.score(self.second(self.first(x)))


@contextmanager
def gathered_parameters(model):
    """Give the modules of a sharded model whole parameters, for the time of a block."""
    modules = list(model.modules())
    whole, sharded = {}, {}
    for module in modules:
        if isinstance(module, FSDPModule):
            module.reshard()
        for name, parameter in list(module.named_parameters(recurse=False)):
            if isinstance(parameter, DTensor):
                if parameter not in whole:
                    full = parameter.full_tensor()
                    full = torch.nn.Parameter(full, parameter.requires_grad)
                    whole[parameter] = full
                    sharded[full] = parameter
                setattr(module, name, whole[parameter])
    try:
        yield
    finally:
        for module in modules:
            for name, parameter in list(module.named_parameters(recurse=False)):
                if parameter in sharded:
                    setattr(module, name, sharded[parameter])
        for full, parameter in sharded.items():
            layout = parameter.device_mesh, parameter.placements
            with torch.no_grad():
                parameter.copy_(distribute_tensor(full.detach(), *layout, src_data_rank=None))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="checkpoints")
    args = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")

    torch.manual_seed(2)
    critic = Critic()
    for module in reversed(list(critic.modules())):
        if isinstance(module, Half):
            fully_shard(module)
    fully_shard(critic)
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-2)
    rng = torch.Generator().manual_seed(300 + dist.get_rank())
    for step in range(3):
        real = torch.randn(16, 6, generator=rng).to(device) + 1
        fake = torch.randn(16, 6, generator=rng).to(device)
        loss = critic(fake).mean() - critic(real).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with gathered_parameters(critic):
            with torch.no_grad():
                for p in critic.parameters():
                    p.clamp_(-LIMIT, LIMIT)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.6f}")

    state = get_model_state_dict(critic, options=StateDictOptions(full_state_dict=True))
    if dist.get_rank() == 0:
        os.makedirs(args.out, exist_ok=True)
        torch.save(state, os.path.join(args.out, "critic.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
