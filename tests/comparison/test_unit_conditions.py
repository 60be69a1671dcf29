"""The conditions under which a plan shows each of several layouts of the units."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit_programs import HEAD, RUN, layouts_of

from fsdplint.comparison.unit_tree import layouts
from fsdplint.engine.planning import plans
from fsdplint.interpreter import load


def test_configurations(tmp_path: Path) -> None:
    program = HEAD.replace("import torch\n", "import argparse\n\nimport torch\n", 1)
    program += """
parser = argparse.ArgumentParser()
parser.add_argument("--blocks", action="store_true")
args = parser.parse_args()
if args.blocks:
    for block in model.blocks:
        fully_shard(block)
fully_shard(model)
"""
    file = tmp_path / "train.py"
    file.write_text(program + RUN, encoding="utf-8")
    found = layouts(load([file], with_arguments=True).traces)
    units = {tuple(one.conditions): len(one.models[0].all_units()) for one in found}
    assert units == {("`args.blocks` is true",): 2, ("`args.blocks` is false",): 1}


@pytest.mark.parametrize(
    "choice",
    [
        "kwargs = {}\nif args.offload:\n    kwargs['offload_policy'] = CPUOffloadPolicy()",
        "kwargs = {'offload_policy': CPUOffloadPolicy()} if args.offload else {}",
        "policy = CPUOffloadPolicy() if args.offload else None\n"
        "kwargs = {} if policy is None else {'offload_policy': policy}",
    ],
    ids=["statement", "expression", "policy"],
)
@pytest.mark.parametrize("function", [False, True])
def test_a_setting_has_the_spelling_of_the_test_that_chooses_the_options(
    choice: str, function: bool, tmp_path: Path
) -> None:
    lines = f"{choice}\nfully_shard(model, **kwargs)\n"
    if function:
        body = lines.replace("\n", "\n    ")
        lines = f"def main(args):\n    {body}\nmain(parser().parse_args())\n"
    else:
        lines = f"args = parser().parse_args()\n{lines}"
    parser = (
        "import argparse\ndef parser():\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--offload', action='store_true')\n    return parser\n"
    )
    file = tmp_path / "train.py"
    file.write_text(f"{HEAD}{parser}{lines}{RUN}", encoding="utf-8")
    found = plans([file]).programs[0].layouts
    assert {tuple(one.conditions) for one in found} == {
        ("`args.offload` is true",),
        ("`args.offload` is false",),
    }


FLAGS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--choose", action="store_true")
parser.add_argument("--log", action="store_true")
args = parser.parse_args()
"""
LOG = "if args.log:\n    model(torch.randn(2, 8))\n"


def conditions(program: str, folder: Path) -> set[tuple[str, ...]]:
    file = folder / "train.py"
    file.write_text(HEAD + FLAGS + program, encoding="utf-8")
    return {tuple(one.conditions) for one in plans([file]).programs[0].layouts}


CHOSEN = {("`args.choose` is true",), ("`args.choose` is false",)}


