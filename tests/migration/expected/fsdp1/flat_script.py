"""Train a tiny causal language model with FSDP, everything at module level.

Run:  torchrun --nproc-per-node 2 flat_script.py [--out DIR]
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

VOCAB = 64
DIM = 32
HEADS = 4
LAYERS = 3
SEQ = 16
BATCH = 4
STEPS = 8
MAX_NORM = 1.0


class Block(nn.Module):
    """Pre-norm transformer block with causal attention."""

    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.ln2 = nn.LayerNorm(DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        att = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(att.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(SEQ, DIM)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1], device=idx.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


out_dir = sys.argv[sys.argv.index("--out") + 1] if "--out" in sys.argv else "checkpoints"

rank = int(os.environ["RANK"])
local_rank = int(os.environ["LOCAL_RANK"])
if torch.cuda.is_available():
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
else:
    device = torch.device("cpu")
    dist.init_process_group("gloo")

# Same seed everywhere, so that every rank starts from the same weights.
torch.manual_seed(0)
model = TinyLM().to(device)

for module in reversed(list(model.modules())):
    if isinstance(module, Block):
        fully_shard(module)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)

# Each rank reads its own slice of the (random) data.
data_rng = torch.Generator().manual_seed(1000 + rank)
model.train()
for step in range(STEPS):
    start = torch.randint(0, VOCAB, (BATCH, 1), generator=data_rng)
    tokens = (start + 3 * torch.arange(SEQ + 1)) % VOCAB
    tokens = tokens.to(device)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]

    optimizer.zero_grad()
    logits = model(inputs)
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
    loss.backward()
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM).full_tensor()
    optimizer.step()

    mean_loss = loss.detach().clone()
    dist.all_reduce(mean_loss)
    mean_loss /= dist.get_world_size()
    if rank == 0:
        print(f"step {step} loss {mean_loss.item():.6f} grad_norm {grad_norm:.4f}")

# Every rank takes part in gathering the weights, only rank 0 keeps and writes them.
save_policy = StateDictOptions(full_state_dict=True, cpu_offload=True)
full_state = get_model_state_dict(model, options=save_policy)
if rank == 0:
    os.makedirs(out_dir, exist_ok=True)
    torch.save(full_state, os.path.join(out_dir, "model.pt"))
    print("saved", len(full_state), "tensors")

dist.barrier()
dist.destroy_process_group()
