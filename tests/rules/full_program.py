"""A training program that uses most parts of FSDP2, without a mistake.

A test changes some of its lines. What such a program also does (data from files, a resumed run, an
evaluation, checkpoints) must not hide what the change does.
"""

PROGRAM = """\
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.between = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        h = self.before(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.between(x))


class Decoder(nn.Module):
    def __init__(self, tokens, width, depth, heads):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Tokens(Dataset):
    def __init__(self, path, length):
        self.ids = torch.load(path)
        self.length = length

    def __len__(self):
        return len(self.ids) // self.length - 1

    def __getitem__(self, index):
        chunk = self.ids[index * self.length : (index + 1) * self.length + 1]
        return chunk[:-1], chunk[1:]


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    total = torch.zeros(2, device=device)
    for ids, labels in loader:
        logits = model(ids.to(device))
        loss = F.cross_entropy(logits.flatten(0, 1), labels.to(device).flatten())
        total += torch.stack([loss, torch.ones_like(loss)])
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def save(model, optimizer, epoch):
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": states}, checkpoint_id=f"checkpoints/{epoch}")


def resume(model, optimizer, epoch):
    weights, states = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": states}
    dcp.load(state, checkpoint_id=f"checkpoints/{epoch}")
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    return epoch + 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--resume", type=int, default=-1)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(0)
    mesh = init_device_mesh("cuda", (world_size,))

    model = Decoder(32000, 512, 8, 8).to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    # sharded
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    train_set, valid_set = Tokens("train.pt", 256), Tokens("valid.pt", 256)
    sampler = DistributedSampler(train_set, shuffle=True, drop_last=True)
    loader = DataLoader(train_set, batch_size=8, sampler=sampler, drop_last=True)
    valid_sampler = DistributedSampler(valid_set, shuffle=False, drop_last=True)
    valid_loader = DataLoader(valid_set, batch_size=8, sampler=valid_sampler, drop_last=True)

    start, best = 0, float("inf")
    if args.resume >= 0:
        start = resume(model, optimizer, args.resume)
    for epoch in range(start, args.epochs):
        sampler.set_epoch(epoch)
        began = time.time()
        for step, (ids, labels) in enumerate(loader):
            last = (step + 1) % args.accumulate == 0
            model.set_requires_gradient_sync(last)
            logits = model(ids.to(device))
            loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.to(device).flatten())
            (loss / args.accumulate).backward()
            if last:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if step % 50 == 0:
                shown = loss.detach().clone()
                dist.all_reduce(shown, op=dist.ReduceOp.AVG)
                if rank == 0:
                    print(epoch, step, shown.item(), time.time() - began)
        # trained
        valid = evaluate(model, valid_loader, device)
        if valid < best:
            best = valid
            save(model, optimizer, epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
SHARDED = "    # sharded\n"
STEP = "                optimizer.step()\n"
TRAINED = "        # trained\n"
BLOCKS = "            x = block(x)\n"
BUILT = "    model = Decoder(32000, 512, 8, 8).to(device)\n"
SHOWN = "loss.detach().clone()"
GROUP = 'init_process_group("nccl")'


def changed(*changes: tuple[str, str]) -> str:
    """The program with some texts replaced, each of which it has."""
    code = PROGRAM
    for old, new in changes:
        assert old in code, old
        code = code.replace(old, new)
    return code
