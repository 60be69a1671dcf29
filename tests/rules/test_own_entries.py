"""FSDP329 and FSDP331: values of each rank's own that all ranks write under one key, or to one file."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

CODE = """
import random
import time
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Linear(4, 4)
fully_shard(model)
{before}
dcp.save({state}, checkpoint_id={path})
"""
CLASS = """
class Stream:
    def __init__(self, reader):
        self.reader, self.count = reader, 0
    def state_dict(self):
        return {{"at": {{"reader": self.reader}}, "count": self.count}}
    def load_state_dict(self, state):
        self.reader = state["at"]["reader"]
stream = Stream({number})
"""
MODEL = '"model": model.state_dict()'
BAD = {
    "rank": ("", f'{{{MODEL}, "rank": rank}}'),
    "computed": ("", f'{{{MODEL}, "seed": 7 + 10 * rank}}'),
    "position in a mesh": (
        "mesh = init_device_mesh('cpu', (2, 2), mesh_dim_names=('dp', 'tp'))",
        f'{{{MODEL}, "place": mesh["dp"].get_local_rank()}}',
    ),
    "state of an object": (
        CLASS.format(number="rank"),
        f'{{{MODEL}, "data": stream.state_dict()}}',
    ),
    "object with a state": (CLASS.format(number="rank"), f'{{{MODEL}, "data": stream}}'),
    "random numbers": (
        "numbers = random.Random(rank)",
        f'{{{MODEL}, "next": numbers.random()}}',
    ),
    "list": ("", f'{{{MODEL}, "places": [rank, 3]}}'),
    "random state": (
        "torch.manual_seed(1 + rank)",
        f'{{{MODEL}, "random": torch.get_rng_state()}}',
    ),
    "random state of Python": (
        "random.seed(1 + rank)",
        f'{{{MODEL}, "random": random.getstate()}}',
    ),
    "bytes": (
        "import pickle\ntorch.manual_seed(1 + rank)",
        f'{{{MODEL}, "random": pickle.dumps({{"torch": torch.get_rng_state()}})}}',
    ),
}
GOOD = {
    "rank in the key": ("", f'{{{MODEL}, f"rank{{rank}}": rank}}'),
    "gathered": (
        "all = [None] * 2\ndist.all_gather_object(all, rank)",
        f'{{{MODEL}, "all": all}}',
    ),
    "same number": ("", f'{{{MODEL}, "step": 3, "name": "run"}}'),
    "object of all ranks": (CLASS.format(number="3"), f'{{{MODEL}, "data": stream}}'),
    "time": ("", f'{{{MODEL}, "time": time.time()}}'),
    "number of ranks": ("", f'{{{MODEL}, "ranks": dist.get_world_size()}}'),
    "random state of one seed": (
        "torch.manual_seed(7)",
        f'{{{MODEL}, "random": torch.get_rng_state()}}',
    ),
    "loss": (
        "data = torch.randn(8, 4, generator=torch.Generator().manual_seed(rank))\n"
        "loss = model(data).square().mean()",
        f'{{{MODEL}, "loss": loss.item(), "tensor": loss.detach()}}',
    ),
    "metric": (
        "data = torch.randn(8, 4, generator=torch.Generator().manual_seed(rank))",
        f'{{{MODEL}, "largest": float(data.max())}}',
    ),
    "device": ("", f'{{{MODEL}, "device": torch.device("cpu")}}'),
}


PLAIN = {
    "outputs": (
        "data = torch.randn(8, 4, generator=torch.Generator().manual_seed(rank))",
        "{'outputs': model(data).detach().cpu()}",
    ),
    "list of outputs": (
        "data = torch.randn(8, 4, generator=torch.Generator().manual_seed(rank))",
        "[model(data)]",
    ),
    "number of the rank": ("", "rank"),
    "rank in the key": ("", "{f'rank{rank}': rank}"),
}
IN_FILES = {name: case for name, case in BAD.items() if name != "object with a state"} | PLAIN


def _found(tmp_path: Path, before: str, state: str, path: str = "'a'") -> bool:
    code = CODE.format(before=before, state=state, path=path)
    return bool(findings(program(tmp_path, code), "FSDP329"))


@pytest.mark.parametrize("case", BAD)
def test_a_value_of_the_rank_is_found(tmp_path: Path, case: str) -> None:
    assert _found(tmp_path, *BAD[case])


@pytest.mark.parametrize("case", GOOD)
def test_a_value_of_all_ranks_is_fine(tmp_path: Path, case: str) -> None:
    assert not _found(tmp_path, *GOOD[case])


@pytest.mark.parametrize("case", BAD)
def test_a_folder_for_each_rank_is_fine(tmp_path: Path, case: str) -> None:
    assert not _found(tmp_path, *BAD[case], path="f'a/{rank}'")


def _found_in_file(tmp_path: Path, before: str, content: str, path: str = "'a'") -> bool:
    code = CODE.format(before=before, state=content, path=path)
    code = code.replace("dcp.save(", "torch.save(").replace("checkpoint_id=", "")
    assert "torch.save(" in code
    return bool(findings(program(tmp_path, code), "FSDP331"))


@pytest.mark.parametrize("case", IN_FILES)
def test_own_values_in_one_file(tmp_path: Path, case: str) -> None:
    assert _found_in_file(tmp_path, *IN_FILES[case])


@pytest.mark.parametrize("case", sorted(GOOD.keys() - {"rank in the key"}))
def test_a_file_with_the_values_of_all_ranks_is_fine(tmp_path: Path, case: str) -> None:
    assert not _found_in_file(tmp_path, *GOOD[case])


@pytest.mark.parametrize("case", IN_FILES)
def test_a_file_for_each_rank_is_fine(tmp_path: Path, case: str) -> None:
    assert not _found_in_file(tmp_path, *IN_FILES[case], path="f'a/{rank}'")


FILES_OF_PROCESSES = {
    "buffer": "io.BytesIO()",
    "temporary file": "tempfile.NamedTemporaryFile()",
    "name of a temporary file": "tempfile.NamedTemporaryFile().name",
    "temporary folder": "tempfile.mkdtemp() + '/a.pt'",
    "joined to a temporary folder": "os.path.join(tempfile.mkdtemp(), 'a.pt')",
    "unique name": "f'{uuid.uuid4()}.pt'",
    "unique digits": "'a' + uuid.uuid4().hex",
}


@pytest.mark.parametrize("case", FILES_OF_PROCESSES)
def test_a_file_of_each_process_is_fine(tmp_path: Path, case: str) -> None:
    before = (
        "import io, os, tempfile, uuid\n"
        "data = torch.randn(8, 4, generator=torch.Generator().manual_seed(rank))"
    )
    path = FILES_OF_PROCESSES[case]
    assert not _found_in_file(tmp_path, before, "[model(data)]", path=path)


def test_a_folder_in_which_each_rank_works_is_fine(tmp_path: Path) -> None:
    data = "data = torch.randn(8, 4, generator=torch.Generator().manual_seed(rank))\n"
    own, same = (f"import os\n{data}os.chdir({folder})" for folder in ("f'a/{rank}'", "'a'"))
    assert not _found_in_file(tmp_path, own, "[model(data)]")
    assert _found_in_file(tmp_path, same, "[model(data)]")


def test_a_file_of_each_host_is_fine(tmp_path: Path) -> None:
    before = (
        "import socket\ndata = torch.randn(8, 4, generator=torch.Generator().manual_seed(rank))"
    )
    path = "f'{socket.gethostname()}.pt'"
    assert not _found_in_file(tmp_path, before, "[model(data)]", path=path)
