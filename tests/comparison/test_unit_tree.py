"""The units that a plan shows are those that torch makes: modules, parameters and placements."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from json_schemas import validate

from fsdplint.cli.main import main
from fsdplint.comparison.plan import plan_of
from fsdplint.comparison.unit_report import Held, _pattern
from fsdplint.comparison.unit_tree import Layout, Unit, layouts
from fsdplint.engine.planning import plans
from fsdplint.interpreter import load
from fsdplint.trace.arguments import Constant, Opaque

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy, ShardingStrategy
from torch.distributed.fsdp import CPUOffload, CPUOffloadPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.down(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))
        self.stem = nn.Linear(8, 8)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8))

    def forward(self, x):
        x = self.stem(x * self.scale)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


dist.init_process_group("gloo")
CPU = torch.device("cpu")
model = Net()
"""
RUN = """
model(torch.randn(2, 8)).sum().backward()
"""
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


FSDP2 = {
    "blocks and model": """
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
""",
    "the root alone": "fully_shard(model)\n",
    "blocks without the model": "for block in model.blocks:\n    fully_shard(block)\n",
    "parts of parts": """
for block in model.blocks:
    fully_shard(block.up, reshard_after_forward=False)
    fully_shard(block)
fully_shard(model.head[1])
fully_shard(model, reshard_after_forward=True)
""",
    "copies of shards": """
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "parts"))
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
""",
    "ignored parameters": """
ignored = set(model.head.parameters())
for block in model.blocks:
    fully_shard(block)
fully_shard(model, ignored_params=ignored)
""",
}
FSDP1 = {
    "a policy": "model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True, device_id=CPU)\n",
    "the model alone": "model = FSDP(model, device_id=CPU)\n",
    "by hand": """
for i, block in enumerate(model.blocks):
    model.blocks[i] = FSDP(block, device_id=CPU)
model.stem = FSDP(model.stem, device_id=CPU)
model = FSDP(model, device_id=CPU)
""",
    "an ignored module": """
model = FSDP(
    model,
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    ignored_modules=[model.head],
    device_id=CPU,
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
)
""",
}


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


def run(*arguments: object) -> Any:
    from click.testing import CliRunner

    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(HEAD + FSDP2["blocks and model"] + RUN, encoding="utf-8")
    result = run("train.py")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "train.py"
    assert re.fullmatch(r"  model \(Net\): fully_shard, line \d+", lines[1])
    assert "  |   mesh (all ranks): Shard(0); reshard_after_forward False" in lines
    assert "  |   parameters of its own, stem, head.0, head.1" in lines
    assert "  |   a forward and a backward: 1 all-gather, 1 reduce-scatter" in lines
    assert re.fullmatch(r"  \+-- blocks\.\* \(each Block\): fully_shard, line \d+", lines[5])
    data = json.loads(run("train.py", "--output-format", "json").stdout)
    validate("plan", data)
    (program,) = data["programs"]
    (model,) = program["layouts"][0]["models"]
    assert model["parameters"] == [".", "stem", "head.0", "head.1"]
    assert [one["path"] for one in model["units"]] == ["model.blocks.*"]
    assert model["collectives"] == {"all_gather": 1, "reduce_scatter": 1}
    assert model["units"][0]["collectives"] == {"all_gather": 2, "reduce_scatter": 1}


@pytest.mark.parametrize("kind", ["text", "json", "html", "svg"])
def test_the_plan_in_a_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It overwrites an earlier plan, and nothing else."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(HEAD + FSDP2["blocks and model"] + RUN, encoding="utf-8")
    arguments = ["train.py", "--output-format", kind]
    shown = run(*arguments).stdout
    for _ in range(2):
        assert run(*arguments, "-o", "plan").exit_code == 0
        assert Path("plan").read_text(encoding="utf-8") == shown
    refused = run(*arguments, "-o", "train.py")
    assert refused.exit_code == 2 and "is not a plan of fsdplint" in refused.output
    assert Path("train.py").read_text(encoding="utf-8").startswith(HEAD)
    for word in ("train.py", "blocks.*", "2 all-gathers" if kind != "json" else "all_gather"):
        assert word in shown


