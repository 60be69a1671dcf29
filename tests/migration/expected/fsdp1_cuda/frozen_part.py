"""A frozen table that FSDP leaves alone, with its buffers; the rest starts from rank 0's weights.

    torchrun --nproc-per-node 2 frozen_part.py --out checkpoints
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


class Table(nn.Module):
    """Fixed random features of a token."""

    def __init__(self, n_tokens, d):
        super().__init__()
        self.table = nn.Embedding(n_tokens, d)
        self.register_buffer("shift", torch.linspace(0, 1.1, d))

    def forward(self, tokens):
        return torch.cos(self.table(tokens) + self.shift)


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, d)
        self.register_buffer("scale", torch.full((d,), 1.01))

    def forward(self, x):
        return x + torch.relu(self.fc(x)) * self.scale


class Model(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.features = Table(11, d)
        self.layers = nn.Sequential(Layer(d), Layer(d))
        self.out = nn.Linear(d, 1)

    def forward(self, tokens):
        with torch.no_grad():
            x = self.features(tokens).to(self.out.weight.dtype)
        return self.out(self.layers(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="checkpoints")
    args = parser.parse_args()

    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()

    torch.manual_seed(6)
    features = Table(11, 16).cuda()  # FSDP1 moves no ignored module
    torch.manual_seed(rank)
    model = Model()
    model.features = features
    for parameter in model.features.parameters():
        parameter.requires_grad = False
    full_parameters = dict(model.named_parameters())
    model.features.to(local_rank)
    fsdp_kwargs = {
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        "ignored_params": set(model.features.parameters()),
    }
    not_sharded = set(model.features.modules())
    for module in reversed(list(model.modules())):
        if module not in not_sharded and isinstance(module, Layer):
            fully_shard(module, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    # All ranks start from rank 0's weights and buffers.
    with torch.no_grad():
        for name, fsdp_parameter in model.named_parameters():
            if not isinstance(fsdp_parameter, DTensor):
                continue
            full = full_parameters[name].to(fsdp_parameter.device_mesh.device_type)
            fsdp_parameter.copy_(distribute_tensor(full, fsdp_parameter.device_mesh, fsdp_parameter.placements))
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
    del full_parameters
    ignored_buffers = set(model.features.buffers())
    for buffer in model.buffers():
        if buffer.is_floating_point() and buffer not in ignored_buffers:
            buffer.data = buffer.data.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rng = torch.Generator().manual_seed(16 + rank)
    for step in range(3):
        tokens = torch.randint(11, (8,), generator=rng).cuda()
        loss = (model(tokens).float() - tokens[:, None] / 11).abs().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print("step %d loss %.6f norm %.4f" % (step, loss.item(), norm.item()))

    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)
        torch.save(state, os.path.join(args.out, "model.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
