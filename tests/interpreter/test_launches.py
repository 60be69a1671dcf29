"""Functions that launchers, processes and command lines call."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import events, findings

from fsdplint.interpreter import Program, load
from fsdplint.trace import Sharded

HEAD = """\
import functools
import multiprocessing
import sys
import torch
from torch import nn
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard
{imports}

def step(rank, world_size=2, args=None, *rest, **kw):
    model = nn.Linear(8, 8)
    {body}
    model(torch.randn(2, 8)).sum().backward()
    optimizer.step()

{definitions}

if __name__ == "__main__":
{start}
"""
BAD = "optimizer = torch.optim.Adam(model.parameters())\n    fully_shard(model)"
GOOD = "fully_shard(model)\n    optimizer = torch.optim.Adam(model.parameters())"

# Imports, definitions, and the statements that start the program.
STARTS = {
    "plain": ("", "", "step(0)"),
    "mp.spawn": ("", "", "mp.spawn(step, args=(2,), nprocs=2, join=True)"),
    "mp.spawn kw": ("", "", "mp.spawn(fn=step, args=(2, None), nprocs=2)"),
    "mp.spawn starargs": (
        "",
        "",
        """\
a=(2,)
mp.spawn(step, a, nprocs=2)
""",
    ),
    "mp.spawn lambda": ("", "", "mp.spawn(lambda r: step(r), nprocs=2)"),
    "mp.spawn partial": ("", "", "mp.spawn(functools.partial(step, world_size=2), nprocs=2)"),
    "torch.mp.spawn": ("", "", "torch.multiprocessing.spawn(step, args=(2,), nprocs=2)"),
    "start_processes": (
        "",
        "",
        "mp.start_processes(step, args=(2,), nprocs=2, start_method='spawn')",
    ),
    "from spawn": (
        "from torch.multiprocessing import spawn",
        "",
        "spawn(step, args=(2,), nprocs=2)",
    ),
    "spawn method": (
        "",
        """\
class T:
    def run(self, rank):
        step(rank)
""",
        "mp.spawn(T().run, nprocs=2)",
    ),
    "spawn callable instance": (
        "",
        """\
class T:
    def __call__(self, rank):
        step(rank)
""",
        "mp.spawn(T(), nprocs=2)",
    ),
    "Process": (
        "",
        "",
        """\
p = mp.Process(target=step, args=(0, 2))
p.start()
p.join()
""",
    ),
    "Process kwargs": (
        "",
        "",
        """\
p = mp.Process(target=step, kwargs=dict(rank=0))
p.start()
""",
    ),
    "Process loop": (
        "",
        "",
        """\
ps = []
for rank in range(2):
    p = mp.Process(target=step, args=(rank, 2))
    p.start()
    ps.append(p)
for p in ps:
    p.join()
""",
    ),
    "Process python": (
        "",
        "",
        """\
p = multiprocessing.Process(target=step, args=(0, 2))
p.start()
""",
    ),
    "Process context": (
        "",
        "",
        """\
ctx = mp.get_context('spawn')
p = ctx.Process(target=step, args=(0, 2))
p.start()
""",
    ),
    "Thread": (
        "import threading",
        "",
        """\
t = threading.Thread(target=step, args=(0,))
t.start()
""",
    ),
    "set_defaults": (
        "import argparse",
        "",
        """\
parser = argparse.ArgumentParser()
parser.set_defaults(run=step)
args = parser.parse_args()
args.run(0, args=args)
""",
    ),
    "set_defaults of commands": (
        "import argparse",
        """\
def show(args):
    print(args)
def train(args):
    step(0, args=args)
""",
        """\
parser = argparse.ArgumentParser()
commands = parser.add_subparsers(required=True)
commands.add_parser("show").set_defaults(func=show)
commands.add_parser("train").set_defaults(func=train)
args = parser.parse_args()
args.func(args)
""",
    ),
    "set_defaults getattr": (
        "import argparse",
        "",
        """\
parser = argparse.ArgumentParser()
parser.set_defaults(run=step)
getattr(parser.parse_args(), "run")(0)
""",
    ),
    "simple_parsing.ArgumentParser": (
        "from dataclasses import dataclass\nfrom simple_parsing import ArgumentParser",
        """\
@dataclass
class Options:
    lr: float = 0.1
    def run(self):
        step(0, args=self)
""",
        """\
parser = ArgumentParser()
parser.add_arguments(Options, dest="options")
args = parser.parse_args()
args.options.run()
""",
    ),
    "pyrallis.wrap": (
        "from dataclasses import dataclass\nimport pyrallis",
        """\
@dataclass
class Options:
    lr: float = 0.1
    def run(self):
        step(0, args=self)
@pyrallis.wrap()
def main(options: Options):
    options.run()
""",
        "main()",
    ),
    "fastcore": (
        "from fastcore.script import call_parse",
        """\
@call_parse()
def main(a: int = 1, b: int = 2):
    step(a)