def test_a_page_with_several_layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = HEAD.replace("import torch\n", "import sys\nimport torch\n", 1)
    program += "whole = len(sys.argv) > 1\nif not whole:\n    fully_shard(model.stem)\n"
    Path("a<b.py").write_text(program + "fully_shard(model)\n" + RUN, encoding="utf-8")
    text = run("a<b.py", "--output-format", "html").stdout
    assert "a&lt;b.py" in text and "a<b.py" not in text
    assert "When `len(sys.argv) &gt; 1` is true" in text
    drawing = ElementTree.fromstring(run("a<b.py", "--output-format", "svg").stdout)
    texts = [one.text or "" for one in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "a<b.py" and sum(one.startswith("When ") for one in texts) == 2


def test_the_command_without_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain.py").write_text("import torch\n")
    result = run()
    assert (result.exit_code, result.stdout) == (0, "No program that shards a model was found.\n")
    validate("plan", json.loads(run("--output-format", "json").stdout))
    assert run("missing.py").exit_code == 2
    assert "--simulate and --world-size need each other" in run("plain.py", "--simulate").output
    assert run(".", "--simulate", "--world-size", "8").exit_code == 2


def test_bytes_of_repeated_units() -> None:
    """The parameters of all elements count for the unit that stands for them."""
    block = Unit("model.blocks.*", "Block", api="fsdp2")
    inner = Unit("model.blocks.*.mlp", "MLP", api="fsdp2")
    layer = Unit("model.layers.1", "Layer", api="fsdp2")
    block.units = [inner]
    layout = Layout([Unit("model", "Net", api="fsdp2", units=[block, layer])])
    sizes = {
        "stem.weight": 1,
        "blocks.0.norm": 2,
        "blocks.12.norm": 4,
        "blocks.7.mlp.up": 8,
        "layers.1.weight": 16,
        "layers.11.weight": 32,
    }
    names = {name: {"parameters": size, "gradients": 2 * size} for name, size in sizes.items()}
    held = Held(4, {}, names)
    expected = {"model": 33, "model.blocks.*": 6, "model.blocks.*.mlp": 8, "model.layers.1": 16}
    assert held.by_path(layout) == {
        path: {"parameters": size, "gradients": 2 * size} for path, size in expected.items()
    }
    assert Held(4, {}, {}).by_path(layout) == {}


def test_sizes_of_a_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    train = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    train += (
        "for _ in range(2):\n    model(torch.randn(2, 8)).sum().backward()\n    optimizer.step()\n"
    )
    Path("train.py").write_text(HEAD + FSDP2["blocks and model"] + train, encoding="utf-8")
    result = run("train.py", "--simulate", "--world-size", "4", "--output-format", "json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    validate("plan", data)
    (program,) = data["programs"]
    (model,) = program["layouts"][0]["models"]
    # A quarter of the rows of each parameter, in float32; of three blocks.
    block = (8 + 8 + 16 * 8 + 16 + 8 * 16 + 8) * 4 // 4
    root = (8 + 8 * 8 + 8 + 8 + 8 + 8 * 8 + 8) * 4 // 4
    assert (model["bytes"], model["units"][0]["bytes"]) == (root, 3 * block)
    assert model["held"] == {"parameters": root, "gradients": root, "optimizer state": 0}
    assert program["held"]["world_size"] == 4
    assert program["held"]["bytes"]["parameters"] == root + 3 * block


def test_folders_have_several_programs(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(HEAD + "fully_shard(model)\n" + RUN)
    result = plans([tmp_path])
    assert {Path(one.entry or "").name for one in result.programs} == {"one.py", "two.py"}
