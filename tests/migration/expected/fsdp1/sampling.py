"""A character model that writes a sample between its steps.

The sample is drawn by a method of the model, under summon_full_params.

    torchrun --nproc-per-node 2 sampling.py
"""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

LETTERS = "abcdefghijklmnop"


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mix = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        past = x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1, device=x.device).view(1, -1, 1)
        return x + torch.tanh(self.mix(self.norm(past)))


class CharModel(nn.Module):
    def __init__(self, vocab=len(LETTERS), dim=16, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([Layer(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    @torch.no_grad()
    def generate(self, tokens, n):
        for _ in range(n):
            following = self(tokens)[:, -1].argmax(dim=-1, keepdim=True)
            tokens = torch.cat([tokens, following], dim=1)
        return tokens


def main():
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    rank = dist.get_rank()

    torch.manual_seed(4)
    model = CharModel()
    for module in reversed(list(model.modules())):
        if isinstance(module, Layer):
            fully_shard(module)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    rng = torch.Generator().manual_seed(40 + rank)
    for step in range(4):
        start = torch.randint(len(LETTERS), (8, 1), generator=rng)
        tokens = ((start + torch.arange(9)) % len(LETTERS)).to(device)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 2 == 1:
            model.eval()
            model.unshard()
            sample = model.generate(tokens[:1, :2], 6)
            model.reshard()
            model.train()
            if rank == 0:
                print("step", step, "loss", round(loss.item(), 6), "".join(LETTERS[t] for t in sample[0].tolist()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