""",
        "print(1)",
    ),
    "fastcore bare": (
        "from fastcore.all import call_parse",
        """\
@call_parse
def main(a: int = 1, b: int = 2):
    step(a)
""",
        "print(1)",
    ),
    "elastic_launch": (
        "from torch.distributed.launcher.api import elastic_launch, LaunchConfig",
        "",
        "elastic_launch(LaunchConfig(1, 1, 2), step)(0, 2)",
    ),
    "elastic_launch kw": (
        "from torch.distributed.launcher.api import elastic_launch, LaunchConfig",
        "",
        "elastic_launch(config=LaunchConfig(1, 1, 2), entrypoint=step)(0, 2)",
    ),
    "launcher pkg": (
        "import torch.distributed.launcher as pet",
        "",
        "pet.elastic_launch(pet.LaunchConfig(1, 1, 2), entrypoint=step)(0, 2)",
    ),
    "launch_agent": (
        "from torch.distributed.launcher.api import launch_agent, LaunchConfig",
        "",
        "launch_agent(LaunchConfig(1, 1, 2), step, [0, 2])",
    ),
    "notebook_launcher": (
        "from accelerate import notebook_launcher",
        "",
        "notebook_launcher(step, (0, 2), num_processes=2)",
    ),
    "ray": (
        """\
from ray.train.torch import TorchTrainer
from ray.train import ScalingConfig
""",
        "",
        """\
trainer = TorchTrainer(train_loop_per_worker=step, train_loop_config={'a': 1}, scaling_config=ScalingConfig(num_workers=2))
trainer.fit()
""",
    ),
    "ray pos": (
        "import ray.train.torch",
        "",
        "ray.train.torch.TorchTrainer(step, scaling_config=None).fit()",
    ),
    "ray.remote": (
        "import ray",
        """\
@ray.remote(num_gpus=1)
def work(r):
    step(r)
""",
        "ray.get([work.remote(r) for r in range(2)])",
    ),
    "ray.remote plain": (
        "import ray",
        """\
@ray.remote
def work(r):
    step(r)
""",
        "ray.get([work.remote(r) for r in range(2)])",
    ),
    "ray.remote class": (
        "import ray",
        """\
@ray.remote
class W:
    def __init__(self, r):
        self.r = r
    def train(self):
        step(self.r)
""",
        """\
ws = [W.remote(r) for r in range(2)]
ray.get([w.train.remote() for w in ws])
""",
    ),
    "ray.remote call": (
        "import ray",
        "",
        """\
f = ray.remote(step)
ray.get(f.remote(0))
""",
    ),
    "ray.remote options": (
        "import ray",
        """\
@ray.remote
def work(r):
    step(r)
""",
        "ray.get(work.options(num_gpus=1).remote(0))",
    ),
    "fire": ("import fire", "", "fire.Fire(step)"),
    "fire from": ("from fire import Fire", "", "Fire(step)"),
    "fire class": (
        "import fire",
        """\
class C:
    def __init__(self, a=1):
        self.a = a
    def train(self):
        step(self.a)
""",
        "fire.Fire(C)",
    ),
    "fire instance": (
        "import fire",
        """\
class C:
    def __init__(self, a=1):
        self.a = a
    def train(self):
        step(self.a)
""",
        "fire.Fire(C())",
    ),
    "fire dict": ("import fire", "", "fire.Fire({'train': step})"),
    "fire none": ("import fire", "", "fire.Fire()"),
    "typer app": (
        """\
import typer
app = typer.Typer()
""",
        """\
@app.command()
def main(a: int = 1, fsdp: bool = True):
    if fsdp:
        step(a)
""",
        "app()",
    ),
    "typer app name": (
        """\
import typer
app = typer.Typer()
""",
        """\
@app.command('train')
def main(a: int = typer.Option(1)):
    step(a)
@app.command('other')
def other():
    pass
""",
        "app()",
    ),
    "typer.run": (
        "import typer",
        """\
def main(a: int = 1, fsdp: bool = False):
    if fsdp:
        step(a)
""",
        "typer.run(main)",
    ),
    "click": (
        "import click",
        """\
@click.command()
@click.option('--a', default=1)
@click.option('--fsdp/--no-fsdp', default=False)
def main(a, fsdp):
    if fsdp:
        step(a)
""",
        "main()",
    ),
    "click group": (
        "import click",
        """\
@click.group()
def cli():
    pass
@cli.command()
@click.option('--a', default=1)
def train(a):
    step(a)
""",
        "cli()",
    ),
    "click standalone": (
        "import click",
        """\
@click.command()
@click.option('--a', default=1)
def main(a):
    step(a)
""",
        "main(standalone_mode=False)",
    ),
    "hydra": (
        "import hydra",
        """\
@hydra.main(config_path='conf', config_name='c', version_base=None)
def main(cfg):
    if cfg.fsdp:
        step(cfg.a)
""",
        "main()",
    ),
    "hydra two": (
        """\
import hydra
from omegaconf import DictConfig, OmegaConf
""",
        """\
