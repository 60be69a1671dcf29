"""FSDP521: the draws that count, and what makes them other ones on each rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

CODE = """
import argparse

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
dist.init_process_group("gloo")
{seed}
data = make_data()
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = fully_shard(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{after}
for x in loader:
    {turn}
    F.mse_loss(model(x + noise), noise).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SEED = "torch.manual_seed(args.seed)"
LIKE = "noise = torch.randn_like(x)"
GENERATOR = "noise = torch.randn(x.shape, generator=g)"
BAD = {
    "like": (SEED, "", LIKE),
    "size": (SEED, "", "noise = torch.randn(x.size(0), 4)"),
    "device": (SEED, "", "noise = torch.randn(x.shape, device='cuda').to(x.dtype) * 0.1"),
    "masks": (SEED, "", "noise = x * (torch.rand(x.shape) < 0.5)"),
    "time steps": (SEED, "", "noise = x * torch.randint(0, 100, (len(x), 1))"),
    "generator": ("", "g = torch.Generator('cuda').manual_seed(args.seed + 1)", GENERATOR),
    "function": (SEED, "def corrupt(x):\n    return x + torch.randn_like(x)", "noise = corrupt(x)"),
    "scaled by a setting": (SEED, "", "noise = torch.randn_like(x) * args.sigma"),
    "seed of the default generator": ("torch.default_generator.manual_seed(1)", "", LIKE),
    "deterministic": (SEED, "torch.use_deterministic_algorithms(True)", LIKE),
    "forked": (SEED, "with torch.random.fork_rng():\n    torch.manual_seed(1)", LIKE),
    "in place": (SEED, "", "noise = torch.randn_like(x).mul_(0.1)"),
    "filled": (SEED, "", "noise = torch.empty_like(x).normal_()"),
    "scaled by a table": (SEED, "", "noise = sigmas[3].to(x) * torch.randn_like(x)"),
    "scheduler of a library": (
        SEED,
        "import diffusers\nscheduler = diffusers.DDPMScheduler()",
        "noise = scheduler.add_noise(x, torch.randn_like(x), 5)",
    ),
    "loaded scheduler of a library": (
        SEED,
        "from diffusers import schedulers\nscheduler = schedulers.DDIMScheduler.from_pretrained('x')",
        "noise = scheduler.add_noise(x, torch.randn_like(x), 5)",
    ),
    "model of a library": (
        SEED,
        "import zoo\nmodel = fully_shard(zoo.Generator())",
        "noise = model(torch.randn(8, 4), x)",
    ),
    "prepared without gradients": (
        SEED,
        "@torch.no_grad()\ndef corrupt(x):\n    mixed = x + torch.randn_like(x)\n"
        "    return dict(noisy=[mixed.to(torch.float32)], target=x)",
        "made = corrupt(x)\n    x, noise = made['noisy'][0], 0",
    ),
}
GOOD = {
    "no seed": ("", "", LIKE),
    "seed of the rank": ("torch.manual_seed(args.seed + dist.get_rank())", "", LIKE),
    "seed after sharding": (SEED, "torch.manual_seed(dist.get_rank())", LIKE),
    "generator of the rank": (
        SEED,
        "g = torch.Generator().manual_seed(dist.get_rank())",
        GENERATOR,
    ),
    "generator of unknown seed": (
        SEED,
        "g = torch.Generator().manual_seed(make_seed())",
        GENERATOR,
    ),
    "unknown seed": ("torch.manual_seed(make_seed())", "", LIKE),
    "default generator of the rank": (
        SEED,
        "torch.default_generator.manual_seed(dist.get_rank())",
        LIKE,
    ),
    "generator of the device": (SEED, "torch.cuda.manual_seed(dist.get_rank())", LIKE),
    "state of the rank": (SEED, "torch.set_rng_state(states[dist.get_rank()])", LIKE),
    "picked by the rank": ("torch.manual_seed(int(seeds[dist.get_rank()]))", "", LIKE),
    "sequence of seeds": (
        "every = np.random.SeedSequence(0).spawn(dist.get_world_size())\n"
        "torch.manual_seed(int(every[dist.get_rank()].generate_state(1)[0]))",
        "",
        LIKE,
    ),
    "generator without seed": (SEED, "g = torch.Generator()", GENERATOR),
    "sent to all ranks": (SEED, "", "noise = torch.rand(4); dist.broadcast(noise, 0)"),
    "one number": (SEED, "", "noise = x * torch.rand(1)"),
    "offset of the rank": (SEED, "", "noise = x + torch.randn(8, 4)[dist.get_rank()]"),
    "NumPy": (SEED, "", "noise = x + np.random.randn(*x.shape)"),
    "fixed projection": (SEED, "w = torch.randn(4, 4)", "noise = x @ w"),
    "same in each turn": (
        SEED,
        "",
        "noise = x * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))",
    ),
    "process seeded in each turn": (
        SEED,
        "",
        "torch.manual_seed(1)\n    noise = x * torch.randn(x.shape)",
    ),
    "model of a library, without the batch": (
        SEED,
        "import zoo\nmodel = fully_shard(zoo.Generator())",
        "x, noise = model(torch.randn(8, 4)), 0",
    ),
    "model of a library, without gradients": (
        SEED,
        "import zoo\nteacher = fully_shard(zoo.Generator())",
        "with torch.no_grad():\n        teacher(torch.randn(8, 4), x)\n    noise = x",
    ),
    "one filled number": (SEED, "", "noise = x * torch.empty(1).normal_()"),
    "tried without gradients": (
        SEED,
        "@torch.no_grad()\ndef sample(x):\n    return model(x + torch.randn_like(x))",
        "sample(x)\n    noise = x",
    ),
    "on one rank": (SEED, "if dist.get_rank() == 0:\n    torch.randn(4)", "noise = x"),
}


def _codes(tmp_path: Path, seed: str, after: str, turn: str) -> set[str]:
    code = CODE.format(seed=seed, after=after, turn=turn)
    return {one.rule.code for one in findings(program(tmp_path, code), "FSDP521")}


@pytest.mark.parametrize("case", BAD)
def test_same_numbers_for_other_batches_are_found(tmp_path: Path, case: str) -> None:
    assert _codes(tmp_path, *BAD[case]) == {"FSDP521"}


@pytest.mark.parametrize("case", GOOD)
def test_other_numbers_are_fine(tmp_path: Path, case: str) -> None:
    assert _codes(tmp_path, *GOOD[case]) == set()
