"""What an earlier program of the same files spares a load."""

from __future__ import annotations

from pathlib import Path

from fsdplint.interpreter import Program, load
from fsdplint.interpreter.exploration_results import Explored

SHARDED = """
import torch
from torch.distributed.fsdp import fully_shard
{before}
model = torch.nn.Linear(2, 2)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters())
"""


def write(folder: Path, **texts: str) -> list[Path]:
    paths = [folder / f"{name}.py" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    return paths


def explored(program: Program, path: Path) -> list[Explored]:
    source = program.sources[str(path)]
    return [one for one in program.explored.values() if source in one.sources]


def test_an_entry_is_not_run_again_if_its_files_are_unchanged(tmp_path: Path) -> None:
    one, other = write(tmp_path, one=SHARDED.format(before=""), other=SHARDED.format(before=""))
    first = load([one, other])
    second = load([one, other], {other: SHARDED.format(before="lr = 1")}, earlier=first)
    assert explored(second, one) == explored(first, one)
    assert not set(explored(second, other)) & set(explored(first, other))
    assert [trace.events for trace in second.traces if trace.entry == str(one)] == [
        trace.events for trace in first.traces if trace.entry == str(one)
    ]
    assert len(second.traces) == len(first.traces)


def test_an_entry_is_run_again_if_a_file_that_it_imports_changed(tmp_path: Path) -> None:
    names = "class Net(torch.nn.Module): ...\n"
    text = SHARDED.format(before="from names import Net\nNet()\n")
    one, other = write(tmp_path, one=text, names="import torch\n" + names)
    first = load([one])
    second = load([one], {other: "import torch\n\n" + names}, earlier=first)
    assert not set(explored(second, one)) & set(explored(first, one))


def test_an_entry_that_reads_settings_is_run_again_if_they_changed(tmp_path: Path) -> None:
    settings = tmp_path / "fsdp.json"
    settings.write_text('{"fsdp_version": 1}')
    text = "import transformers\ntransformers.TrainingArguments(fsdp_config='fsdp.json')\n"
    (one,) = write(tmp_path, one=SHARDED.format(before=text))
    first = load([one])
    assert first.configs
    second = load([one], earlier=first)
    assert explored(second, one) == explored(first, one)
    assert second.configs.keys() == first.configs.keys()
    third = load([one], {settings: '{"fsdp_version": 2}'}, earlier=first)
    assert not set(explored(third, one)) & set(explored(first, one))


REGISTRY = """
import sys
import torch
import entries
from registry import MODELS
MODELS[sys.argv[1]]()
"""


def test_an_entry_is_run_again_if_a_file_registers_since(tmp_path: Path) -> None:
    one, entries, _ = write(
        tmp_path, one=SHARDED.format(before=REGISTRY), entries="a = 1\n", registry="MODELS = {}\n"
    )
    first = load([one])
    assert str(entries) not in {
        source.path for known in explored(first, one) for source in known.sources
    }
    assert explored(load([one], earlier=first), one) == explored(first, one)
    text = "from registry import MODELS\nMODELS['small'] = dict\nregister(MODELS)\n"
    second = load([one], {entries: text}, earlier=first)
    assert not set(explored(second, one)) & set(explored(first, one))


def test_an_entry_is_run_again_if_a_file_can_be_read_since(tmp_path: Path) -> None:
    one, names = write(
        tmp_path,
        one=SHARDED.format(before="from names import Net\nNet()\n"),
        names="class Net(\n",
    )
    first = load([one])
    second = load([one], {names: "class Net: ...\n"}, earlier=first)
    assert not set(explored(second, one)) & set(explored(first, one))


def test_coverage_includes_what_was_not_run_again(tmp_path: Path) -> None:
    paths = write(tmp_path, one=SHARDED.format(before=""), other=SHARDED.format(before=""))
    first = load(paths[:1])
    second = load(paths, earlier=first)
    assert second.coverage and all(one.gap is None for one in second.coverage)


def test_functions_of_a_file_that_is_examined_elsewhere_are_not_run(tmp_path: Path) -> None:
    functions = """
import torch
from torch.distributed._composable.fsdp import fully_shard

def shard(model, optimizer):
    fully_shard(model)
"""
    one, other = write(tmp_path, one="from parts import shard\n", parts=functions)
    assert explored(load([one]), other)
    program = load([one], elsewhere={str(other)})
    assert str(other) in program.sources and not explored(program, other)


def test_all_uses_of_fsdp1_are_looked_at(tmp_path: Path) -> None:
    functions = """
from torch.distributed.fsdp import FullyShardedDataParallel

def shard(model, optimizer):
    return FullyShardedDataParallel(model)
"""
    before = (
        "from parts import shard\nfrom torch.distributed.fsdp import FullyShardedDataParallel\n"
    )
    one, other = write(tmp_path, one=SHARDED.format(before=before), parts=functions)
    assert explored(load([one], elsewhere={str(other)}), other)


MODEL = "import torch.nn as nn\n\nmodel = nn.Linear(8, 8)\n"


def test_the_models_of_a_further_program_have_ids_of_their_own(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text(MODEL)
    other.write_text(MODEL)
    first = load([one])
    second = load([one, other], earlier=first)
    ids = {name for trace in second.traces for name in trace.modules}
    assert len(ids) == 2 and ids > {name for trace in first.traces for name in trace.modules}


def test_a_changed_program_keeps_the_ids_of_the_other_one(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text(MODEL)
    other.write_text(MODEL)
    first = load([one, other])
    second = load([one, other], {other: "import os\n" + MODEL}, earlier=first)
    before = [set(trace.modules) for trace in first.traces]
    after = [set(trace.modules) for trace in second.traces]
    assert after[0] == before[0]
    assert after[1].isdisjoint(before[0] | before[1])
