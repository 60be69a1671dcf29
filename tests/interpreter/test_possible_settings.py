"""Settings files whose path is known only when the program starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

from fsdplint.interpreter import Program
from fsdplint.trace import Sharded

HEAD = """\
import argparse
import torch
import yaml
from omegaconf import OmegaConf
from torch import nn
from torch.distributed.fsdp import fully_shard
"""
READ = {
    "yaml": "config = yaml.safe_load(open(args.config))",
    "with": "with open(args.config) as file:\n    config = yaml.safe_load(file)",
    "path": "from pathlib import Path\nconfig = yaml.safe_load(Path(args.config).read_text())",
    "omegaconf": "config = OmegaConf.load(args.config)",
}
BODY = """
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4)
    def forward(self, x):
        return self.head(self.body(x))

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
args = parser.parse_args()
{read}
model = Small()
for name in config["frozen"]:
    getattr(model, name).requires_grad_(False)
trained = [p for p in model.head.parameters()]
optimizer = torch.optim.AdamW(trained, lr=config["lr"])
for name in config["units"]:
    fully_shard(getattr(model, name))
fully_shard(model)
for step in range(config["steps"]):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FITS = "lr: 0.1\nsteps: 9\nunits: [body, head]\nfrozen: [body]\n"
OTHERS = {
    "another program": "services: {web: 1}\nversion: 3\nvolumes: []\nnetworks: []\n",
    "too few keys": "lr: 0.1\nunits: [body]\n",
    "broken": "lr: [0.1\nsteps: 9\nunits: [\nfrozen: x\n",
}


def run(folder: Path, read: str, **files: str) -> Program:
    (folder / "conf").mkdir()
    for name, text in files.items():
        (folder / "conf" / f"{name}.yaml").write_text(text)
    return program(folder, BODY.format(read=read), header=HEAD)


def shardings(found: Program) -> list[Sharded]:
    return [event for trace in found.traces for event in trace.of(Sharded)]


@pytest.mark.parametrize("read", READ)
def test_the_file_that_fits_names_the_units(tmp_path: Path, read: str) -> None:
    found = run(tmp_path, READ[read], train=FITS)
    assert findings(found, "FSDP103")
    assert [event.frozen for event in shardings(found)] == [True, False, False]


@pytest.mark.parametrize("other", OTHERS)
def test_other_files_are_not_taken(tmp_path: Path, other: str) -> None:
    found = run(tmp_path, READ["yaml"], other=OTHERS[other])
    assert shardings(found) and not any(event.frozen for event in shardings(found))


def test_a_file_whose_path_the_program_names_comes_first(tmp_path: Path) -> None:
    body = BODY.format(read=READ["yaml"]) + "# python train.py --config conf/other.yaml\n"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").write_text(FITS)
    (tmp_path / "conf" / "other.yaml").write_text(FITS.replace("frozen: [body]", "frozen: [head]"))
    found = program(tmp_path, body, header=HEAD)
    assert [event.frozen for event in shardings(found)] == [False, True, False]


def test_no_settings_are_searched_for_json(tmp_path: Path) -> None:
    found = run(tmp_path, "import json\nconfig = json.load(open(args.config))", train=FITS)
    assert shardings(found) and not any(event.frozen for event in shardings(found))
