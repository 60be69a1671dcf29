"""The kind of state dict is set once, after wrapping, for all checkpoints of the run.

    torchrun --nproc-per-node 2 set_type.py --out runs/a --steps 2
    torchrun --nproc-per-node 2 set_type.py --out runs/a --steps 4
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard


class Stage(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.norm = nn.LayerNorm(n_out)

    def forward(self, x):
        return self.norm(torch.relu(self.linear(x)))


def log(*words):
    if dist.get_rank() == 0:
        print(*words)


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--out', default='checkpoints')
    parser.add_argument('--steps', type=int, default=2)
    args = parser.parse_args()
    if torch.cuda.is_available():
        device = torch.device('cuda', int(os.environ['LOCAL_RANK']))
        torch.cuda.set_device(device)
        dist.init_process_group('nccl')
    else:
        device = torch.device('cpu')
        dist.init_process_group('gloo')

    torch.manual_seed(33)
    model = nn.Sequential(Stage(8, 24), Stage(24, 24), nn.Linear(24, 8))
    shard_large_modules(model, 200)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)

    path = os.path.join(args.out, 'latest.pt')
    first = 0
    if os.path.exists(path):
        checkpoint = torch.load(path, map_location='cpu')
        set_model_state_dict(
            model, checkpoint['model'], options=StateDictOptions(full_state_dict=True)
        )
        set_optimizer_state_dict(
            model,
            optimizer,
            checkpoint['optimizer'],
            options=StateDictOptions(full_state_dict=True),
        )
        first = checkpoint['step']
        log('resumed after', first)
    dist.barrier()

    for step in range(first, args.steps):
        rng = torch.Generator().manual_seed(100 * step + dist.get_rank())
        x = torch.randn(8, 8, generator=rng).to(device)
        loss = (model(x) - x.cumsum(dim=1)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log('step', step, 'loss', round(loss.item(), 6))

    checkpoint = {
        'model': get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True)
        ),
        'optimizer': get_optimizer_state_dict(
            model, optimizer, options=StateDictOptions(full_state_dict=True)
        ),
        'step': args.steps,
    }
    if dist.get_rank() == 0:
        os.makedirs(args.out, exist_ok=True)
        torch.save(checkpoint, path)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
