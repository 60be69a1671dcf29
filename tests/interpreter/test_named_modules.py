"""Modules that a table of texts names, and registries that such modules fill."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import events, program

from fsdplint.interpreter import Program, load
from fsdplint.trace import OptimizerBuilt, Sharded

REGISTRY = """
from collections.abc import MutableMapping


class Registry(MutableMapping):
    def __init__(self):
        self._made = {}

    def __call__(self, target):
        if callable(target):
            return self.register(target)
        return lambda made: self.register(made, target)

    def register(self, made, name=None):
        if not callable(made):
            raise TypeError(made)
        name = made.__name__ if name is None else name
        if name in self._made:
            raise ValueError(name)
        self[name] = made
        return made

    def __setitem__(self, name, made):
        self._made[name] = made

    def __getitem__(self, name):
        return self._made[name]

    def __contains__(self, name):
        return name in self._made


TRAINERS = Registry()
"""
TRAINER = """
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from registry import TRAINERS


@TRAINERS("{name}")
class {title}:
    def __init__(self, config):
        self.model = nn.Linear({width}, 8)

    def train(self):
        fully_shard(self.model)
        torch.optim.{optimizer}(self.model.parameters())
"""
HEADER = (
    "import importlib\nfrom registry import TRAINERS\nfrom settings import load\nconfig = load()\n"
)
FLOW = TRAINER.format(name="flow", title="Flow", width=2, optimizer="SGD")
DISTILL = TRAINER.format(name="distill", title="Distill", width=4, optimizer="AdamW")
FILES = {"registry": REGISTRY, "trainers__flow": FLOW, "trainers__distill": DISTILL}

MODULES = 'MODULES = {"flow": "trainers.flow", "distill": "trainers.distill"}\n'
TABLES = {
    "registry behind a test": MODULES
    + """
name = config["training"]["method"]


def ensure(name, registry):
    if name in registry:
        return
    module = MODULES.get(name)
    if module is not None:
        importlib.import_module(module)


ensure(name, TRAINERS)
if name not in TRAINERS:
    raise ValueError(name)
TRAINERS[name](config).train()
""",
    "registry": MODULES
    + """
importlib.import_module(MODULES[config.name])
TRAINERS[config.name](config).train()
""",
    "module": MODULES
    + """
module = importlib.import_module(MODULES[config.name])
module.make(config).train()
""",
    "module and class": """
CLASSES = {"flow": ("trainers.flow", "Flow"), "distill": ("trainers.distill", "Distill")}
path, name = CLASSES[config.name]
getattr(importlib.import_module(path), name)(config).train()
""",
    "path of a class": """
CLASSES = {"flow": "trainers.flow.Flow", "distill": "trainers.distill.Distill"}
path, name = CLASSES[config.name].rsplit(".", 1)
getattr(importlib.import_module(path), name)(config).train()
""",
    "colon": """
CLASSES = {"flow": "trainers.flow:Flow", "distill": "trainers.distill:Distill"}
path, name = CLASSES[config.name].split(":")
getattr(importlib.import_module(path), name)(config).train()
""",
}


def optimizers(found: Program) -> set[str]:
    """The optimizers that the traces with a sharded model build."""
    sharded = [trace for trace in found.traces if list(trace.of(Sharded)) and trace.entry]
    return {event.class_name for trace in sharded for event in trace.of(OptimizerBuilt)}


@pytest.mark.parametrize("body", TABLES.values(), ids=TABLES)
def test_each_module_of_a_table_is_tried(tmp_path: Path, body: str) -> None:
    make = "\ndef make(config):\n    return {}(config)\n"
    files = {
        **FILES,
        "trainers__flow": FLOW + make.format("Flow"),
        "trainers__distill": DISTILL + make.format("Distill"),
    }
    found = program(tmp_path, body, header=HEADER, **files)
    built = optimizers(found)
    assert built == {"SGD", "AdamW"}


@pytest.mark.parametrize(
    "table", ['{"a": "models.plain", "b": "models.other"}', '{"a": "no.module", "b": "none.here"}']
)
def test_a_table_of_other_texts_asks_for_no_decision(tmp_path: Path, table: str) -> None:
    body = f"text = {table}[config.name]\nprint(text)\nimportlib.import_module(text)\n"
    files = {"registry": REGISTRY, "models__plain": "A = 1\n", "models__other": "A = 2\n"}
    found = program(tmp_path, body, header=HEADER, **files)
    assert len(found.traces) == 1 and not found.traces[0].decisions


def all_files(folder: Path, body: str) -> Program:
    """A program of several files, all of which are given."""
    program(folder, body, header=HEADER, **FILES)
    return load(sorted(folder.glob("**/*.py")))


PATHS = """
from pathlib import Path
ROOT = Path(__file__).resolve().parent
for file in sorted(file for file in (ROOT / config.folder).glob("**/*.py")):
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
    importlib.import_module(name)
