"""One program in many forms: each way to read its settings, and each way to start its processes.

The optimizer is built before the sharding, which a setting switches on. The switch, the optimizer and
the sharding are in different functions and files.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint import check

LIBRARY = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def shard(model):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    return model

def fit(model, optimizer, steps):
    for _ in range(steps):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
HEAD = """\
import sys
from dataclasses import dataclass, field
import torch
import torch.distributed as dist
from lib.core import Net, fit, shard

@dataclass
class Config:
    width: int = 8
    lr: float = 1e-3
    fsdp: bool = False
    steps: int = 10

"""
BODY = """\
dist.init_process_group("gloo")
model = Net({0}width)
optimizer = torch.optim.AdamW(model.parameters(), lr={0}lr)
if {0}fsdp:
    model = shard(model)
fit(model, optimizer, {0}steps)
"""
PARAMETERS = "width: int = 8, lr: float = 1e-3, fsdp: bool = False, steps: int = 10"


def function(head: str, prefix: str = "cfg.", first: str = "") -> str:
    return f"{head}\n" + textwrap.indent(first + BODY.format(prefix), "    ")


def reading(imports: str, get: str) -> str:
    """A program whose `main` gets its settings from an expression."""
    return f"{imports}\n{function('def main():', first=f'cfg = {get}' + chr(10))}main()\n"


def calling(imports: str, call: str, *, decorator: str = "") -> str:
    """A program whose `main` gets its settings from a library."""
    return f"{imports}\n{decorator}\n{function('def main(cfg: Config):')}{call}\n"


def by_name(imports: str, call: str, *, decorator: str = "", given: str = PARAMETERS) -> str:
    """A program whose `main` gets each setting as an argument."""
    return f"{imports}\n{decorator}\n{function(f'def main({given}):', '')}{call}\n"


def starting(imports: str, launch: str, given: str = "rank, cfg") -> str:
    """A program that runs a function in other processes."""
    worker = function(f"def worker({given}):")
    main = textwrap.indent(f"cfg = Config()\n{launch}\n", "    ")
    return f'{imports}\n{worker}def main():\n{main}if __name__ == "__main__":\n    main()\n'


OPTIONS = """\
@click.option("--width", default=8)
@click.option("--lr", default=1e-3)
@click.option("--fsdp", is_flag=True)
@click.option("--steps", default=10)"""
STORE = 'ConfigStore.instance().store(name="config", node=Config)\n'
HYDRA = "import hydra\nfrom hydra.core.config_store import ConfigStore"
ADDED = 'p.add_argument("--width"); p.add_argument("--lr", type=float); p.add_argument("--steps", type=int)'
FORMS = {
    "argparse": reading(
        f"import argparse\np = argparse.ArgumentParser(); p.add_argument('--fsdp', action='store_true')\n{ADDED}",
        "p.parse_args()",
    ),
    "HfArgumentParser": reading(
        "from transformers import HfArgumentParser",
        "HfArgumentParser(Config).parse_args_into_dataclasses()[0]",
    ),
    "HfArgumentParser of two": reading(
        "from transformers import HfArgumentParser, TrainingArguments",
        "HfArgumentParser((TrainingArguments, Config)).parse_args_into_dataclasses()[1]",
    ),
    "tyro": reading("import tyro", "tyro.cli(Config)"),
    "tyro of a function": calling("import tyro", "tyro.cli(main)"),
    "simple_parsing": reading("import simple_parsing", "simple_parsing.parse(Config)"),
    "draccus": calling("import draccus", "main()", decorator="@draccus.wrap()"),
    "pyrallis": reading("import pyrallis", "pyrallis.parse(config_class=Config)"),
    "fire with keywords": by_name(
        "import fire", "fire.Fire(lambda **kwargs: main(**kwargs))"
    ),
    "fire": by_name("import fire", "fire.Fire(main)"),
    "typer": by_name("import typer\napp = typer.Typer()", "app()", decorator="@app.command()"),
    "click": by_name(
        "import click", "main()", decorator=f"@click.command()\n{OPTIONS}", given="width, lr, fsdp, steps"
    ),
    "omegaconf": reading(
        "from omegaconf import OmegaConf",
        "OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.from_cli())",
    ),
    "jsonargparse": calling("from jsonargparse import CLI", "CLI(main)"),
    "chz": reading("import chz", "chz.entrypoint(Config)"),
    "hydra": calling(
        HYDRA, "main()", decorator=f'{STORE}@hydra.main(version_base=None, config_name="config")'
    ),
    "absl": calling(
        "from absl import app, flags\nflags.DEFINE_bool('fsdp', False, '')",
        "app.run(lambda argv: main(Config(fsdp=flags.FLAGS.fsdp)))",
    ),
    "yaml": reading(
        "import yaml\nfrom types import SimpleNamespace",
        "SimpleNamespace(**yaml.safe_load(open(sys.argv[1])))",
    ),
    "a dict with attributes": reading(
        "import json\nclass AttrDict(dict):\n    def __getattr__(self, name):\n        return self[name]",
        "AttrDict(json.load(open(sys.argv[1])))",
    ),
    "the environment": reading(
        "import os",
        "Config(fsdp=os.environ.get('FSDP') == '1')",
    ),
    "a Python file": reading(
        "import importlib.util\nspec = importlib.util.spec_from_file_location('config', sys.argv[1])\n"
        "loaded = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(loaded)",
        "loaded",
    ),
    "an object of the program": reading("", "Config(fsdp=len(sys.argv) > 1)"),
    "no caller": function("def main(cfg: Config):"),
    "a dict of functions": f"{function('def train(cfg):')}"
    "def test(cfg):\n    pass\n{'train': train, 'test': test}[sys.argv[1]](Config())\n",
    "mp.spawn": starting(
        "import torch.multiprocessing as mp", "mp.spawn(worker, args=(cfg,), nprocs=2)"
    ),
    "mp.Process": starting(
        "import torch.multiprocessing as mp",
        "for rank in range(2):\n    mp.Process(target=worker, args=(rank, cfg)).start()",
    ),
    "a context of multiprocessing": starting(
        "import multiprocessing as mp",
        "mp.get_context('spawn').Process(target=worker, kwargs=dict(rank=0, cfg=cfg)).start()",
    ),
    "elastic_launch": starting(
        "from torch.distributed.launcher.api import LaunchConfig, elastic_launch",
        "elastic_launch(LaunchConfig(1, 1, 2), worker)(0, cfg)",
    ),
    "TorchTrainer": starting(
        "from ray.train.torch import TorchTrainer",
        "TorchTrainer(worker, train_loop_config=cfg).fit()",
        given="cfg",
    ),
    "ray.remote": starting("import ray", "ray.get(ray.remote(worker).remote(0, cfg))"),
    "a pool": starting(
        "from concurrent.futures import ProcessPoolExecutor",
        "with ProcessPoolExecutor() as pool:\n    pool.submit(worker, 0, cfg).result()",
    ),
    "submitit": starting(
        "import submitit", 'submitit.AutoExecutor("logs").submit(worker, 0, cfg)'
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_finding_is_the_same_in_each_form(form: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").touch()
    (tmp_path / "lib" / "core.py").write_text(LIBRARY)
    (tmp_path / "main.py").write_text(HEAD + FORMS[form])
    compile(HEAD + FORMS[form], "main.py", "exec")
    found = [Path(one.path).name for one in check(tmp_path).findings if one.code == "FSDP103"]
    assert found == ["main.py"]
