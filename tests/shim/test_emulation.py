"""A program for CUDA and NCCL on CPU ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_ranks import TwoRanks

from fsdplint.trace import DeviceSet, MeshBuilt, ModuleMoved, ProcessGroupInit, Wrapped

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"

CUDA = """
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, CPUOffloadPolicy

assert torch.cuda.is_available()
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
dist.init_process_group("nccl", device_id=device)
assert torch.cuda.current_device() == local_rank and torch.cuda.device_count() == 2
mesh = init_device_mesh("cuda", (2,), mesh_dim_names=("dp",))
torch.cuda.manual_seed_all(1)
generator = torch.Generator(device="cuda").manual_seed(1)
with torch.device("cuda"):
    model = nn.Linear(4, 4)
model = nn.Sequential(model, nn.ReLU()).to(local_rank).cuda()
fully_shard(model, mesh=mesh, offload_policy=CPUOffloadPolicy())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
x = torch.randn(2, 4, device="cuda", generator=generator)
x = x.pin_memory().to(device, non_blocking=True).cuda(local_rank)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
with torch.autocast("cuda", dtype=torch.bfloat16), torch.cuda.stream(torch.cuda.Stream()):
    loss = model(x).float().sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
end.record()
torch.cuda.synchronize()
mean = loss.detach().clone()
dist.all_reduce(mean, op=dist.ReduceOp.AVG)
dist.barrier(device_ids=[local_rank])
assert torch.allclose(mean, loss), "the same data on both ranks"
torch.save({"x": x}, f"x{local_rank}.pt")
torch.load(f"x{local_rank}.pt", map_location=f"cuda:{local_rank}")
print("memory", torch.cuda.max_memory_allocated() // 2**20, start.elapsed_time(end) >= 0)
torch.cuda.empty_cache()
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
x.record_stream(stream)
assert torch.cuda.FloatTensor([1.0]).dtype is torch.float32
torch.set_default_device("cuda")
assert torch.ones(2).sum() == 2
"""


def test_a_cuda_program_runs_on_the_cpu(two_ranks: TwoRanks) -> None:
    outcome = two_ranks.run(CUDA)
    assert outcome.status == "ok", str(outcome)
    assert outcome.stdout.count("memory 0 True") == 2
    # The record speaks of what the program asked for.
    (group,) = outcome.trace.of(ProcessGroupInit)
    assert group.backend == "nccl"
    (mesh,) = outcome.trace.of(MeshBuilt)
    assert mesh.device_type == "cuda" and mesh.shape == (2,) and mesh.dim_names == ("dp",)
    assert [event.device for event in outcome.trace.of(DeviceSet)] == ["0"]  # rank 0 speaks for all
    assert [event.method for event in outcome.trace.of(ModuleMoved)][-1] == "cuda"


def test_a_program_that_starts_its_ranks_itself(two_ranks: TwoRanks) -> None:
    program = """
        import os
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp

        def main(rank, world_size, text):
            os.environ["MASTER_ADDR"] = "localhost"
            os.environ["MASTER_PORT"] = "12355"
            dist.init_process_group("nccl", rank=rank, world_size=world_size)
            torch.cuda.set_device(rank)
            total = torch.ones(1, device=rank) * rank
            dist.all_reduce(total)
            print(text, total.item())
            dist.destroy_process_group()

        if __name__ == "__main__":
            world_size = torch.cuda.device_count()
            mp.spawn(main, args=(world_size, "sum"), nprocs=world_size, join=True)
    """
    outcome = two_ranks.run(program)
    assert outcome.status == "ok", str(outcome)
    assert outcome.stdout == "sum 1.0\nsum 1.0\n"
    (group,) = outcome.trace.of(ProcessGroupInit)
    assert group.site.location().line == 10


def test_what_cannot_be_emulated_is_named_with_its_line(two_ranks: TwoRanks) -> None:
    outcome = two_ranks.run(
        "import torch\n\ntorch.cuda.CUDAGraph()\ntorch.cuda.list_gpu_processes()\n"
    )
    assert outcome.status == "raised"
    assert "program.py" in outcome.error and "line 3" in outcome.error


def test_weights_of_rank_0_are_broadcast(two_ranks: TwoRanks) -> None:
    program = """
        import torch
        import torch.distributed as dist
        import torch.nn as nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        dist.init_process_group("nccl")
        torch.manual_seed(dist.get_rank())
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        model[1].running_mean += dist.get_rank()
        print("before", model[0].weight.sum().item())
        model = FSDP(model.cuda(), sync_module_states=True, device_id=torch.cuda.current_device())
        torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(2, 4, device="cuda")).sum().backward()
        with FSDP.summon_full_params(model, offload_to_cpu=True):
            print("after", model[0].weight.sum().item(), model[1].running_mean.sum().item())
    """
    outcome = two_ranks.run(program)
    assert outcome.status == "ok", str(outcome)
    before, after = [
        [line.split()[1:] for line in outcome.stdout.splitlines() if line.startswith(word)]
        for word in ("before", "after")
    ]
    assert before[0] != before[1]
    assert after[0] == after[1]
    assert float(after[0][0]) == pytest.approx(float(before[0][0]), rel=1e-5)
    (wrapped,) = outcome.trace.of(Wrapped)
    assert wrapped.options["sync_module_states"] is True


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("llama_style.py", ()),
        ("llama_style.py", ("--low_cpu_fsdp", "--fsdp_activation_checkpointing")),
        ("llama_style.py", ("--fsdp_cpu_offload", "--sharding_strategy", "HYBRID_SHARD")),
        ("trainer_nccl.py", ("--precision", "fp16")),
    ],
)
def test_fixtures_for_gpus_run_on_the_cpu(
    two_ranks: TwoRanks, name: str, args: tuple[str, ...]
) -> None:
    text = (FIXTURES / "fsdp1_cuda" / name).read_text(encoding="utf-8")
    outcome = two_ranks.run({name: text}, args=("--out", "out", *args), parameters=True)
    assert outcome.status == "ok", str(outcome)
    assert [record.troubles for record in outcome.records] == [[], []]
    assert all(record.measures for record in outcome.records)
    assert outcome.parameters
