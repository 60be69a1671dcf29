"""The check of a whole directory reaches each site that the check of one of its files reaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.operations import check_files
from fsdplint.engine.session import Session

TRAINER = """\
import torch
from torch.distributed.fsdp import fully_shard


class Base:
    def __init__(self, model):
        self.model = model

    def run(self):
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.train()


class Trainer(Base):
    def train(self):
        self.model(torch.ones(2)).sum().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        torch.save(self.model.state_dict(), "a.pt")
"""
FUNCTIONS = """\
import torch
from torch.distributed.fsdp import fully_shard


def sharded(model):
    fully_shard(model)
    return model


def save(model, path):
    torch.save(model.state_dict(), path)
"""
MODEL = "import torch\n\n\ndef build():\n    return torch.nn.Linear(2, 2)\n"
STEP = "model(torch.ones(2)).sum().backward()\n"
STEPS = "optimizer = torch.optim.AdamW(model.parameters())\n" + STEP + "optimizer.step()\n"
ENTRY = "import torch\n{}\nmodel = torch.nn.Linear(2, 2)\n"
TEST = (
    "from lib import sharded, save\nfrom model import build\n\n\n"
    "def test_it():\n    save(sharded(build()), 'b')\n"
)
PROJECTS = {
    "a class chosen by name": {
        "package/__init__.py": "",
        "package/trainers.py": TRAINER,
        "launch.py": ENTRY.format("import sys\nfrom package import trainers")
        + "getattr(trainers, sys.argv[1])(model).run()\n",
    },
    "a module imported by name": {
        "trainers.py": TRAINER,
        "launch.py": ENTRY.format("import importlib")
        + "importlib.import_module('trainers').Trainer(model).run()\n",
    },
    "a module of another folder": {
        "core/trainers.py": TRAINER,
        "scripts/launch.py": ENTRY.format("from trainers import Trainer")
        + "Trainer(model).run()\n",
    },
    "a registry": {
        "registry.py": "TRAINERS = {}\n\n\ndef register(cls):\n"
        "    TRAINERS[cls.__name__] = cls\n    return cls\n",
        "trainers.py": TRAINER.replace(
            "class Trainer", "from registry import register\n\n\n@register\nclass Trainer"
        ),
        "launch.py": ENTRY.format("import sys\nimport trainers\nfrom registry import TRAINERS")
        + "TRAINERS[sys.argv[1]](model).run()\n",
    },
    "programs with a common library": {
        "lib.py": FUNCTIONS,
        "model.py": MODEL,
        "one.py": "import torch\nfrom lib import sharded\nfrom model import build\n"
        "model = sharded(build())\n" + STEPS,
        "two.py": "from lib import sharded, save\nfrom model import build\n"
        "model = sharded(build())\nsave(model, 'a')\n",
    },
    "a program far from the code that shards": {
        "lib.py": FUNCTIONS,
        **{
            f"level{number}.py": f"from {below} import wrap as inner\n\n\n"
            "def wrap(model):\n    return inner(model)\n"
            for number, below in enumerate(["level0", "level1", "level2", "level3"], 1)
        },
        "level0.py": "from lib import sharded\n\n\ndef wrap(model):\n    return sharded(model)\n",
        "train.py": ENTRY.format("from level4 import wrap") + "model = wrap(model)\n" + STEPS,
    },
    "a test of the code": {"lib.py": FUNCTIONS, "model.py": MODEL, "tests/test_lib.py": TEST},
    "a method that another file's class inherits": {
        "trainers.py": TRAINER,
        "own.py": "import trainers\n\n\nclass Own(trainers.Trainer):\n    pass\n",
        "main.py": ENTRY.format("import own") + "own.Own(model).run()\n",
    },
    "a settings file": {
        "accelerate.yaml": "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n",
        "train.py": "import torch\nfrom model import build\n"
        "from accelerate import Accelerator, FullyShardedDataParallelPlugin\n"
        "accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())\n"
        "model = accelerator.prepare(build())\n" + STEPS,
        "model.py": MODEL,
    },
}


def covered(path: Path) -> set[tuple[str, int, int]]:
    """The places of the sites that a check covers."""
    sites = check_files(Session([path])).coverage
    return {(site.at.path, site.at.line, site.at.column) for site in sites if site.covered}


@pytest.mark.parametrize("files", PROJECTS.values(), ids=PROJECTS)
def test_a_directory_covers_what_each_file_alone_covers(
    files: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'p'\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    alone = [covered(tmp_path / name) for name in files]
    assert any(alone)
    assert set().union(*alone) - covered(tmp_path) == set()
