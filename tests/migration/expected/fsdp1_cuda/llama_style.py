"""Fine-tune a small Llama-like decoder with FSDP on GPUs.

    torchrun --nproc-per-node 8 llama_style.py --sharding_strategy FULL_SHARD --fsdp_activation_checkpointing

Rank 0 holds the weights to start from, sync_module_states hands them to the other ranks. With --low_cpu_fsdp
the other ranks do not even allocate theirs before that.
"""
import argparse
import functools
import os
import time
from dataclasses import replace

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import distribute_tensor

VOCAB_SIZE = 128

bfSixteen = MixedPrecisionPolicy(
    param_dtype=torch.bfloat16,
    # Gradient communication precision.
    reduce_dtype=torch.bfloat16,
)

fp32_policy = MixedPrecisionPolicy(
    param_dtype=torch.float32,
    reduce_dtype=torch.float32,
)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return self.weight * (x.float() * torch.rsqrt(variance + self.eps)).to(x.dtype)


class LlamaAttention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, dim, bias=False)
        self.v_proj = nn.Linear(dim, dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def rotate(self, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def forward(self, x, cos, sin):
        bsz, seqlen, dim = x.shape
        shape = (bsz, seqlen, self.n_heads, dim // self.n_heads)
        q = self.rotate(self.q_proj(x).view(shape).transpose(1, 2), cos, sin)
        k = self.rotate(self.k_proj(x).view(shape).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(bsz, seqlen, dim))


class LlamaMLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaDecoderLayer(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.input_layernorm = RMSNorm(dim)
        self.self_attn = LlamaAttention(dim, n_heads)
        self.post_attention_layernorm = RMSNorm(dim)
        self.mlp = LlamaMLP(dim, 2 * dim)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaForCausalLM(nn.Module):
    def __init__(self, dim=64, n_heads=4, n_layers=3, max_len=32):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB_SIZE, dim)
        self.layers = nn.ModuleList([LlamaDecoderLayer(dim, n_heads) for _ in range(n_layers)])
        self.norm = RMSNorm(dim)
        self.lm_head = nn.Linear(dim, VOCAB_SIZE, bias=False)
        head_dim = dim // n_heads
        inv_freq = 1.0 / 10000 ** (torch.arange(0, head_dim, 2).float() / head_dim)
        angles = torch.outer(torch.arange(max_len).float(), inv_freq)
        self.register_buffer("rope_cos", angles.cos(), persistent=False)
        self.register_buffer("rope_sin", angles.sin(), persistent=False)

    def forward(self, input_ids, labels):
        x = self.embed_tokens(input_ids)
        cos, sin = self.rope_cos[: input_ids.shape[1]], self.rope_sin[: input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = self.lm_head(self.norm(x)).float()
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


class RandomTokenDataset(torch.utils.data.Dataset):
    """Arithmetic progressions modulo the vocabulary size."""

    def __init__(self, size=64, length=24):
        generator = torch.Generator().manual_seed(2024)
        start = torch.randint(VOCAB_SIZE, (size, 1), generator=generator)
        stride = torch.randint(1, 4, (size, 1), generator=generator)
        self.samples = (start + stride * torch.arange(length)) % VOCAB_SIZE

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return {"input_ids": self.samples[index], "labels": self.samples[index]}


def get_llama_wrapper():
    return lambda module: isinstance(module, LlamaDecoderLayer)


def get_policies(args, rank):
    """Mixed precision and wrapping policy."""
    if args.pure_fp32:
        mixed_precision_policy = fp32_policy
    else:
        mixed_precision_policy = bfSixteen
        if rank == 0:
            print("bFloat16 enabled for mixed precision - using bfSixteen policy")
    return mixed_precision_policy, get_llama_wrapper()


def create_model(args, rank):
    if args.low_cpu_fsdp and rank != 0:
        with torch.device("meta"):
            return LlamaForCausalLM()
    torch.manual_seed(args.seed + rank)  # only the weights of rank 0 count
    return LlamaForCausalLM()


def apply_fsdp_checkpointing(model):
    print("--> applying fsdp activation checkpointing...")
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT),
        check_fn=lambda submodule: isinstance(submodule, LlamaDecoderLayer),
    )


def train(model, train_loader, optimizer, scheduler, args, local_rank, rank):
    world_size = dist.get_world_size()
    step = 0
    for epoch in range(args.num_epochs):
        train_loader.sampler.set_epoch(epoch)
        model.train()
        epoch_loss = torch.zeros(2).to(local_rank)
        for batch in train_loader:
            tick = time.time()
            for key in batch.keys():
                batch[key] = batch[key].to(local_rank)
            optimizer.zero_grad()
            loss = model(batch["input_ids"], batch["labels"])
            loss.backward()
            grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.gradient_clipping)
            optimizer.step()
            epoch_loss[0] += loss.item()
            epoch_loss[1] += 1
            if rank == 0:
                print(
                    f"epoch {epoch} step {step} loss {loss.item():.6f} "
                    f"grad_norm {grad_norm.item():.4f} time {time.time() - tick:.2f}"
                )
            step += 1
        scheduler.step()
        dist.all_reduce(epoch_loss, op=dist.ReduceOp.SUM)
        if rank == 0:
            print(f"epoch {epoch}: train loss {(epoch_loss[0] / epoch_loss[1]).item():.6f} on {world_size} ranks")


def save_model_checkpoint(model, rank, args):
    """Gather the weights on the CPU of rank 0 and write them."""
    fullstate_save_policy = StateDictOptions(full_state_dict=True, cpu_offload=True)
    cpu_state = get_model_state_dict(model, options=fullstate_save_policy)
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)
        torch.save(cpu_state, os.path.join(args.out, "llama.pt"))
        print(f"model checkpoint saved with {len(cpu_state)} tensors")
    dist.barrier()


