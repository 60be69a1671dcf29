"""The command `plan`: its reports, its pages and its sizes."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from json_schemas import validate
from unit_programs import FSDP2, HEAD, RUN

from fsdplint.cli.main import main
from fsdplint.comparison.unit_report import Held
from fsdplint.comparison.unit_tree import Layout, Unit
from fsdplint.engine.planning import plans


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
