"""Devices that a setting chooses: the CPU also where there is an accelerator."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import HEAD, plan

START = HEAD.replace('torch.cuda.set_device(local_rank)\ndist.init_process_group("nccl")\n', "")
CHOSEN = """
if os.environ["BACKEND"] == "gloo":
    device = torch.device("cpu")
elif torch.cuda.is_available():
    device = torch.device(f"cuda:{local_rank}")
    torch.cuda.set_device(device)
else:
    device = torch.device("cpu")
dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
"""
AVAILABLE = """
if torch.cuda.is_available():
    device = torch.device(f"cuda:{local_rank}")
    torch.cuda.set_device(device)
else:
    device = torch.device("cpu")
dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
"""
MESH = "init_device_mesh(device.type, (dist.get_world_size(),))"


def test_the_mesh_is_on_the_chosen_device(tmp_path: Path) -> None:
    _, text = plan(tmp_path, CHOSEN + "model = FSDP(Net(), device_id=device)\n", START)
    assert f"mesh={MESH}" in text


def test_the_device_that_is_there_needs_no_mesh(tmp_path: Path) -> None:
    _, text = plan(tmp_path, AVAILABLE + "model = FSDP(Net(), device_id=device)\n", START)
    assert "init_device_mesh" not in text and "fully_shard(Net())" in text


def test_the_device_is_set_where_it_is_one_of_cuda(tmp_path: Path) -> None:
    body = CHOSEN.replace("    torch.cuda.set_device(device)\n", "")
    _, text = plan(tmp_path, body + "model = FSDP(Net(), device_id=device)\n", START)
    assert 'if device.type == "cuda":\n    torch.cuda.set_device(device)\n' in text


@pytest.mark.parametrize(
    "strategies", ["FULL_SHARD SHARD_GRAD_OP NO_SHARD", "FULL_SHARD HYBRID_SHARD NO_SHARD"]
)
def test_a_strategy_that_is_chosen_at_run_time(strategies: str, tmp_path: Path) -> None:
    table = ", ".join(f'"{name}": ShardingStrategy.{name}' for name in strategies.split())
    body = f'strategy = {{{table}}}[os.environ["STRATEGY"]]\n'
    body += "model = FSDP(Net(), device_id=device, sharding_strategy=strategy)\n"
    _, text = plan(tmp_path, CHOSEN + body, START)
    assert "def sharding_arguments(strategy, device_type):" in text
    assert "**sharding_arguments(strategy, device.type)" in text
    assert "init_device_mesh(device_type, (dist.get_world_size(),))" in text
    assert "is_available() else" not in text


def test_a_group_of_processes(tmp_path: Path) -> None:
    body = """
model = FSDP(
    Net(), device_id=device, process_group=dist.new_group(), sharding_strategy=ShardingStrategy.NO_SHARD
)
"""
    _, text = plan(tmp_path, CHOSEN + body, START)
    assert 'mesh_of_groups(dist.new_group(), "NO_SHARD", device.type)' in text
    assert "def mesh_of_groups(group, strategy, device_type):" in text


def test_the_cpu_in_a_program_that_asks_for_cuda(tmp_path: Path) -> None:
    body = """
dist.init_process_group("gloo")
model = FSDP(Net(), device_id=torch.device("cpu"))
if torch.cuda.is_available():
    torch.cuda.empty_cache()
"""
    _, text = plan(tmp_path, body, START)
    assert 'mesh=init_device_mesh("cpu", (dist.get_world_size(),))' in text


NAMED = """
dist.init_process_group("gloo")
model = FSDP(Net(), device_id={0})
"""


def test_the_cpu_by_its_name(tmp_path: Path) -> None:
    _, text = plan(tmp_path, NAMED.format('"cpu"'), START)
    assert 'mesh=init_device_mesh("cpu", (dist.get_world_size(),))' in text
    assert "set_device" not in text


def test_the_name_of_the_device_that_is_there(tmp_path: Path) -> None:
    body = 'device = "cuda" if torch.cuda.is_available() else "cpu"\n' + NAMED.format("device")
    _, text = plan(tmp_path, body, START)
    assert "fully_shard(Net())" in text and "set_device" not in text


def test_the_name_of_a_chosen_device(tmp_path: Path) -> None:
    body = 'device = "cuda" if os.environ["GPU"] else "cpu"\n' + NAMED.format("device")
    _, text = plan(tmp_path, body, START)
    assert "init_device_mesh(torch.device(device).type, (dist.get_world_size(),))" in text


def test_the_name_of_the_device_of_a_rank(tmp_path: Path) -> None:
    body = NAMED.format("f\"cuda:{os.environ['LOCAL_RANK']}\"")
    _, text = plan(tmp_path, body, START)
    assert "torch.cuda.set_device(f\"cuda:{os.environ['LOCAL_RANK']}\")" in text


def test_a_device_of_an_unknown_type(tmp_path: Path) -> None:
    body = """
backend = os.environ["BACKEND"]
dist.init_process_group(backend)
model = FSDP(Net(), device_id=torch.device(os.environ["DEVICE"]))
"""
    _, text = plan(tmp_path, body, START)
    assert (
        'if torch.device(os.environ["DEVICE"]).type == "cuda":\n    torch.cuda.set_device(' in text
    )
    assert "init_device_mesh(\n" in text or "init_device_mesh(torch.device(" in text


def test_a_device_of_an_unknown_type_with_nccl(tmp_path: Path) -> None:
    body = """
dist.init_process_group("nccl")
model = FSDP(Net(), device_id=torch.device(os.environ["DEVICE"]))
"""
    _, text = plan(tmp_path, body, START)
    assert '\ntorch.cuda.set_device(torch.device(os.environ["DEVICE"]))\n' in text
    assert "init_device_mesh" not in text
