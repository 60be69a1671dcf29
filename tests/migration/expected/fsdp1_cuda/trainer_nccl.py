"""Masked-token pretraining with a trainer class, for GPUs under NCCL.

torchrun --standalone --nproc-per-node 4 trainer_nccl.py --precision bf16 --out checkpoints
torchrun --standalone --nproc-per-node 4 trainer_nccl.py --precision fp16 --resume checkpoints/encoder.pt
"""
import argparse
import os
import random
from dataclasses import dataclass
from typing import Iterator, Optional, Tuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import distribute_tensor

MASK_TOKEN = 0


@dataclass
class TrainerArgs:
    steps: int = 6
    accumulation_steps: int = 2
    batch_size: int = 8
    seq_len: int = 16
    learning_rate: float = 1e-2
    max_grad_norm: float = 1.0
    precision: str = "bf16"
    sharding_strategy: str = "full"
    cpu_offload: bool = False
    seed: int = 17
    resume: Optional[str] = None
    out: str = "checkpoints"


class EncoderLayer(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.in_proj = nn.Linear(hidden, 3 * hidden)
        self.out_proj = nn.Linear(hidden, hidden)
        self.attn_norm = nn.LayerNorm(hidden)
        self.fc_in = nn.Linear(hidden, 4 * hidden)
        self.fc_out = nn.Linear(4 * hidden, hidden)
        self.ffn_norm = nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        qkv = self.in_proj(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        context = nn.functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        context = context.transpose(1, 2).reshape(batch, length, hidden)
        x = self.attn_norm(x + self.out_proj(context))
        return self.ffn_norm(x + self.fc_out(nn.functional.gelu(self.fc_in(x))))


class MaskedEncoder(nn.Module):
    def __init__(self, vocab: int = 40, hidden: int = 48, heads: int = 4, layers: int = 2, max_len: int = 32):
        super().__init__()
        self.vocab = vocab
        self.word_embeddings = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList([EncoderLayer(hidden, heads) for _ in range(layers)])
        self.decoder = nn.Linear(hidden, vocab)
        # sinusoidal positions
        position = torch.arange(max_len)[:, None] / 10000 ** (torch.arange(0, hidden, 2) / hidden)
        self.register_buffer("positions", torch.cat([position.sin(), position.cos()], dim=1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.word_embeddings(tokens) + self.positions[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.decoder(x)


def masked_batches(args: TrainerArgs, rank: int, vocab: int) -> Iterator[Tuple[Tensor, Tensor]]:
    """Counting sequences in which every fourth token is hidden."""
    generator = torch.Generator().manual_seed(args.seed * 31 + rank)
    while True:
        start = torch.randint(1, vocab, (args.batch_size, 1), generator=generator)
        tokens = 1 + (start + torch.arange(args.seq_len)) % (vocab - 1)
        hidden = torch.rand(tokens.shape, generator=generator) < 0.25
        hidden[:, 0] = True
        yield tokens.masked_fill(hidden, MASK_TOKEN), tokens.masked_fill(~hidden, -100)


def sharding_arguments(strategy):
    """The arguments of fully_shard for the name of one of FSDP1's sharding strategies."""
    if strategy != "HYBRID_SHARD":
        return {"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {}
    per_node = torch.cuda.device_count()
    shape = (dist.get_world_size() // per_node, per_node)
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    return {"mesh": mesh}


class Trainer:
    STRATEGIES = {
        "full": "FULL_SHARD",
        "grad_op": "SHARD_GRAD_OP",
        "hybrid": "HYBRID_SHARD",
    }

    def __init__(self, args: TrainerArgs):
        self.args = args
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.step = 0
        torch.cuda.set_device(self.local_rank)

        # every rank draws its own weights, FSDP then broadcasts those of rank 0
        torch.manual_seed(args.seed + self.global_rank)
        random.seed(args.seed + self.global_rank)
        model = MaskedEncoder()
        self.vocab = model.vocab
        if args.resume:
            self.load_weights(model, args.resume)

        self.model = self.wrap(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.learning_rate, betas=(0.9, 0.98))
        self.scaler = torch.amp.GradScaler("cuda", enabled=args.precision == "fp16")
        if args.resume:
            self.load_optimizer(args.resume)

    @property
    def is_main(self) -> bool:
        return self.global_rank == 0

    def mixed_precision(self) -> Optional[MixedPrecisionPolicy]:
        if self.args.precision == "bf16":
            return MixedPrecisionPolicy(
                param_dtype=torch.bfloat16,
                reduce_dtype=torch.float32,
            )
        if self.args.precision == "fp16":
            return MixedPrecisionPolicy(
                param_dtype=torch.float16,
                reduce_dtype=torch.float16,
            )
        return None

    def wrap(self, model: nn.Module) -> FSDPModule:
        model = model.cuda()
        full_parameters = dict(model.named_parameters())
        mp_policy = self.mixed_precision() or MixedPrecisionPolicy()
        fsdp_kwargs = {
            **sharding_arguments(self.STRATEGIES[self.args.sharding_strategy]),
            "offload_policy": CPUOffloadPolicy() if self.args.cpu_offload else OffloadPolicy(),
            "mp_policy": mp_policy,
        }
        for module in reversed(list(model.modules())):
            if isinstance(module, EncoderLayer):
                fully_shard(module, **fsdp_kwargs)
        fully_shard(model, **fsdp_kwargs)
        # All ranks start from rank 0's weights and buffers.
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                full = full_parameters[name].to(parameter.device_mesh.device_type)
                parameter.copy_(distribute_tensor(full, parameter.device_mesh, parameter.placements))
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
        del full_parameters
        if mp_policy.param_dtype is not None:
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    buffer.data = buffer.data.to(mp_policy.param_dtype)
        return model

    def load_weights(self, model: nn.Module, path: str) -> None:
        if not self.is_main:  # the others get them from rank 0
            return
        model.load_state_dict(torch.load(path, map_location="cpu")["model"])

    def load_optimizer(self, path: str) -> None:
        checkpoint = torch.load(path, map_location="cpu")
        self.step = checkpoint["step"]
        set_optimizer_state_dict(
            self.model,
            self.optimizer,
            checkpoint["optimizer"],
            options=StateDictOptions(full_state_dict=True),
        )

    def micro_batch(self, inputs: Tensor, labels: Tensor) -> float:
        logits = self.model(inputs.cuda())
        loss = nn.functional.cross_entropy(
            logits.float().view(-1, self.vocab), labels.cuda().view(-1), ignore_index=-100
        )
        loss = loss / self.args.accumulation_steps
        self.scaler.scale(loss).backward()
        return loss.detach().item()

    def fit(self) -> None:
        batches = masked_batches(self.args, self.global_rank, self.vocab)
        for _ in range(self.step * self.args.accumulation_steps):
            next(batches)

        self.model.train()
        while self.step < self.args.steps:
            total = 0.0
            for micro in range(self.args.accumulation_steps):
                inputs, labels = next(batches)
                is_last = micro == self.args.accumulation_steps - 1
                self.model.set_requires_gradient_sync(is_last)
                total += self.micro_batch(inputs, labels)
                self.model.set_requires_gradient_sync(True)

            self.scaler.unscale_(self.optimizer)
            grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
            self.step += 1
            if self.is_main:
                print({"step": self.step, "loss": round(total, 6), "grad_norm": round(grad_norm.item(), 4)})

    def save(self) -> None:
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        model_state = get_model_state_dict(self.model, options=options)
        optimizer_state = get_optimizer_state_dict(self.model, self.optimizer, options=options)
        if self.is_main:
            os.makedirs(self.args.out, exist_ok=True)
            path = os.path.join(self.args.out, "encoder.pt")
            torch.save({"model": model_state, "optimizer": optimizer_state, "step": self.step}, path)
            print("saved", len(model_state), "tensors")
        dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--accumulation-steps", type=int, default=2)
    parser.add_argument("--precision", choices=["bf16", "fp16", "fp32"], default="bf16")
    parser.add_argument("--sharding-strategy", choices=sorted(Trainer.STRATEGIES), default="full")
    parser.add_argument("--cpu-offload", action="store_true")
    parser.add_argument("--resume")
    parser.add_argument("--out", default="checkpoints")
    args = TrainerArgs(**vars(parser.parse_args()))

    dist.init_process_group(backend="cpu:gloo,cuda:nccl")
    trainer = Trainer(args)
    trainer.fit()
    trainer.save()

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
