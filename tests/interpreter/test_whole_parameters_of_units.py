"""Whole parameters in place of sharded ones, in a model whose units hold all of its parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

PROGRAM = """
from contextlib import contextmanager
from torch.distributed.tensor import DTensor


@contextmanager
def gathered(model):
    modules = list({modules})
    whole, sharded = {{}}, {{}}
    for module in modules:
        for name, parameter in list(module.named_parameters(recurse=False)):
            if isinstance(parameter, DTensor):
                full = nn.Parameter(parameter.full_tensor())
                whole[parameter] = full
                sharded[full] = parameter
                setattr(module, name, whole[parameter])
    try:
        yield
    finally:
        for module in modules:
            for name, parameter in list(module.named_parameters(recurse=False)):
                if parameter in sharded:
                    setattr(module, name, sharded[parameter])


model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
{units}
fully_shard(model)
with gathered(model):
    state = model.state_dict()
    {inside}
{outside}
"""
SAVE = "if dist.get_rank() == 0:\n        torch.save(state, 'x.pt')"
UNITS = {
    "each": "fully_shard(model[0])\nfully_shard(model[1])",
    "a loop": "for m in reversed(list(model.modules())[1:]):\n    fully_shard(m)",
    "a test": (
        "for m in reversed(list(model.modules())[1:]):\n"
        "    if all(p.requires_grad for p in m.parameters()):\n        fully_shard(m)"
    ),
    "one": "fully_shard(model[0])",
    "none": "",
}


@pytest.mark.parametrize("units", UNITS.values(), ids=UNITS)
def test_the_state_is_whole(units: str, tmp_path: Path) -> None:
    text = PROGRAM.format(modules="model.modules()", units=units, inside=SAVE, outside="")
    assert not findings(program(tmp_path, text), "FSDP301")


@pytest.mark.parametrize("units", UNITS.values(), ids=UNITS)
def test_the_state_after_the_block_is_sharded(units: str, tmp_path: Path) -> None:
    after = "state = model.state_dict()\n" + SAVE.replace("    torch", "torch")
    text = PROGRAM.format(modules="model.modules()", units=units, inside="pass", outside=after)
    assert findings(program(tmp_path, text), "FSDP301")


def test_the_parameters_of_one_unit(tmp_path: Path) -> None:
    text = PROGRAM.format(
        modules="model[0].modules()", units=UNITS["each"], inside=SAVE, outside=""
    )
    assert findings(program(tmp_path, text), "FSDP301")