TRAINERS[config.name](config).train()
"""


def test_a_loop_over_paths_imports_what_fills_a_registry(tmp_path: Path) -> None:
    found = all_files(tmp_path, PATHS)
    built = optimizers(found)
    assert built == {"SGD", "AdamW"}


def test_a_loop_over_paths_imports_no_programs_and_no_tests(tmp_path: Path) -> None:
    (tmp_path / "trainers").mkdir()
    text = TRAINER.format(name="other", title="Other", width=2, optimizer="Adam")
    (tmp_path / "trainers" / "other.py").write_text(text + "\nif __name__ == '__main__':\n    1\n")
    (tmp_path / "trainers" / "test_it.py").write_text(text.replace('"other"', '"test"'))
    found = all_files(tmp_path, PATHS)
    built = optimizers(found)
    assert built == {"SGD", "AdamW"}


def test_a_module_beside_the_program_is_found_from_a_folder_that_is_no_package(
    tmp_path: Path,
) -> None:
    lookup = HEADER + textwrap.dedent(
        """
        MODULES = {"flow": "trainers.flow", "distill": "trainers.distill"}

        def build(config):
            importlib.import_module(MODULES[config.name])
            return TRAINERS[config.name](config)
        """
    )
    body = "from tools.lookup import build\nbuild(config).train()\n"
    found = program(tmp_path, body, header=HEADER, tools__lookup=lookup, **FILES)
    built = optimizers(found)
    assert built == {"SGD", "AdamW"}


NESTED = """
from settings import load

config = load()

enabled = config.get("distributed", {}).get("fsdp", {}).get("enabled", False)
other = config.get("training", {}).get("ema", {}).get("enabled", False)
model = Net()
if other:
    print("ema")
elif enabled:
    fully_shard(model)
"""


def test_settings_of_two_groups_are_two_settings(tmp_path: Path) -> None:
    found = program(tmp_path, NESTED)
    assert list(events(found, Sharded))
    assert len({len(trace.decisions) for trace in found.traces}) > 1


def test_a_group_of_settings_is_the_same_with_and_without_a_default(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        from settings import load

        config = load()

        model = Net()
        if config.get("fsdp", {}).get("enabled", False):
            fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters())
        if not config.get("fsdp").get("enabled", False):
            torch.optim.AdamW(model.parameters())
        """,
    )
    built = optimizers(found)
    assert built == {"SGD"}


@pytest.mark.parametrize(
    ("value", "called"),
    [
        ('"name"', False), ("None", False), ("[1]", False), ("Net", True), ("Net()", True),
        ("lambda: 1", True), ("dist.barrier.__doc__", None),
    ],
)  # fmt: skip
def test_what_can_be_called(tmp_path: Path, value: str, called: bool | None) -> None:
    found = program(
        tmp_path,
        f"""
        model = Net()
        fully_shard(model)
        if callable({value}):
            torch.optim.SGD(model.parameters())
        else:
            torch.optim.AdamW(model.parameters())
        """,
    )
    expected = {True: {"SGD"}, False: {"AdamW"}, None: {"SGD", "AdamW"}}[called]
    built = optimizers(found)
    assert built == expected
