"""The device that a migrated program sets for its model."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import HEAD, plan

NO_DEVICE = HEAD.replace("torch.cuda.set_device(local_rank)\n", "")


def test_the_device_is_set_where_the_program_does_not(tmp_path: Path) -> None:
    _, text = plan(tmp_path, "model = FSDP(Net(), device_id=local_rank)\n", NO_DEVICE)
    assert text.endswith("model = Net()\ntorch.cuda.set_device(local_rank)\nfully_shard(model)\n")


def test_the_device_is_set_where_there_is_one(tmp_path: Path) -> None:
    body = """
        device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
        model = Net()
        model = FSDP(model, device_id=device)
    """
    _, text = plan(tmp_path, body, NO_DEVICE.replace('"nccl"', ""))
    assert text.endswith(
        "model = Net()\nif torch.cuda.is_available():\n    torch.cuda.set_device(device)\n"
        "fully_shard(model)\n"
    )


def test_the_device_is_set_without_a_test_where_a_group_needs_one(tmp_path: Path) -> None:
    body = """
        device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
        model = FSDP(Net(), device_id=device)
    """
    assert 'init_process_group("nccl")' in NO_DEVICE
    _, text = plan(tmp_path, body, NO_DEVICE)
    assert text.endswith("model = Net()\ntorch.cuda.set_device(device)\nfully_shard(model)\n")


DEVICE = "torch.cuda.set_device({})\n"
MOVED = {
    "in the argument": (
        "model = FSDP(Net().to(local_rank))\n",
        "model = Net().to(local_rank)\n" + DEVICE.format("local_rank") + "fully_shard(model)\n",
    ),
    "before": (
        "model = Net().cuda(local_rank)\nprint(model)\nmodel = FSDP(model)\n",
        "print(model)\n" + DEVICE.format("local_rank") + "fully_shard(model)\n",
    ),
    "in a statement of its own, to a device with a name": (
        'device = torch.device(f"cuda:{local_rank}")\nmodel = Net()\nmodel.to(device)\n'
        "if local_rank >= 0:\n    model = FSDP(model)\n",
        "    " + DEVICE.format("device") + "    fully_shard(model)\n",
    ),
    "an attribute": (
        "class Trainer:\n    def __init__(self):\n        self.model = Net().to(local_rank)\n"
        "        self.model = FSDP(self.model)\n\n\nTrainer()\n",
        "        "
        + DEVICE.format("local_rank")
        + "        fully_shard(self.model)\n\n\nTrainer()\n",
    ),
}


@pytest.mark.parametrize(("body", "end"), list(MOVED.values()), ids=list(MOVED))
def test_the_device_of_the_model_is_set(body: str, end: str, tmp_path: Path) -> None:
    found, text = plan(tmp_path, body, NO_DEVICE)
    assert not found.blockers
    assert text.endswith(end)


NOT_MOVED = {
    "no index": 'model = FSDP(Net().to("cuda"))\n',
    "another model": "other = Net().to(local_rank)\nmodel = Net()\nmodel = FSDP(model)\n",
    "another model afterwards": (
        "model = Net().to(local_rank)\nif local_rank:\n    model = Net()\nmodel = FSDP(model)\n"
    ),
    "a dtype": "model = Net().to(torch.bfloat16)\nmodel = FSDP(model)\n",
    "a device that changes": (
        "model = Net().to(local_rank)\nlocal_rank = 0\nmodel = FSDP(model)\n"
    ),
}


@pytest.mark.parametrize("body", list(NOT_MOVED.values()), ids=list(NOT_MOVED))
def test_a_model_without_a_certain_device_blocks(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, body, NO_DEVICE)
    assert "which device is this rank's" in found.blockers[0].reason


def test_no_device_at_all_blocks(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, "model = FSDP(Net())\n", NO_DEVICE)
    assert "which device is this rank's" in found.blockers[0].reason


def test_one_rank_needs_no_device(tmp_path: Path) -> None:
    alone = NO_DEVICE.replace('"nccl")', '"nccl", world_size=1, rank=0)')
    found, text = plan(tmp_path, "model = FSDP(Net())\n", alone)
    assert not found.blockers
    assert text.endswith("model = fully_shard(Net())\n")


ACCELERATORS = {
    "an object of a type": ('torch.device("xpu", local_rank)', "xpu"),
    "an object of a name": ('torch.device("hpu:0")', "hpu"),
}


@pytest.mark.parametrize(("device", "kind"), ACCELERATORS.values(), ids=ACCELERATORS)
def test_another_accelerator_is_set(device: str, kind: str, tmp_path: Path) -> None:
    body = f"device = {device}\nmodel = FSDP(Net(), device_id=device)\n"
    found, text = plan(tmp_path, body, NO_DEVICE.replace('"nccl"', ""))
    assert not found.blockers
    assert f"torch.{kind}.set_device(device)\n" in text
    assert "cuda" not in text


def test_an_accelerator_without_an_index_is_not_set(tmp_path: Path) -> None:
    body = 'model = FSDP(Net(), device_id=torch.device("xpu"))\n'
    _, text = plan(tmp_path, body, NO_DEVICE.replace('"nccl"', ""))
    assert "set_device" not in text


WITHOUT_MESH = {
    "the argument": "model = FSDP(Net(), device_id=torch.device('mps:0'))\n",
    "a choice without CUDA": (
        "device = torch.device('mps' if torch.backends.mps.is_available() else 'cpu')\n"
        "model = FSDP(Net(), device_id=device)\n"
    ),
    "a variable": "device = torch.device('mps')\nmodel = FSDP(Net(), device_id=device)\n",
}


@pytest.mark.parametrize("body", WITHOUT_MESH.values(), ids=WITHOUT_MESH)
def test_an_accelerator_without_a_mesh_blocks(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, body, NO_DEVICE.replace('"nccl"', ""))
    assert [one.code for one in found.blockers] == ["FSDP201-device-without-mesh"]


CHOICES = {
    "two": """
        if torch.cuda.is_available():
            device = torch.device("cuda", local_rank)
        else:
            device = torch.device("mps")
    """,
    "three": """
        if torch.cuda.is_available():
            device = torch.device("cuda", local_rank)
        elif torch.backends.mps.is_available():
            device = torch.device("mps")
        else:
            device = torch.device("cpu")
    """,
}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_the_device_is_set_where_the_choice_falls_on_cuda(choice: str, tmp_path: Path) -> None:
    body = textwrap.dedent(choice) + "model = FSDP(Net(), device_id=device)\n"
    found, text = plan(tmp_path, body, NO_DEVICE.replace('"nccl"', ""))
    assert not found.blockers
    assert "if torch.cuda.is_available():\n    torch.cuda.set_device(device)\n" in text


def test_a_backend_that_another_test_chose_is_no_difference(tmp_path: Path) -> None:
    body = """
        gpu = torch.cuda.is_available()
        dist.init_process_group("nccl" if gpu else "gloo")
        device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if gpu else "cpu")
        if gpu:
            torch.cuda.set_device(device)
        model = FSDP(Net(), device_id=device)
        model(torch.ones(2, 8)).sum().backward()
    """
    head = NO_DEVICE.replace('dist.init_process_group("nccl")\n', "")
    assert "init_process_group" not in head
    found, text = plan(tmp_path, textwrap.dedent(body), head)
    assert not found.blockers
    assert "model = fully_shard(Net())" in text
