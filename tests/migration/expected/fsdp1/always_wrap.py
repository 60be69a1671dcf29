"""Every layer is a unit of its own, and the parameters come back only after the backward needs them.

torchrun --nproc-per-node 2 always_wrap.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Autoencoder(nn.Module):
    def __init__(self, n_in=10, hidden=16, code=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_in, hidden), nn.SiLU(), nn.Linear(hidden, code))
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.SiLU(), nn.Linear(hidden, n_in))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main():
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    torch.manual_seed(8)
    model = Autoencoder()
    for module in reversed(list(model.modules())[1:]):
        if not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            fully_shard(module)
    fully_shard(model)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)
    rng = torch.Generator().manual_seed(60 + dist.get_rank())
    for step in range(3):
        x = (torch.randn(12, 4, generator=rng) @ torch.ones(4, 10)).to(device)
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if dist.get_rank() == 0:
            print(f"step={step} loss={loss.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
