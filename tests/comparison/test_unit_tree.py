"""The units that a plan shows are those that torch makes: modules, parameters and placements."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from unit_programs import FSDP1, FSDP2, HEAD, RUN, layouts_of

from fsdplint.comparison.plan import plan_of
from fsdplint.comparison.unit_report import _pattern
from fsdplint.comparison.unit_tree import Layout, Unit, layouts
from fsdplint.interpreter import load
from fsdplint.trace.arguments import Constant, Opaque

# All programs run in one process, whose process group sends nothing: what is sharded does not depend
# on it. The first forward makes the root, whose options differ.
REAL = """\
import json, sys
import torch, torch.distributed
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel as FSDP
from torch.testing._internal.distributed.fake_pg import FakeStore

torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
torch.distributed.init_process_group = lambda *_: None


def units(model):
    found, names = {}, {id(p): name for name, p in model.named_parameters()}
    model(torch.randn(2, 8))
    for name, module in model.named_modules():
        name = name.replace("_fsdp_wrapped_module.", "").removesuffix("_fsdp_wrapped_module").rstrip(".")
        if isinstance(module, FSDPModule):
            group = module._get_fsdp_state()._fsdp_param_group
            found[name] = {"?": str(group.post_forward_mesh_info is not None)}
            for one in group.fsdp_params:
                placements = ", ".join(str(x) for x in one.sharded_param.placements)
                found[name][names[id(one.sharded_param)]] = placements
        elif isinstance(module, FSDP):
            found[name] = {}
            for one in module._handle.flat_param._fqns if module._handle is not None else []:
                one = one.replace("_fsdp_wrapped_module.", "")
                found[name][f"{name}.{one}".lstrip(".")] = ""
    return found


