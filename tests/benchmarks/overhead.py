"""What recording costs: `python tests/benchmarks/overhead.py [RUNS] [--cuda]`.

A transformer of about 100 million parameters, sharded over two ranks (with --cuda over all GPUs), makes
steps with the recorder, as `fsdplint prove` starts it, and without it; whole processes in turn, each pair
in the other order than the one before. Shown are the medians of a step and of the ratios of the pairs;
more than 1.10 is too much, and the exit code is 1 then. On a busy machine the numbers mean little.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """\
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

cuda = sys.argv[1] == "cuda"  # not what torch says: without a GPU the recorder emulates one
dist.init_process_group("nccl" if cuda else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True)
model = nn.Sequential(
    nn.Embedding(16384, 768), nn.TransformerEncoder(layer, 12), nn.Linear(768, 1024)
).to(device)
for block in model[1].layers:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(0, 16384, (8 if cuda else 1, 128), device=device)
times = []
for step in range(30 if cuda else 6):
    started = time.perf_counter()
    loss = model(tokens).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if cuda:
        torch.cuda.synchronize()
    times.append(time.perf_counter() - started)
if dist.get_rank() == 0:
    print("STEP", sorted(times[2:])[len(times[2:]) // 2])
dist.destroy_process_group()
"""


WANTED = 1.10


def step_seconds(folder: Path, ranks: int, device: str, recorded: bool) -> float:
    """The median step of one run, on rank 0."""
    script = folder / "train.py"
    script.write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks)]
    if recorded:
        command += ["-m", "fsdplint.runtime", "--record", str(folder / "record"), "--no-parameters"]
    done = subprocess.run(
        [*command, str(script), device], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("STEP"))
    return float(line.split()[1])


def main() -> int:
    arguments = [word for word in sys.argv[1:] if word != "--cuda"]
    runs = int(arguments[0]) if arguments else 5
    ranks, device = 2, "cpu"
    if "--cuda" in sys.argv:
        import torch

        ranks, device = torch.cuda.device_count(), "cuda"
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    if load > processors / 2:
        print(f"the machine is busy: {load:.1f} processes on {processors} processors")
    pairs = []
    with tempfile.TemporaryDirectory() as name:
        for run in range(runs):
            order = (True, False) if run % 2 == 0 else (False, True)
            taken = {one: step_seconds(Path(name), ranks, device, one) for one in order}
            pairs.append((taken[True], taken[False]))
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(one / other for one, other in pairs)
    where = f"{ranks} ranks ({device})"
    print(f"a step on {where}: {ours:.3f} s recorded, {theirs:.3f} s not, ratio {ratio:.3f}")
    return 1 if ratio > WANTED else 0


if __name__ == "__main__":
    sys.exit(main())
