"""Classifier whose sharding and precision come from a named configuration.

torchrun --nproc-per-node 2 train.py --config fsdp_fp32
torchrun --nproc-per-node 2 train.py --config fsdp_bf16
torchrun --nproc-per-node 2 train.py --config debug_plain      (DDP, no FSDP)
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    MixedPrecisionPolicy, fully_shard,
)
from torch.nn.parallel import DistributedDataParallel as DDP

from configs import Config, PRESETS, load_config

STRATEGY = {
    'full_shard': 'FULL_SHARD',
    'shard_grad_op': 'SHARD_GRAD_OP',
    'no_shard': 'NO_SHARD',
}
DTYPE = {'fp32': torch.float32, 'bf16': torch.bfloat16, 'fp16': torch.float16}


class GatedBlock(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.value = nn.Linear(width, 2 * width)
        self.gate = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(self.value(h) * torch.sigmoid(self.gate(h)))


class Classifier(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.stem = nn.Linear(cfg.n_inputs, cfg.width)
        self.blocks = nn.ModuleList([GatedBlock(cfg.width) for _ in range(cfg.n_layers)])
        self.head = nn.Linear(cfg.width, cfg.n_classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def precision_policy(name: str):
    """None when nothing has to be cast."""
    if name == 'fp32':
        return None
    dtype = DTYPE[name]
    return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)


def sharding_arguments(strategy):
    """The arguments of fully_shard for the name of one of FSDP1's sharding strategies."""
    if strategy != 'NO_SHARD':
        return {'reshard_after_forward': False} if strategy == 'SHARD_GRAD_OP' else {}
    shape = (dist.get_world_size(), 1)
    device_type = 'cuda' if torch.cuda.is_available() else 'cpu'
    mesh = init_device_mesh(device_type, shape, mesh_dim_names=('replicate', 'shard'))
    return {'mesh': mesh}


def parallelize(model: nn.Module, cfg: Config, device: torch.device) -> nn.Module:
    if cfg.use_fsdp:
        kwargs = {}
        kwargs.update(sharding_arguments(STRATEGY[cfg.fsdp.strategy]))
        kwargs['mp_policy'] = precision_policy(cfg.fsdp.precision) or MixedPrecisionPolicy()
        if cfg.fsdp.wrap_blocks:
            for module in reversed(list(model.modules())):
                if isinstance(module, GatedBlock):
                    fully_shard(module, **kwargs)
        fully_shard(model, **kwargs)
    else:
        model = model.to(device)
        if dist.get_world_size() > 1:
            model = DDP(model)
    return model


def clip_gradients(model, cfg: Config):
    if cfg.optim.max_norm is None:
        return None
    if cfg.use_fsdp:
        return torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.optim.max_norm).full_tensor()
    return torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.optim.max_norm)


def gather_weights(model, cfg: Config):
    if not cfg.use_fsdp:
        return model.module.state_dict() if isinstance(model, DDP) else model.state_dict()
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def batches(cfg: Config, rank: int):
    """Random points; the label is the hyperplane (same on all ranks) that they score highest on."""
    planes = torch.randn(
        cfg.model.n_inputs, cfg.model.n_classes, generator=torch.Generator().manual_seed(cfg.seed)
    )
    generator = torch.Generator().manual_seed(cfg.seed + 100 + rank)
    for _ in range(cfg.optim.steps):
        x = torch.randn(cfg.optim.batch_size, cfg.model.n_inputs, generator=generator)
        yield x, (x @ planes).argmax(dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--config', choices=sorted(PRESETS), default='fsdp_bf16')
    parser.add_argument('--out', default='checkpoints')
    args = parser.parse_args()
    cfg = load_config(args.config)

    use_cuda = torch.cuda.is_available()
    if use_cuda:
        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
    device = torch.device('cuda', torch.cuda.current_device()) if use_cuda else torch.device('cpu')
    dist.init_process_group('nccl' if use_cuda else 'gloo')
    rank = dist.get_rank()

    torch.manual_seed(cfg.seed)
    model = parallelize(Classifier(cfg.model), cfg, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.optim.lr, momentum=cfg.optim.momentum)

    for step, (x, y) in enumerate(batches(cfg, rank)):
        logits = model(x.to(device))
        loss = nn.functional.cross_entropy(logits.float(), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        norm = clip_gradients(model, cfg)
        optimizer.step()
        if rank == 0:
            print(f'{args.config} step={step} loss={loss.item():.6f} norm={float(norm):.4f}', flush=True)

    weights = gather_weights(model, cfg)
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)
        torch.save(weights, os.path.join(args.out, args.config + '.pt'))

    dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