programs = json.load(sys.stdin)
result = {}
for title, text in programs.items():
    names = {"__name__": "program"}
    exec(text, names)
    result[title] = units(names["model"])
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def real_units() -> dict[str, dict[str, dict[str, str]]]:
    """What torch shards in each program: the parameters of each unit, with their placements."""
    pytest.importorskip("torch")
    programs = {name: HEAD + sharding for name, sharding in {**FSDP2, **FSDP1}.items()}
    done = subprocess.run(
        [sys.executable, "-c", REAL],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def one_layout(program: str, folder: Path) -> Layout:
    file = folder / "train.py"
    file.write_text(program, encoding="utf-8")
    (layout,) = layouts(load([file], with_arguments=True).traces)
    return layout


def planned_units(layout: Layout) -> dict[str, Unit]:
    (model,) = layout.models
    return {one.path: one for one in model.all_units()}


def owner(name: str, units: dict[str, Unit]) -> Unit:
    return next(one for one in reversed(units.values()) if _pattern(one).match(f"model.{name}."))


BLOCK = re.compile(r"\bblocks\.\d\.")


@pytest.mark.parametrize("name", [*FSDP2, *FSDP1])
def test_the_units_are_those_of_torch(
    name: str, real_units: dict[str, dict[str, dict[str, str]]], tmp_path: Path
) -> None:
    real = real_units[name]
    program = HEAD + {**FSDP2, **FSDP1}[name] + RUN
    planned = planned_units(one_layout(program, tmp_path))
    sharded = {path: one for path, one in planned.items() if one.api}
    assert {owner(path, planned).path for path in real} == {*sharded}
    for unit in sharded.values():
        assert unit.uncertain == [] and not unit.has_unknown_parts
        members = {path for path in real if owner(path, planned) is unit}
        inside = {
            BLOCK.sub(
                "blocks.*.",
                _pattern(unit).sub("", f"model.{parameter}", count=1).rpartition(".")[0] or ".",
            )
            for path in members
            for parameter in real[path]
            if parameter != "?"
        }
        assert inside == set(unit.parameters)
        for path in members:
            for parameter, text in real[path].items():
                if parameter == "?":
                    assert unit.options["reshard_after_forward"] == text
                elif text:
                    assert re.sub(r"[a-z]+|=", "", text) == re.sub(
                        r"[a-z]+|\(\)", "", unit.options["placements"]
                    )


def test_what_is_not_sharded_stays_whole(tmp_path: Path) -> None:
    planned = planned_units(one_layout(HEAD + FSDP2["blocks without the model"] + RUN, tmp_path))
    root = planned["model"]
    assert (root.api, root.at) == ("", None)
    assert root.parameters == [".", "stem", "head.0", "head.1"]


def test_options_in_the_terms_of_fsdp2(tmp_path: Path) -> None:
    program = """
model = FSDP(
    model,
    sharding_strategy=ShardingStrategy.FULL_SHARD,
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    cpu_offload=CPUOffload(offload_params=True),
)
"""
    by_hand = """
arguments = dict(
    mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    offload_policy=CPUOffloadPolicy(),
)
for block in model.blocks:
    fully_shard(block, **arguments)
fully_shard(model, **arguments)
"""
    old = planned_units(one_layout(HEAD + program + RUN, tmp_path))
    new = planned_units(one_layout(HEAD + by_hand + RUN, tmp_path))
    assert [one.api for one in old.values()] == ["fsdp1", "fsdp1"]
    assert [one.api for one in new.values()] == ["fsdp2", "fsdp2"]
    assert {path: one.options for path, one in old.items()} == {
        path: one.options for path, one in new.items()
    }
    assert old["model"].options["offload to the CPU"] == "True"
    assert old["model"].options["param_dtype"] == "torch.bfloat16"
    assert old["model"].options["reshard_after_forward"] == "False"


def test_a_root_without_parameters_has_no_collectives(tmp_path: Path) -> None:
    program = "import torch\nfrom torch import nn\n"
    program += "from torch.distributed.fsdp import fully_shard\n"
    program += "model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))\n"
    program += "fully_shard(model[0])\nfully_shard(model[2])\nfully_shard(model)\n"
    (layout,) = layouts_of(program + RUN, tmp_path)
    (model,) = layout.models
    assert not model.collectives
    assert [one.collectives for one in model.units] == [{"all_gather": 2, "reduce_scatter": 1}] * 2


def test_what_is_unknown_is_said(tmp_path: Path) -> None:
    program = HEAD.replace("model = Net()", "import zoo\n\nmodel = zoo.build()")
    layout = one_layout(program + "fully_shard(model)\n" + RUN, tmp_path)
    (model,) = layout.models
    assert model.has_unknown_parts and layout.gaps
    program = HEAD + "import zoo\nmodel = FSDP(model, auto_wrap_policy=zoo.policy())\n"
    assert one_layout(program + RUN, tmp_path).gaps == ["the wrap policy is unknown"]
    program = (
        HEAD + "import zoo\nmodel = FSDP(zoo.build(), auto_wrap_policy=ModuleWrapPolicy({Block}))\n"
    )
    assert one_layout(program + RUN, tmp_path).gaps == ["a part of the model is unknown"]


SIZES = """
def shard_large(module, minimum):
    size = sum(p.numel() for p in module.parameters())
    if size < minimum:
        return
    fully_shard(module)

for part in (model.stem, model.head):
    shard_large(part, 100)
fully_shard(model)
"""
COUNTED = """
def count(module):
    return sum(p.numel() for p in module.parameters())

for part in (model.stem, model.head):
    if count(part) < 100:
        continue
    fully_shard(part)
fully_shard(model)
"""
SELECTIONS = {
    "element 0": "fully_shard(model.blocks[0])\nfully_shard(model)\n",
    "element -1": "fully_shard(module=model.blocks[-1])\nfully_shard(model)\n",
    "`model.blocks[1:]`": """
for block in reversed(model.blocks[1:]):
    fully_shard(block)
fully_shard(model)
""",
    "those that a test selects: `number % 2 == 0`": """
for number, block in enumerate(model.blocks):
    if number % 2 == 0:
        fully_shard(block)
fully_shard(model)
""",
}


@pytest.mark.parametrize("text", SELECTIONS)
def test_some_elements_of_a_list(text: str, tmp_path: Path) -> None:
    planned = planned_units(one_layout(HEAD + SELECTIONS[text] + RUN, tmp_path))
    assert planned["model.blocks.*"].selection == text
    root = planned["model"]
    assert root.selection == ""
    assert root.uncertain == ["blocks.*.norm", "blocks.*.up", "blocks.*.down"]


@pytest.mark.parametrize(
    ("program", "test"), [(SIZES, "size < minimum"), (COUNTED, "count(part) < 100")]
)
def test_a_test_of_sizes_that_leaves_early(program: str, test: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(HEAD + program + RUN, encoding="utf-8")
    planned = planned_units(one_layout(HEAD + program + RUN, tmp_path))
    for path in ("model.stem", "model.head"):
        assert planned[path].selection == f"those that a test selects: `not ({test})`"
    assert planned["model"].selection == ""
    (trace,) = [one for one in load([file], with_arguments=True).traces if one.entry is not None]
    facts = plan_of(trace).facts
    assert [type(one.value) for one in facts["unit", "model.stem"]] == [Opaque]
    assert [one.value for one in facts["unit", "model"]] == [Constant("sharded")]


@pytest.mark.parametrize(
    ("test", "has_name"),
    [
        ("if isinstance(part, nn.LayerNorm):\n        continue\n    ", False),
        (
            "if type(part).__name__ == 'A' or isinstance(part, nn.LayerNorm):\n        continue\n    ",
            False,
        ),
        ("if not isinstance(part, nn.LayerNorm):\n        continue\n    ", True),
        ("if not isinstance(part, nn.LayerNorm):\n        ", False),
        ("if isinstance(part, nn.LayerNorm):\n        ", True),
    ],
)
def test_the_class_of_an_unknown_part(test: str, has_name: bool, tmp_path: Path) -> None:
    program = HEAD.replace("model = Net()", "model = transformers.AutoModel.from_pretrained('x')")
    program = program.replace("import torch\n", "import torch\nimport transformers\n", 1)
    program += f"for part in model.children():\n    {test}fully_shard(part)\nfully_shard(model)\n"
    (tmp_path / "train.py").write_text(program + RUN, encoding="utf-8")
    found = layouts(load([tmp_path / "train.py"], with_arguments=True).traces)
    models = [model for one in found for model in one.models]
    names = {unit.class_name for model in models for unit in model.all_units()}
    assert ("LayerNorm" in names) is has_name


def test_a_policy_with_other_fields(tmp_path: Path) -> None:
    program = """
from dataclasses import replace
outer = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
for block in model.blocks:
    fully_shard(block, mp_policy=replace(outer, output_dtype=torch.float16))
fully_shard(model, mp_policy=outer)
"""
    planned = planned_units(one_layout(HEAD + program + RUN, tmp_path))
    inner, root = planned["model.blocks.*"].options, planned["model"].options
    assert inner["output_dtype"] == "torch.float16"
    assert root["output_dtype"] == "None"
    for name in ("param_dtype", "reduce_dtype"):
        assert inner[name] == root[name] != "?"


BUILT = """
def build():
    return Net()
"""


@pytest.mark.parametrize(
    "models",
    [
        "models = {'actor': build(), 'critic': build()}\n",
        "models = dict(actor=build(), critic=build())\n",
        "models = {}\nmodels['actor'] = build()\nmodels['critic'] = build()\n",
        "models = {name: build() for name in ('actor', 'critic')}\n",
    ],
    ids=["display", "call", "item", "comprehension"],
)
@pytest.mark.parametrize(
    "sharding",
    [
        "for one in models.values():\n    fully_shard(one.head)\n    fully_shard(one)\n",
        "for name in models:\n    models[name] = FSDP(models[name])\n",
    ],
    ids=["fsdp2", "fsdp1"],
)
def test_models_in_a_dict_have_their_keys(models: str, sharding: str, tmp_path: Path) -> None:
    layout = one_layout(HEAD.replace("model = Net()\n", "") + BUILT + models + sharding, tmp_path)
    assert [one.path for one in layout.models] == ["model['actor']", "model['critic']"]
    for model in layout.models:
        assert all(one.path.startswith(f"{model.path}.") for one in model.units)


def test_elements_under_unknown_keys_are_one_unit(tmp_path: Path) -> None:
    program = f"""{HEAD}
class Keyed(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = nn.ModuleDict()
        for number in range(count):
            self.layers[str(number)] = nn.Linear(8, 8)


import os
model = Keyed(int(os.environ["LAYERS"]))
for layer in model.layers.values():
    fully_shard(layer)
fully_shard(model)
"""
    layout = one_layout(program, tmp_path)
    assert [one.path for one in layout.models[0].all_units()] == ["model", "model.layers.*"]