def sharding_arguments(strategy):
    """The arguments of fully_shard for the name of one of FSDP1's sharding strategies."""
    if strategy == "NO_SHARD":
        shape = (dist.get_world_size(), 1)
    elif strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        per_node = torch.cuda.device_count()
        shape = (dist.get_world_size() // per_node, per_node)
    else:
        return {"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {}
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    arguments = {"mesh": mesh}
    if strategy == "_HYBRID_SHARD_ZERO2":
        arguments["reshard_after_forward"] = False
    return arguments


def fsdp_main(args):
    local_rank = int(os.environ["LOCAL_RANK"])
    rank = int(os.environ["RANK"])
    dist.init_process_group("cpu:gloo,cuda:nccl")
    torch.cuda.set_device(local_rank)
    torch.cuda.empty_cache()

    model = create_model(args, rank)
    mixed_precision_policy, wrapping_policy = get_policies(args, rank)
    full_parameters = dict(model.named_parameters())
    mp_policy = mixed_precision_policy or MixedPrecisionPolicy()
    fsdp_kwargs = {
        **sharding_arguments(args.sharding_strategy),
        "offload_policy": CPUOffloadPolicy() if args.fsdp_cpu_offload else OffloadPolicy(),
    }
    # Only the root casts its inputs.
    inner_policy = replace(mp_policy, cast_forward_inputs=False)
    for submodule in reversed(list(model.modules())):
        if wrapping_policy(submodule):
            fully_shard(submodule, **fsdp_kwargs, mp_policy=inner_policy)
    fully_shard(model, **fsdp_kwargs, mp_policy=mp_policy)
    if any(p.is_meta for p in model.parameters()):
        model.to_empty(device="cpu" if args.fsdp_cpu_offload else torch.device("cuda"))
        for buffer in model.buffers():
            buffer.data = buffer.data.to(torch.device("cuda"))
    # All ranks start from rank 0's weights and buffers.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            full = full_parameters[name]
            if full.is_meta:
                full = torch.empty_like(full, device=parameter.device_mesh.device_type)
            full = full.to(parameter.device_mesh.device_type)
            parameter.copy_(distribute_tensor(full, parameter.device_mesh, parameter.placements))
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
    del full_parameters
    if mp_policy.param_dtype is not None:
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(mp_policy.param_dtype)
    if args.fsdp_activation_checkpointing:
        apply_fsdp_checkpointing(model)

    dataset = RandomTokenDataset()
    sampler = torch.utils.data.DistributedSampler(dataset, shuffle=True, drop_last=True)
    train_loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=args.gamma)
    train(model, train_loader, optimizer, scheduler, args, local_rank, rank)

    save_model_checkpoint(model, rank, args)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Llama-like FSDP example")
    parser.add_argument("--num_epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--gamma", type=float, default=0.85)
    parser.add_argument("--gradient_clipping", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument(
        "--sharding_strategy",
        default="FULL_SHARD",
        choices=["FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "NO_SHARD"],
    )
    parser.add_argument("--pure_fp32", action="store_true")
    parser.add_argument("--low_cpu_fsdp", action="store_true")
    parser.add_argument("--fsdp_cpu_offload", action="store_true")
    parser.add_argument("--fsdp_activation_checkpointing", action="store_true")
    parser.add_argument("--out", default="checkpoints")
    fsdp_main(parser.parse_args())
