'''Hybrid sharding on a device mesh, with a sharded checkpoint.

    torchrun --nproc-per-node 2 device_mesh.py --out runs/a --steps 4
    torchrun --nproc-per-node 2 device_mesh.py --out runs/a --steps 4 --resume
'''
import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument('--out', default='checkpoints')
parser.add_argument('--steps', type=int, default=2)
parser.add_argument('--replicas', type=int, default=1)
parser.add_argument('--resume', action='store_true')


class Conv(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depthwise = nn.Conv1d(channels, channels, 3, padding=1, groups=channels)
        self.pointwise = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        return x + torch.relu(self.pointwise(self.depthwise(x)))


class Denoiser(nn.Module):
    def __init__(self, channels=12, depth=2):
        super().__init__()
        self.first = nn.Conv1d(1, channels, 1)
        self.body = nn.Sequential(*(Conv(channels) for _ in range(depth)))
        self.last = nn.Conv1d(channels, 1, 1)

    def forward(self, x):
        return self.last(self.body(self.first(x)))


def build(args, device):
    world = dist.get_world_size()
    mesh = init_device_mesh(
        device.type, (args.replicas, world // args.replicas), mesh_dim_names=('replicate', 'shard')
    )
    torch.manual_seed(3)
    model = Denoiser()
    for module in reversed(list(model.modules())):
        if isinstance(module, Conv):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def save(model, optimizer, folder):
    state = {'model': get_model_state_dict(model), 'optimizer': get_optimizer_state_dict(
        model, optimizer, options=StateDictOptions(cpu_offload=True)
    )}
    dcp.save(state, checkpoint_id=folder)


def load(model, optimizer, folder):
    state = {'model': get_model_state_dict(model), 'optimizer': get_optimizer_state_dict(
        model, optimizer, options=StateDictOptions(cpu_offload=True)
    )}
    dcp.load(state, checkpoint_id=folder)
    set_model_state_dict(model, state['model'])
    set_optimizer_state_dict(model, optimizer, state['optimizer'])


def main():
    args = parser.parse_args()
    if torch.cuda.is_available():
        device = torch.device('cuda', int(os.environ['LOCAL_RANK']))
        torch.cuda.set_device(device)
        dist.init_process_group('nccl')
    else:
        device = torch.device('cpu')
        dist.init_process_group('gloo')

    model = build(args, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    folder = os.path.join(args.out, 'sharded')
    seed = 100 + dist.get_rank()
    if args.resume:
        # one step on nothing, so that there is a state to load into
        model(torch.zeros(1, 1, 8, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        load(model, optimizer, folder)
        seed += 1000

    generator = torch.Generator().manual_seed(seed)
    for step in range(args.steps):
        clean = torch.sin(torch.rand(4, 1, 1, generator=generator) * torch.arange(16.0)).to(device)
        noisy = clean + 0.2 * torch.randn(4, 1, 16, generator=generator).to(device)
        loss = (model(noisy) - clean).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print('%d: %.6f' % (step, loss.item()))
    save(model, optimizer, folder)
    dist.destroy_process_group()


main()
