"""Entry point.

    torchrun --nproc-per-node 2 package/train.py --out checkpoints
"""
import os

import torch
import torch.distributed as dist

from checkpoint import load_checkpoint, save_checkpoint
from config import from_command_line
from loop import RandomSequences, train_loop
from model import Decoder
from wrapping import wrap_model


def init_distributed():
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        dist.init_process_group("nccl")
        return torch.device("cuda", local_rank)
    dist.init_process_group("gloo")
    return torch.device("cpu")


def main():
    cfg = from_command_line()
    device = init_distributed()

    torch.manual_seed(cfg.seed)
    model = Decoder(cfg)
    model = wrap_model(model, cfg, device)

    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / cfg.warmup)
    )
    first_step = 0
    if cfg.resume:
        first_step = load_checkpoint(model, optimizer, scheduler, cfg.out)
        if dist.get_rank() == 0:
            print(f"resumed after {first_step} steps")

    train_loop(model, optimizer, scheduler, RandomSequences(cfg, dist.get_rank()), cfg, device, first_step)
    save_checkpoint(model, optimizer, scheduler, cfg.out)

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
