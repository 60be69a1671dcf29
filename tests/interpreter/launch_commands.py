"""Programs that a command line starts: argparse, click, fire, hydra, typer and others.

Each has the imports, the definitions and the statement that starts it.
"""

from __future__ import annotations

COMMANDS = {
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
    "set_defaults of lists": (
        "import argparse",
        """\
def show(args):
    print(args)
def train(args):
    step(0, args=args)
""",
        """\
parser = argparse.ArgumentParser()
commands = parser.add_subparsers()
commands.add_parser("show").set_defaults(todo=[show])
commands.add_parser("train").set_defaults(todo=[train])
parser.set_defaults(todo=[show, train])
args = parser.parse_args()
for command in args.todo:
    command(args)
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
