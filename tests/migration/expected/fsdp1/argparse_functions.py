#!/usr/bin/env python
"""
Regression with a residual MLP under FSDP: argparse, functions, cosine schedule,
validation, and checkpoints that can be resumed.

    torchrun --nproc-per-node 2 argparse_functions.py --out runs/a
    torchrun --nproc-per-node 2 argparse_functions.py --out runs/b --stop-after 1
    torchrun --nproc-per-node 2 argparse_functions.py --out runs/b --resume

The last two runs together do what the first one does.
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
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

STRATEGIES = {
    'full': 'FULL_SHARD',
    'grad_op': 'SHARD_GRAD_OP',
}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--epochs', type=int, default=2)
    parser.add_argument('--batch-size', type=int, default=16)
    parser.add_argument('--lr', type=float, default=2e-3)
    parser.add_argument('--clip', type=float, default=1.0)
    parser.add_argument('--width', type=int, default=48)
    parser.add_argument('--depth', type=int, default=3)
    parser.add_argument('--strategy', choices=sorted(STRATEGIES), default='full')
    parser.add_argument('--seed', type=int, default=1234)
    parser.add_argument('--out', default='checkpoints', help='checkpoint folder')
    parser.add_argument('--resume', action='store_true')
    parser.add_argument('--stop-after', type=int, help='stop early, after this many epochs')
    return parser.parse_args()


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Regressor(nn.Module):
    def __init__(self, n_in, width, depth):
        super().__init__()
        self.stem = nn.Linear(n_in, width)
        self.layers = nn.Sequential(*[ResidualBlock(width) for _ in range(depth)])
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.layers(self.stem(x))).squeeze(-1)


def setup():
    local_rank = int(os.environ.get('LOCAL_RANK', 0))
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        dist.init_process_group(backend='nccl')
        return torch.device('cuda', local_rank)
    dist.init_process_group(backend='gloo')
    return torch.device('cpu')


def make_loader(n_samples, seed, batch_size, shuffle):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(n_samples, 8, generator=gen)
    y = torch.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.1 * x[:, 3:].sum(dim=1)
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset, shuffle=shuffle, seed=seed)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True), sampler


def build_model(args, device):
    torch.manual_seed(args.seed)  # all ranks create the same weights
    model = Regressor(8, args.width, args.depth)
    fsdp_kwargs = {'reshard_after_forward': False} if STRATEGIES[args.strategy] == 'SHARD_GRAD_OP' else {}
    for module in reversed(list(model.modules())):
        if isinstance(module, ResidualBlock):
            fully_shard(module, **fsdp_kwargs)
    return fully_shard(model, **fsdp_kwargs)


def train_epoch(model, loader, optimizer, scheduler, args, device, epoch):
    model.train()
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        scheduler.step()
        if dist.get_rank() == 0:
            print('epoch %d step %d loss %.6f norm %.4f lr %.2e'
                  % (epoch, i, loss.item(), norm.item(), scheduler.get_last_lr()[0]))


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    total = torch.zeros(2, device=device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        total[0] += nn.functional.mse_loss(model(x), y, reduction='sum')
        total[1] += y.numel()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return (total[0] / total[1]).item()


def save_checkpoint(model, optimizer, scheduler, epoch, out):
    options = StateDictOptions(full_state_dict=True)
    model_state = get_model_state_dict(model, options=options)
    optim_state = get_optimizer_state_dict(model, optimizer, options=options)
    if dist.get_rank() == 0:
        os.makedirs(out, exist_ok=True)
        torch.save(
            {
                'model': model_state,
                'optimizer': optim_state,
                'scheduler': scheduler.state_dict(),
                'epoch': epoch,
            },
            os.path.join(out, 'last.pt'),
        )
    dist.barrier()


def separate_steps(state):
    """Give each parameter a step of its own: in FSDP1's checkpoints, a unit shares one."""
    for values in state.get('state', {}).values():
        if 'step' in values:
            values['step'] = values['step'].clone()
    return state


def load_checkpoint(model, optimizer, scheduler, out):
    checkpoint = torch.load(os.path.join(out, 'last.pt'), map_location='cpu')
    options = StateDictOptions(full_state_dict=True)
    set_model_state_dict(model, checkpoint['model'], options=options)
    set_optimizer_state_dict(
        model, optimizer, separate_steps(checkpoint['optimizer']), options=options
    )
    scheduler.load_state_dict(checkpoint['scheduler'])
    return checkpoint['epoch'] + 1


def main():
    args = parse_args()
    device = setup()

    train_loader, sampler = make_loader(128, args.seed, args.batch_size, shuffle=True)
    val_loader, _ = make_loader(64, args.seed + 1, args.batch_size, shuffle=False)

    model = build_model(args, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = CosineAnnealingLR(optimizer, T_max=args.epochs * len(train_loader))

    first_epoch = 0
    if args.resume:
        first_epoch = load_checkpoint(model, optimizer, scheduler, args.out)
        if dist.get_rank() == 0:
            print('resumed at epoch', first_epoch)

    last_epoch = args.epochs if args.stop_after is None else min(args.epochs, args.stop_after)
    for epoch in range(first_epoch, last_epoch):
        sampler.set_epoch(epoch)
        train_epoch(model, train_loader, optimizer, scheduler, args, device, epoch)
        val_loss = validate(model, val_loader, device)
        if dist.get_rank() == 0:
            print('epoch %d val_loss %.6f' % (epoch, val_loss))
        save_checkpoint(model, optimizer, scheduler, epoch, args.out)

    dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