@hydra.main(version_base=None)
def main(cfg: DictConfig) -> None:
    c = OmegaConf.to_container(cfg, resolve=True)
    if c['fsdp']:
        step(c['a'])
""",
        "main()",
    ),
    "tyro fn": (
        "import tyro",
        """\
def main(a: int = 1, fsdp: bool = False):
    if fsdp:
        step(a)
""",
        "tyro.cli(main)",
    ),
    "tyro dataclass": (
        """\
import tyro
from dataclasses import dataclass
""",
        """\
@dataclass
class A:
    a: int = 1
    fsdp: bool = False
def main(args):
    if args.fsdp:
        step(args.a)
""",
        "main(tyro.cli(A))",
    ),
    "tyro dataclass method": (
        """\
import tyro
from dataclasses import dataclass
""",
        """\
@dataclass
class A:
    a: int = 1
    def run(self):
        step(self.a)
""",
        "tyro.cli(A).run()",
    ),
    "hf parser": (
        """\
from transformers import HfArgumentParser
from dataclasses import dataclass
""",
        """\
@dataclass
class A:
    a: int = 1
    fsdp: bool = False
    def go(self):
        step(self.a)
""",
        """\
p = HfArgumentParser((A, A))
x, y = p.parse_args_into_dataclasses()
if x.fsdp:
    x.go()
""",
    ),
    "hf parser one": (
        """\
import transformers
from dataclasses import dataclass
""",
        """\
@dataclass
class A:
    a: int = 1
    fsdp: bool = False
    def go(self):
        step(self.a)
""",
        """\
p = transformers.HfArgumentParser(A)
x = p.parse_args_into_dataclasses()[0]
if x.fsdp:
    x.go()
""",
    ),
    "hf parser trl": (
        """\
from trl import TrlParser
from dataclasses import dataclass
""",
        """\
@dataclass
class A:
    a: int = 1
    def go(self):
        step(self.a)
""",
        """\
p = TrlParser((A,))
x, = p.parse_args_and_config()
x.go()
""",
    ),
    "simple_parsing": (
        """\
import simple_parsing
from dataclasses import dataclass
""",
        """\
@dataclass
class A:
    a: int = 1
    fsdp: bool = False
    def go(self):
        step(self.a)
""",
        "simple_parsing.parse(A).go()",
    ),
    "jsonargparse": ("from jsonargparse import CLI", "", "CLI(step)"),
    "jsonargparse auto_cli": (
        "from jsonargparse import auto_cli",
        """\
def main(a: int = 1, fsdp: bool = False):
    if fsdp:
        step(a)
""",
        "auto_cli(main)",
    ),
    "jsonargparse class": (
        "from jsonargparse import auto_cli",
        """\
class C:
    def __init__(self, a: int = 1):
        self.a = a
    def fit(self):
        step(self.a)
""",
        "auto_cli(C)",
    ),
    "draccus": (
        """\
import draccus
from dataclasses import dataclass
""",
        """\
@dataclass
class A:
    a: int = 1
    fsdp: bool = False
@draccus.wrap()
def main(cfg: A):
    if cfg.fsdp:
        step(cfg.a)
""",
        "main()",
    ),
    "chz": ("import chz", "", "chz.nested_entrypoint(step)"),
    "absl": (
        "from absl import app",
        """\
def main(argv):
    step(0)
""",
        "app.run(main)",
    ),
    "accelerate launch": (
        "from accelerate import debug_launcher",
        "",
        "debug_launcher(step, (0,))",
    ),
    "instantiate": (
        """\
import hydra
from omegaconf import OmegaConf
""",
        "",
        "hydra.utils.instantiate({'_target_': '__main__.step', 'rank': 0})",
    ),
    "sys.exit(main())": (
        "",
        """\
def main():
    step(0)
""",
        "sys.exit(main())",
    ),
    "record": (
        "from torch.distributed.elastic.multiprocessing.errors import record",
        """\
@record
def main():
    step(0)
""",
        "main()",
    ),
}


def started(folder: Path, start: str, body: str) -> Program:
    imports, definitions, call = STARTS[start]
    main = folder / "main.py"
    main.write_text(
        HEAD.format(
            imports=imports, definitions=definitions, body=body, start=textwrap.indent(call, "    ")
        )
    )
    return load([main])


@pytest.mark.parametrize("start", STARTS)
def test_a_defect_is_found_however_the_program_starts(tmp_path: Path, start: str) -> None:
    found = started(tmp_path, start, BAD)
    assert len(findings(found, "FSDP103")) == 1
    in_program = [event for trace in found.traces if trace.entry for event in trace.of(Sharded)]
    assert any(not event.callbacks for event in in_program)


@pytest.mark.parametrize("start", STARTS)
def test_a_good_program_stays_silent(tmp_path: Path, start: str) -> None:
    found = started(tmp_path, start, GOOD)
    assert findings(found, "FSDP103") == []
    assert list(events(found, Sharded))
