"""Programs that find the code of FSDP by a value, so that no import leads to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint import check
from fsdplint.discovery.names_by_value import Lookup, lookups
from fsdplint.discovery.prefilter import select
from fsdplint.discovery.walk import discover

TRAINER = """\
import torch
from torch.distributed.fsdp import fully_shard
{imports}
{decorator}
class Trainer({base}):
    def __init__(self, model, optimizer):
        fully_shard(model)
        self.model, self.optimizer = model, optimizer

    def fit(self):
        self.model(torch.ones(2, 8)).sum().backward()
        self.optimizer.step()
"""
OTHER = """\
{imports}
{decorator}
class Other({base}):
    pass
"""
MAIN = """\
import sys
import torch
{imports}
torch.distributed.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
trainer = {build}
trainer.fit()
"""

HYDRA = """\
import hydra
import torch

@hydra.main(config_path="conf", config_name="config")
def run(config):
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    hydra.utils.instantiate(config.trainer, model, optimizer).fit()

torch.distributed.init_process_group("gloo")
run()
"""


def main(imports: str, build: str) -> str:
    return MAIN.format(imports=imports, build=build)


def classes(imports: str = "", decorator: str = "", base: str = "") -> dict[str, str]:
    parts = {"imports": imports, "decorator": decorator, "base": base}
    return {"lib/sharded.py": TRAINER.format(**parts), "lib/other.py": OTHER.format(**parts)}


REGISTRY = """\
KEPT = {}
def add(name):
    def decorate(cls):
        KEPT[name] = cls
        return cls
    return decorate
def build(name, *args):
    return KEPT[name](*args)
"""
REGISTRY_CLASS = """\
class Registry:
    def __init__(self):
        self.kept = {}
    def __call__(self, name):
        def decorate(cls):
            self.kept[name] = cls
            return cls
        return decorate
    def build(self, name, *args):
        return self.kept[name](*args)
REGISTRY = Registry()
"""
BASE = """\
class Base:
    kept = {}
    def __init_subclass__(cls):
        Base.kept[cls.__name__] = cls
    @classmethod
    def create(cls, name, *args):
        return cls.kept[name](*args)
"""
ALL_OF_LIB = "from lib import sharded, other\n"
LOOP_OF_MODULES = """\
import importlib, os, pkgutil
for each in {}:
    importlib.import_module("." + {}, __package__)
"""
ARGUMENTS = "(sys.argv[1], model, optimizer)"
TRAINER_OF_LIB = "from lib.sharded import Trainer\n"
PROGRAMS = {
    "imported names of a package": {
        **classes(),
        "lib/__init__.py": f"{TRAINER_OF_LIB}from lib.other import Other\n",
        "main.py": main("import lib", "getattr(lib, sys.argv[1])(model, optimizer)"),
    },
    "own names": {
        **classes(),
        "main.py": main("from lib.sharded import *", "globals()[sys.argv[1]](model, optimizer)"),
    },
    "own names of a module": {
        **classes(),
        "lib/build.py": f"import sys\n{TRAINER_OF_LIB}def make(name, *args):\n"
        "    return getattr(sys.modules[__name__], name)(*args)\n",
        "main.py": main("from lib.build import make", f"make{ARGUMENTS}"),
    },
    "getattr": {
        **classes(),
        "main.py": main(
            "import lib.sharded", "getattr(lib.sharded, sys.argv[1])(model, optimizer)"
        ),
    },
    "decorator": {
        **classes("from lib.kept import add", "@add(__name__)"),
        "lib/kept.py": REGISTRY,
        "lib/__init__.py": ALL_OF_LIB,
        "main.py": main("import lib\nfrom lib.kept import build", f"build{ARGUMENTS}"),
    },
    "object": {
        **classes("from lib.kept import REGISTRY", "@REGISTRY(__name__)"),
        "lib/kept.py": REGISTRY_CLASS,
        "lib/__init__.py": ALL_OF_LIB,
        "main.py": main("import lib\nfrom lib import kept", f"kept.REGISTRY.build{ARGUMENTS}"),
    },
    "base class": {
        **classes("from lib.base import Base", base="Base"),
        "lib/base.py": BASE,
        "lib/__init__.py": ALL_OF_LIB,
        "main.py": main("import lib\nfrom lib.base import Base", f"Base.create{ARGUMENTS}"),
    },
    "folder of plug-ins": {
        **classes("from lib.kept import add", "@add(__name__)"),
        "lib/kept.py": REGISTRY,
        "lib/__init__.py": LOOP_OF_MODULES.format("pkgutil.iter_modules(__path__)", "each.name"),
        "main.py": main("import lib\nfrom lib.kept import build", f"build{ARGUMENTS}"),
    },
    "files of a folder": {
        **classes("from lib.kept import add", "@add(__name__)"),
        "lib/kept.py": REGISTRY,
        "lib/__init__.py": LOOP_OF_MODULES.format(
            "os.listdir(os.path.dirname(__file__))", "each[:-3]"
        ),
        "main.py": main("import lib\nfrom lib.kept import build", f"build{ARGUMENTS}"),
    },
    "module": {
        **classes(),
        "main.py": main(
            "import importlib",
            'importlib.import_module(f"lib.{sys.argv[1]}").Trainer(model, optimizer)',
        ),
    },
    "settings": {
        **classes(),
        "conf/config.yaml": "trainer:\n  _target_: lib.sharded.Trainer\n",
        "main.py": HYDRA,
    },
}


def write(root: Path, files: dict[str, str]) -> None:
    (root / "pyproject.toml").touch()
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_is_checked_with_the_code(name: str, tmp_path: Path) -> None:
    write(tmp_path, PROGRAMS[name])
    found = [one for one in check(tmp_path).findings if one.code == "FSDP103"]
    assert [Path(one.path).name for one in found] == ["main.py"]


@pytest.mark.parametrize("name", ["decorator", "object", "base class"])
def test_what_else_is_registered_is_not_relevant(name: str, tmp_path: Path) -> None:
    write(tmp_path, PROGRAMS[name])
    files, _ = discover([tmp_path])
    assert "other.py" not in {path.name for path in select(files, searched=[tmp_path]).paths}


def test_lookups() -> None:
    code = b"""
import importlib
importlib.import_module(f"lib.{name}")
import_module("." + name, __package__)
__import__("lib.parts.%s" % name)
importlib.import_module("lib.sharded")
importlib.import_module(name)
hydra.utils.instantiate(config)
"""
    assert list(lookups(code)) == [
        Lookup("importlib.import_module", "lib."),
        Lookup("import_module", "."),
        Lookup("__import__", "lib.parts."),
        Lookup("hydra.utils.instantiate"),
    ]
