"""A Trainer class around FSDP: bf16 mixed precision and gradient accumulation.

torchrun --nproc-per-node 2 trainer_class.py --out checkpoints
"""

import argparse
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

logger = logging.getLogger("trainer")


class EncoderLayer(nn.Module):
    def __init__(self, d_model: int, n_head: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_head, batch_first=True)
        self.norm_1 = nn.LayerNorm(d_model)
        self.norm_2 = nn.LayerNorm(d_model)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, 2 * d_model),
            nn.ReLU(),
            nn.Linear(2 * d_model, d_model),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm_1(x)
        h, _ = self.attention(h, h, h, need_weights=False)
        x = x + h
        return x + self.feed_forward(self.norm_2(x))


class SequenceClassifier(nn.Module):
    def __init__(self, vocab_size=50, d_model=32, n_head=2, n_layers=2, n_classes=5):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.encoder = nn.ModuleList(EncoderLayer(d_model, n_head) for _ in range(n_layers))
        self.classifier = nn.Linear(d_model, n_classes)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.encoder:
            x = layer(x)
        return self.classifier(x.mean(dim=1))


def random_batches(rank, count, batch_size=8, length=12, vocab_size=50, n_classes=5):
    """Sequences whose tokens come from the part of the vocabulary that their class owns."""
    generator = torch.Generator().manual_seed(77 + rank)
    for _ in range(count):
        labels = torch.randint(0, n_classes, (batch_size,), generator=generator)
        per_class = vocab_size // n_classes
        offsets = torch.randint(0, per_class, (batch_size, length), generator=generator)
        yield labels[:, None] * per_class + offsets, labels


class Trainer:
    def __init__(self, model, device, args):
        self.args = args
        self.device = device
        self.rank = dist.get_rank()
        self.global_step = 0

        if args.precision == "bf16":
            mixed_precision = MixedPrecisionPolicy(
                param_dtype=torch.bfloat16,
                reduce_dtype=torch.bfloat16,
            )
        else:
            mixed_precision = MixedPrecisionPolicy(
                param_dtype=torch.float32,
                reduce_dtype=torch.float32,
            )

        for module in reversed(list(model.modules())):
            if isinstance(module, EncoderLayer):
                fully_shard(module, mp_policy=mixed_precision)
        self.model = fully_shard(model, mp_policy=mixed_precision)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)

    def is_main_process(self) -> bool:
        return self.rank == 0

    def log(self, message: str) -> None:
        if self.is_main_process():
            logger.info(message)

    def train(self, batches) -> None:
        self.model.train()
        self.optimizer.zero_grad()
        running = 0.0
        for index, (tokens, labels) in enumerate(batches):
            tokens = tokens.to(self.device)
            labels = labels.to(self.device)
            last_micro_batch = (index + 1) % self.args.accumulate == 0

            self.model.set_requires_gradient_sync(last_micro_batch)
            logits = self.model(tokens)
            loss = self.criterion(logits.float(), labels) / self.args.accumulate
            loss.backward()
            running += loss.item()

            if last_micro_batch:
                torch.nn.utils.clip_grad_norm_(
                    self.model.parameters(), self.args.max_grad_norm
                )
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.log(f"step {self.global_step} loss {running:.6f}")
                self.global_step += 1
                running = 0.0

    def save(self, folder: str) -> None:
        config = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(self.model, options=config)

        if not self.is_main_process():
            return
        os.makedirs(folder, exist_ok=True)
        torch.save({"model": state, "step": self.global_step}, os.path.join(folder, "trainer.pt"))
        self.log("checkpoint written")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--max-grad-norm", type=float, default=1.0)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--out", default="checkpoints")
    args = parser.parse_args()

    logging.basicConfig(level=logging.INFO, format="%(name)s | %(message)s")
    local_rank = int(os.environ["LOCAL_RANK"])
    use_cuda = torch.cuda.is_available()
    device = torch.device(f"cuda:{local_rank}" if use_cuda else "cpu")
    if use_cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if use_cuda else "gloo")

    torch.manual_seed(42)
    model = SequenceClassifier()
    trainer = Trainer(model, device, args)
    trainer.train(random_batches(dist.get_rank(), args.steps * args.accumulate))
    trainer.save(args.out)

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
