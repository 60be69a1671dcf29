"""Replicated training through FSDP: every rank keeps the whole model.

torchrun --nproc-per-node 2 no_shard.py --out checkpoints
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

OUT = sys.argv[sys.argv.index("--out") + 1] if "--out" in sys.argv else "checkpoints"


class Cell(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gate = nn.Linear(2 * d, d)
        self.candidate = nn.Linear(2 * d, d)

    def forward(self, x, h):
        both = torch.cat([x, h], dim=-1)
        z = torch.sigmoid(self.gate(both))
        return z * h + (1 - z) * torch.tanh(self.candidate(both))


class Tagger(nn.Module):
    def __init__(self, vocab=20, d=12, tags=4):
        super().__init__()
        self.embedding = nn.Embedding(vocab, d)
        self.cell = Cell(d)
        self.tags = nn.Linear(d, tags)

    def forward(self, tokens):
        x = self.embedding(tokens)
        h = torch.zeros_like(x[:, 0])
        states = []
        for position in range(x.shape[1]):
            h = self.cell(x[:, position], h)
            states.append(h)
        return self.tags(torch.stack(states, dim=1))


def run():
    cuda = torch.cuda.is_available()
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")

    torch.manual_seed(29)
    model = Tagger()
    mesh = init_device_mesh(
        "cuda" if torch.cuda.is_available() else "cpu",
        (dist.get_world_size(), 1),
        mesh_dim_names=("replicate", "shard"),
    )
    for module in reversed(list(model.modules())):
        if isinstance(module, Cell):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rng = torch.Generator().manual_seed(7 + dist.get_rank())
    for step in range(3):
        tokens = torch.randint(20, (4, 5), generator=rng).to(device)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), (tokens % 4).flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print("step", step, "loss", round(loss.item(), 6), "norm", round(norm.item(), 5))

    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if dist.get_rank() == 0:
        os.makedirs(OUT, exist_ok=True)
        torch.save(state, os.path.join(OUT, "tagger.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
