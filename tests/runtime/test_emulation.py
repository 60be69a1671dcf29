"""A program for CUDA and NCCL on CPU ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from two_ranks import TwoRanks

from fsdplint.runtime.emulation.shared_gpus import share_gpus
from fsdplint.trace import DeviceSet, MeshBuilt, ModuleMoved, ProcessGroupInit, Wrapped

pytestmark = pytest.mark.whole

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
    """Also where torch says in its own words that there is no device."""
    program = """
        import sys
        import torch

        uses = (
            lambda: torch.cuda.CUDAGraph(),
            lambda: torch.cuda.make_graphed_callables(torch.nn.Linear(2, 2), (torch.ones(2),)),
            lambda: torch.cuda.MemPool(),
            lambda: torch.cuda.caching_allocator_alloc(16),
            lambda: torch.cuda.cudart(),
            lambda: torch.cuda.FloatStorage(2),
        )
        for number, use in enumerate(uses):
            try:
                use()
            except RuntimeError as error:
                print(type(error).__name__, str(error).partition("program.py")[2], file=sys.stderr)
        torch.device(int(0))
    """
    outcome = two_ranks.run(program, world=1)
    assert outcome.status == "raised"
    named = [line for line in outcome.stderr.splitlines() if line.startswith("NotEmulatedError :")]
    assert named == [f"NotEmulatedError :{line})" for line in range(6, 12)], outcome.stderr
    assert "NotEmulatedError: this use of CUDA cannot be emulated on the CPU" in outcome.error
    assert "program.py:18): Cannot access accelerator" in outcome.error


def test_what_programs_ask_of_the_device(two_ranks: TwoRanks) -> None:
    """All of torch.cuda that public programs use in a training loop or around it."""
    program = """
        import pickle
        import torch
        import torch.cuda.nccl as nccl
        import torch.distributed as dist
        from torch.cuda import memory, nvtx

        # The usual question about bfloat16.
        assert torch.version.cuda and torch.cuda.is_bf16_supported()
        assert tuple(map(int, torch.version.cuda.split("."))) >= (11, 0)
        assert dist.is_nccl_available() and nccl.version() >= (2, 10)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.benchmark = True
        assert torch.cuda.get_device_capability()[0] >= 8 and torch.cuda.get_device_name(0)
        assert torch.cuda.get_device_properties("cuda").total_memory == torch.cuda.mem_get_info()[1]
        memory._record_memory_history(max_entries=10)
        memory._dump_snapshot("memory.pickle")
        assert pickle.load(open("memory.pickle", "rb"))["segments"] == []
        for module in (torch.cuda, torch.accelerator):
            module.synchronize(), module.empty_cache(), module.reset_peak_memory_stats()
            assert module.max_memory_allocated() == module.memory_reserved() == 0
            assert module.memory_stats()["allocated_bytes.all.peak"] == 0
        assert torch.cuda.memory_summary() and torch.cuda.memory_snapshot() == []
        assert torch.accelerator.current_accelerator().type == "cuda"
        assert torch.accelerator.current_device_index() == torch.cuda.current_device() == 0
        torch.cuda.profiler.start(), torch.cuda.profiler.stop()
        with nvtx.range("step"), torch.cuda.device(0), torch.Stream(device="cuda") as stream:
            event = torch.Event(device="cuda", enable_timing=True)
            event.record(stream)
        assert isinstance(stream, torch.Stream) and isinstance(event, torch.Event)
        assert torch.cuda.Stream(priority=-1).priority == -1 and event.query()
        state = torch.cuda.get_rng_state()
        first = torch.rand(2, device="cuda")
        torch.set_rng_state(state)
        assert torch.equal(torch.rand(2, device="cuda"), first)
        assert torch.cuda.default_generators[0].initial_seed() is not None
        assert not torch.cuda.is_current_stream_capturing() and torch.cuda.utilization() == 0
    """
    outcome = two_ranks.run(program, world=1)
    assert outcome.status == "ok", str(outcome)


def test_copies_to_and_from_the_device(two_ranks: TwoRanks) -> None:
    program = """
        import torch

        rows = torch.arange(12.0).view(3, 4)
        part = rows[:, 1:]
        assert not part.is_contiguous()
        for copy in (part.to("cuda"), part.cuda(), part.to(device="cuda"), part.to(0)):
            assert torch.equal(copy.view(9), part.reshape(9))
        transposed = rows.t().cuda()
        assert transposed.stride() == (1, 4)  # dense: as it was
        weight = torch.nn.Parameter(torch.ones(2, device="cuda"))
        assert weight.to("cuda") is weight and weight.cuda() is weight
        kept = weight.detach().cpu()
        with torch.no_grad():
            weight.add_(1)
        assert kept.tolist() == [1.0, 1.0]
    """
    outcome = two_ranks.run(program, world=1)
    assert outcome.status == "ok", str(outcome)


AMP = """
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("BACKEND")
torch.manual_seed(0)
model = FSDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to("DEVICE"), device_id=ID)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
scaler = SCALER(init_scale=64.0)
rows = torch.utils.data.TensorDataset(torch.randn(24, 4).split(1)[dist.get_rank() :: 2][0].expand(12, 4))
loader = torch.utils.data.DataLoader(rows, batch_size=4, PINNED)
for (batch,) in loader:
    with AUTOCAST:
        loss = model(batch.to("DEVICE", non_blocking=True)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(loss.dtype, loss.item(), scaler.get_scale())
"""


def amp(autocast: str, scaler: str, cuda: bool) -> str:
    words = {
        "BACKEND": "nccl" if cuda else "gloo",
        "DEVICE": "cuda" if cuda else "cpu",
        "ID": "torch.cuda.current_device()" if cuda else "torch.device('cpu')",
        "PINNED": "pin_memory=True, pin_memory_device='cuda'" if cuda else "pin_memory=False",
        "AUTOCAST": autocast,
        "SCALER": scaler,
    }
    text = AMP
    for word, instead in words.items():
        text = text.replace(word, instead)
    return text


def test_autocast_and_scalers_are_those_of_the_cpu(two_ranks: TwoRanks) -> None:
    """In all spellings, with CUDA's own defaults: to the bit as a program for the CPU."""
    for spellings, dtype in (
        (("torch.cuda.amp.autocast()", "torch.autocast('cuda')"), "torch.float16"),
        (("torch.amp.autocast(device_type='cuda', dtype=torch.bfloat16)",), "torch.bfloat16"),
    ):
        plain = f"torch.autocast('cpu', dtype={dtype})"
        program = amp(plain, "torch.amp.GradScaler", cuda=False).replace(
            "init_scale", "'cpu', init_scale"
        )
        alone = two_ranks.run(program, device="cuda", parameters=True)
        assert alone.status == "ok" and alone.stdout.count(dtype) == 6, str(alone)
        for autocast in spellings:
            outcome = two_ranks.run(amp(autocast, "torch.cuda.amp.GradScaler", cuda=True))
            assert outcome.status == "ok", str(outcome)
            assert outcome.stdout == alone.stdout


def test_random_shards_are_parts_of_what_is_drawn_for_the_whole(two_ranks: TwoRanks) -> None:
    program = """
        import torch
        import torch.distributed as dist
        import torch.nn as nn
        from torch.distributed.fsdp import fully_shard

        dist.init_process_group("nccl")
        with torch.device("meta"):
            model = nn.Linear(3, 5)
        fully_shard(model)
        model.to_empty(device="cuda")
        torch.manual_seed(7)
        model.reset_parameters()
        nn.init.trunc_normal_(model.bias)
        torch.manual_seed(7)
        whole = nn.Linear(3, 5)
        nn.init.trunc_normal_(whole.bias)
        for ours, theirs in zip(model.parameters(), whole.parameters()):
            assert torch.equal(ours.full_tensor(), theirs)
    """
    outcome = two_ranks.run(program)
    assert outcome.status == "ok", str(outcome)


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


@pytest.mark.parametrize(
    ("gpus", "ranks", "shared"), [(1, 2, True), (2, 4, True), (2, 2, False), (0, 2, False)]
)
def test_ranks_share_gpus(
    gpus: int, ranks: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL takes ranks on one GPU for ranks of several machines (seen with two ranks on an H200)."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    for name in ("NCCL_HOSTID", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    before = dict(os.environ)
    try:
        assert share_gpus(ranks) is shared
        assert os.environ["LOCAL_RANK"] == str(1 % gpus if shared else 1)
        assert ("NCCL_HOSTID" in os.environ) is shared
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_weights_of_the_meta_device_are_drawn_in_the_order_of_fsdp1(two_ranks: TwoRanks) -> None:
    """The units are materialized from the inside out, also if rank 0 sends its weights."""
    outcome = two_ranks.run("""
        import torch
        import torch.distributed as dist
        import torch.nn as nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        def build(sync):
            torch.manual_seed(0)
            with torch.device("meta"):
                model = nn.Sequential(nn.Embedding(8, 4), nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 2))
            return FSDP(
                model,
                auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
                sync_module_states=sync,
                param_init_fn=initialise,
                device_id=torch.cuda.current_device(),
            )

        def initialise(module):
            module.to_empty(device="cuda", recurse=False)
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

        dist.init_process_group("nccl")
        sums = []
        for sync in (True, False):
            model = build(sync)
            with FSDP.summon_full_params(model):
                sums.append([p.sum().item() for p in model.parameters()])
        print("equal", sums[0] == sums[1])
    """)
    assert outcome.stdout.count("equal True") == 2, str(outcome)


def test_each_name_has_a_function_of_its_own(two_ranks: TwoRanks) -> None:
    """torch.compile makes a table of functions, and does not accept one under two names."""
    outcome = two_ranks.run("""
        import torch

        cuda, accelerator = torch.cuda, torch.accelerator
        functions = [cuda.current_device, accelerator.current_device_index, cuda.memory_stats]
        functions += [cuda.memory_stats_as_nested_dict, cuda.is_initialized]
        print("distinct", len(set(map(id, functions))) == len(functions))
    """)
    assert outcome.stdout.count("distinct True") == 2, str(outcome)
