"""Classes that derive from `dict`, and dicts that other files fill under known keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import HEADER, findings, program

PLAIN = """
class Registry(dict):
    def add(self, name):
        def note(made):
            if name in self:
                raise KeyError(name)
            self[name] = made
            return made
        return note
"""
OWN_METHODS = """
class Registry(dict):
    def __init__(self):
        super().__init__()

    def __setitem__(self, name, made):
        super().__setitem__(name.lower(), made)

    def __getitem__(self, name):
        return dict.__getitem__(self, name.lower())

    def add(self, name):
        def note(made):
            self[name] = made
            return made
        return note
"""
TRAINING = """
for layer in model.layers:
    fully_shard(layer)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(2, dtype=torch.long)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("registry", [PLAIN, OWN_METHODS])
@pytest.mark.parametrize("build", ['NETS["net"]()', 'NETS.get("net")()'])
def test_objects_of_a_class_that_derives_from_dict_have_entries(
    tmp_path: Path, registry: str, build: str
) -> None:
    body = f'{registry}\nNETS = Registry()\nNETS.add("net")(Net)\nmodel = {build}\n{TRAINING}'
    assert findings(program(tmp_path, body), "FSDP105")


@pytest.mark.parametrize(
    "settings",
    [
        "class Settings(dict):\n    __getattr__ = dict.__getitem__\n",
        "class Settings(dict):\n    def __getattr__(self, name):\n        return self[name]\n",
        "class Settings(dict):\n    def __init__(self, *args, **kwargs):\n"
        "        super().__init__(*args, **kwargs)\n        self.__dict__ = self\n",
    ],
)
def test_entries_are_read_as_attributes(tmp_path: Path, settings: str) -> None:
    body = f'{settings}\nsettings = Settings({{"kind": Net}}, depth=2)\nmodel = settings.kind()\n'
    assert findings(program(tmp_path, body + TRAINING), "FSDP105")


def test_entries_are_spread_as_arguments(tmp_path: Path) -> None:
    body = """
    class Options(dict):
        pass


    options = Options(reshard_after_forward=True)
    model = Net()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model, **options)
    model(torch.ones(2, dtype=torch.long)).sum().backward()
    """
    assert findings(program(tmp_path, body), "FSDP601")


REGISTRIES = {
    "a dict": ("NETS = {}\n\n\ndef add(name):\n    def note(made):\n        NETS[name] = made\n"
               "        return made\n    return note\n"),
    "a class": f"{PLAIN}\n\nNETS = Registry()\nadd = NETS.add\n",
}  # fmt: skip


@pytest.mark.parametrize("kind", REGISTRIES)
@pytest.mark.parametrize(
    "test", ["", 'if "net" not in registry.NETS:\n    raise KeyError("net")\n']
)
def test_another_file_adds_an_entry_under_a_known_key(tmp_path: Path, kind: str, test: str) -> None:
    nets = HEADER.replace("class Net(", 'from registry import add\n\n\n@add("net")\nclass Net(')
    header = "import torch\nfrom torch.distributed.fsdp import fully_shard\n"
    body = f'import nets\nimport registry\n{test}model = registry.NETS["net"]()\n{TRAINING}'
    found = program(tmp_path, body, header=header, nets=nets, registry=REGISTRIES[kind])
    assert findings(found, "FSDP105")
