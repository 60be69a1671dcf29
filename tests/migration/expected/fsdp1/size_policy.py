"""MLP-Mixer on random images, wrapped by parameter count (ZeRO-2 style sharding).

Weight decay is applied to matrices only, through two parameter groups that are made by name.

usage: torchrun --nproc-per-node 2 size_policy.py [--out checkpoints]
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


class Mlp(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class MixerLayer(nn.Module):
    def __init__(self, n_patches, dim):
        super().__init__()
        self.token_norm = nn.LayerNorm(dim)
        self.token_mlp = Mlp(n_patches, 2 * n_patches)
        self.channel_norm = nn.LayerNorm(dim)
        self.channel_mlp = Mlp(dim, 4 * dim)

    def forward(self, x):
        x = x + self.token_mlp(self.token_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mlp(self.channel_norm(x))


class Mixer(nn.Module):
    def __init__(self, image=16, patch=4, dim=48, depth=3, classes=4):
        super().__init__()
        self.patchify = nn.Conv2d(3, dim, patch, stride=patch)
        self.layers = nn.ModuleList([MixerLayer((image // patch) ** 2, dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, classes)

    def forward(self, images):
        x = self.patchify(images).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.fc(self.norm(x).mean(1))


def get_batch(step, rank, device, size=8):
    """Noise in which the class says which channel is brighter; class 3 has none."""
    rng = torch.Generator().manual_seed(10_000 * rank + step)
    images = torch.randn(size, 3, 16, 16, generator=rng)
    labels = torch.randint(0, 4, (size,), generator=rng)
    for image, label in zip(images, labels.tolist()):
        if label < 3:
            image[label] += 1.5
    return images.to(device), labels.to(device)


def parameter_groups(model, weight_decay):
    decay, no_decay = [], []
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        if name.endswith("bias") or "norm" in name:
            no_decay.append(param)
        else:
            decay.append(param)
    return [
        {"params": decay, "weight_decay": weight_decay},
        {"params": no_decay, "weight_decay": 0.0},
    ]


def shard_large_modules(model, min_num_params, **kwargs):
    """Shard each submodule that holds at least min_num_params parameters which no
    submodule of its own has taken.
    """

    def visit(module):
        numel = sum(p.numel() for p in module.parameters())
        if numel < min_num_params or isinstance(module, nn.MultiheadAttention):
            return 0
        taken = sum(visit(child) for child in module.children())
        if module is model or isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            return taken
        if numel - taken < min_num_params:
            return taken
        fully_shard(module, **kwargs)
        return numel

    visit(model)


def train(args, rank, device):
    torch.manual_seed(args.seed)
    model = Mixer().to(device)

    shard_large_modules(model, args.min_num_params, reshard_after_forward=False)
    fully_shard(model, reshard_after_forward=False)
    if rank == 0:
        print(model)

    optimizer = torch.optim.AdamW(parameter_groups(model, args.weight_decay), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)

    for step in range(args.steps):
        begin = time.time()
        images, labels = get_batch(step, rank, device)
        optimizer.zero_grad()
        output = model(images)
        loss = nn.functional.cross_entropy(output, labels)
        loss.backward()
        optimizer.step()
        scheduler.step()

        stats = torch.stack([loss.detach(), (output.argmax(1) == labels).float().mean()])
        dist.all_reduce(stats)
        stats /= dist.get_world_size()
        if rank == 0:
            loss_value, accuracy = stats.tolist()
            seconds = time.time() - begin
            print(f"step {step}: loss {loss_value:.6f} accuracy {accuracy:.3f} ({seconds:.2f} s)")

    return model


def save(model, path, rank):
    cpu_state = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if rank == 0:
        os.makedirs(path, exist_ok=True)
        torch.save(cpu_state, f"{path}/mixer.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", default=8, type=int)
    parser.add_argument("--lr", default=4e-3, type=float)
    parser.add_argument("--weight-decay", default=0.1, type=float)
    parser.add_argument("--min-num-params", default=10_000, type=int)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--out", default="checkpoints")
    args = parser.parse_args()

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        device = torch.device("cuda", torch.cuda.current_device())
    else:
        device = torch.device("cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    model = train(args, dist.get_rank(), device)
    save(model, args.out, dist.get_rank())

    dist.barrier()
    dist.destroy_process_group()
