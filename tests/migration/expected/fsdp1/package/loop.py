"""The training loop and its random data."""
import torch
import torch.distributed as dist


class RandomSequences:
    """Endless batches of arithmetic sequences; every rank draws its own."""

    def __init__(self, cfg, rank):
        self.cfg = cfg
        self.generator = torch.Generator().manual_seed(cfg.seed * 1000 + rank)

    def next_batch(self):
        cfg = self.cfg
        start = torch.randint(cfg.vocab_size, (cfg.batch_size, 1), generator=self.generator)
        stride = torch.randint(1, 4, (cfg.batch_size, 1), generator=self.generator)
        sequence = (start + stride * torch.arange(cfg.seq_len + 1)) % cfg.vocab_size
        return sequence[:, :-1], sequence[:, 1:]


def mean_over_ranks(value):
    value = value.detach().clone()
    dist.all_reduce(value)
    return (value / dist.get_world_size()).item()


def train_loop(model, optimizer, scheduler, data, cfg, device, first_step=0):
    model.train()
    for _ in range(first_step):  # a resumed run goes on where the data stopped
        data.next_batch()
    for step in range(first_step, cfg.stop_at or cfg.steps):
        tokens, targets = (t.to(device) for t in data.next_batch())
        loss = model(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.grad_clip)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)

        mean_loss = mean_over_ranks(loss)
        if dist.get_rank() == 0:
            print(f"[{step + 1}/{cfg.steps}] loss={mean_loss:.6f} lr={scheduler.get_last_lr()[0]:.2e}")