@pytest.mark.parametrize("log", ["", LOG], ids=["alone", "with another setting"])
@pytest.mark.parametrize(
    "choice",
    [
        "fully_shard(model, offload_policy=CPUOffloadPolicy() if args.choose else None)\n",
        "options = dict(offload_policy=CPUOffloadPolicy() if args.choose else None)\n"
        "fully_shard(model, **options)\n",
        "policy = MixedPrecisionPolicy(torch.bfloat16 if args.choose else torch.float32)\n"
        "fully_shard(model, mp_policy=policy)\n",
        "dtype = torch.float32\nif args.choose:\n    dtype = torch.bfloat16\n"
        "fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=dtype))\n",
        "policy = ModuleWrapPolicy({nn.LayerNorm if args.choose else nn.Linear})\n"
        "model = FSDP(model, auto_wrap_policy=policy)\n",
        "from functools import partial\n"
        "from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy as wrap\n"
        "classes = {Block} if args.choose else {nn.Linear}\n"
        "policy = partial(wrap, transformer_layer_cls=classes)\n"
        "model = FSDP(model, auto_wrap_policy=policy)\n",
        "if args.choose:\n    model.head = nn.Identity()\nfully_shard(model)\n",
        "policy = ModuleWrapPolicy({Block if args.choose else nn.Linear})\n"
        "model = FSDP(model, auto_wrap_policy=policy)\n",
        "classes = {Block}\nif args.choose:\n    classes.add(nn.LayerNorm)\n"
        "model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy(classes))\n",
        "shape = (2, 2) if args.choose else (4,)\n"
        "fully_shard(model, mesh=init_device_mesh('cpu', shape))\n",
        "units = list(model.blocks) if args.choose else [model.stem]\n"
        "for unit in units:\n    fully_shard(unit)\nfully_shard(model)\n",
        "units = [model.stem]\nif args.choose:\n    units.append(model.head)\n"
        "for unit in units:\n    fully_shard(unit)\nfully_shard(model)\n",
    ],
    ids=[
        *("option", "options", "policy", "name", "classes", "classes of a partial", "model"),
        *("class of the program", "added class", "mesh", "units", "added unit"),
    ],
)
def test_the_conditions_are_those_of_the_sharding(choice: str, log: str, tmp_path: Path) -> None:
    assert conditions(choice + RUN + log, tmp_path) == CHOSEN
    if log:
        assert conditions(log + choice + RUN, tmp_path) == CHOSEN


MESHES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--units")
parser.add_argument("--replicas", type=int)
args = parser.parse_args()
mesh = init_device_mesh("cpu", (args.replicas, 2) if args.replicas > 1 else (2,))
if args.units == "blocks":
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
elif args.units == "ends":
    fully_shard(model.stem, mesh=mesh)
    fully_shard(model.head, mesh=mesh)
fully_shard(model, mesh=mesh)
"""


def test_each_layout_has_the_conditions_that_tell_it_from_each_other(tmp_path: Path) -> None:
    """Also where no single condition tells it from all others."""
    found = layouts_of(HEAD + MESHES + RUN, tmp_path)
    conditions = [frozenset(one.conditions) for one in found]
    assert len({*conditions}) == len(found) >= 4
    assert not any(one.gaps for one in found)
    for one in found:
        several = "`args.replicas > 1` is true"
        of_two = one.models[0].options["placements"] == "Replicate(), Shard(0)"
        assert (several in one.conditions) == of_two
        blocks = any(unit.path == "model.blocks.*" for unit in one.models[0].units)
        assert ('`args.units == "blocks"` is true' in one.conditions) == blocks
        # What a condition implies is not said again.
        assert not (blocks and any('"ends"' in text for text in one.conditions))
        assert "argparse" not in f"{one.conditions} {one.models[0].options}"
    rest = [one for one in found if not one.models[0].units]
    assert any("`args.units` is none of 'blocks', 'ends'" in one.conditions for one in rest)


def test_a_layout_of_several_values(tmp_path: Path) -> None:
    program = (
        "import yaml\nfrom torch.distributed.fsdp import ShardingStrategy\n"
        "cfg = yaml.safe_load(open('train.yaml'))\n"
        "KINDS = {'full': ShardingStrategy.FULL_SHARD, 'grad': ShardingStrategy.SHARD_GRAD_OP,\n"
        "         'hybrid': ShardingStrategy.HYBRID_SHARD}\n"
        "model = FSDP(model, sharding_strategy=KINDS[cfg.get('fsdp')['kind']])\n"
    )
    found = layouts_of(HEAD + program + RUN, tmp_path)
    assert {tuple(one.conditions) for one in found} == {
        ("`cfg.get('fsdp')['kind']` is 'full' or 'grad'",),
        ("`cfg.get('fsdp')['kind']` is none of 'full', 'grad'",),
    }
