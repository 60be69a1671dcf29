"""Files of which each rank has its part, and what it reads in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_batches import undecided

FILES = "import glob\nimport json\nfiles = sorted(glob.glob('*.pt'))\n"
PART = "part = files[dist.get_rank()::dist.get_world_size()]\n"
READS = [
    "torch.load(file)",
    "torch.load(file)['x']",
    "torch.tensor(json.loads(next(open(file))))",
    "torch.tensor(json.load(open(file)))",
]
LOOP = "for file in {files}:\n    batch = {read}\n    if batch.sum() > 3:\n        dist.barrier()\n"
DATASET = """\
class Rows(torch.utils.data.IterableDataset):
    def __init__(self, files):
        self.files = files

    def __iter__(self):
        for file in {visited}:
            yield {read}

for batch in DataLoader(Rows({files})):
    if batch.sum() > 3:
        dist.barrier()
"""
BY_INDEX = """\
class Rows(torch.utils.data.Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return {read}

for batch in DataLoader(Rows({files})):
    if batch.sum() > 3:
        dist.barrier()
"""


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(("files", "found"), [("part", True), ("files", False)])
def test_files_of_the_rank(tmp_path: Path, read: str, files: str, found: bool) -> None:
    body = FILES + PART + LOOP.format(files=files, read=read)
    assert undecided(tmp_path, body) == ["batch.sum() > 3"] * found


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(("files", "found"), [("part", True), ("files", False)])
def test_a_dataset_of_files_of_the_rank(tmp_path: Path, read: str, files: str, found: bool) -> None:
    stream = DATASET.format(visited="self.files", files=files, read=read)
    by_index = BY_INDEX.format(files=files, read=read.replace("file", "self.files[index]"))
    for dataset in (stream, by_index):
        assert undecided(tmp_path, FILES + PART + dataset) == ["batch.sum() > 3"] * found


def test_a_dataset_that_does_not_give_what_it_holds(tmp_path: Path) -> None:
    body = DATASET.format(visited="range(3)", files="part", read="torch.ones(4)")
    assert undecided(tmp_path, FILES + PART + body) == []


def test_a_checkpoint_whose_name_has_the_rank(tmp_path: Path) -> None:
    body = "state = torch.load(f'state_{dist.get_rank()}.pt')\n"
    body += "if state['step'] > 3:\n    dist.barrier()\n"
    assert undecided(tmp_path, body) == []
