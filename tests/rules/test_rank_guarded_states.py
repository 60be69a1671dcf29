"""FSDP501 on the states of FSDP1's models and optimizers: what communicates, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
)

dist.init_process_group("gloo")
model = FSDP(nn.Linear(8, 8), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
state = torch.load("optimizer.pt")
"""
LOAD = "if dist.get_rank() == 0:\n    FSDP.optim_state_dict_to_load(model, optimizer, state)\n"


def lines(tmp_path: Path, body: str) -> list[int]:
    path = tmp_path / "program.py"
    path.write_text(HEAD + body)
    rule = rule_by_code("FSDP501")
    assert rule is not None
    found = check(load([path]), [rule()])
    return [finding.site.location().line - HEAD.count("\n") for finding in found]


def with_type(kind: str, *configs: str, body: str = LOAD) -> str:
    arguments = ", ".join(("model", f"StateDictType.{kind}", *configs))
    block = "".join(f"    {line}\n" for line in body.splitlines())
    return f"with FSDP.state_dict_type({arguments}):\n{block}"


SILENT = {
    "no type": LOAD,
    "whole": with_type("FULL_STATE_DICT"),
    "whole on every rank": with_type(
        "FULL_STATE_DICT",
        "FullStateDictConfig(rank0_only=False)",
        "FullOptimStateDictConfig(rank0_only=False)",
    ),
    "only the model's state is of rank 0": with_type(
        "FULL_STATE_DICT", "FullStateDictConfig(rank0_only=True)"
    ),
    "set beforehand": "FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)\n" + LOAD,
    "an unknown type": with_type("FULL_STATE_DICT").replace(
        "StateDictType.FULL_STATE_DICT", "kind"
    ),
    "an unknown config": with_type("FULL_STATE_DICT", "None", "make_config()"),
    "an unknown flag": with_type(
        "FULL_STATE_DICT", "None", "FullOptimStateDictConfig(rank0_only=args.rank0)"
    ),
    "sharded by hand": LOAD.replace(
        "optim_state_dict_to_load(model, optimizer, state)",
        "shard_full_optim_state_dict(state, model)",
    ),
    "keys renamed": LOAD.replace(
        "optim_state_dict_to_load(model, optimizer, state)",
        "rekey_optim_state_dict(state, 1, model)",
    ),
}


@pytest.mark.parametrize("body", SILENT.values(), ids=SILENT)
def test_whole_tensors_are_cut_by_each_rank(tmp_path: Path, body: str) -> None:
    assert lines(tmp_path, body) == []


FOUND = {
    "broadcast": with_type(
        "FULL_STATE_DICT",
        "FullStateDictConfig(rank0_only=True)",
        "FullOptimStateDictConfig(rank0_only=True)",
    ),
    "by position": with_type("FULL_STATE_DICT", "None", "FullOptimStateDictConfig(False, True)"),
    "sharded": with_type(
        "SHARDED_STATE_DICT", "ShardedStateDictConfig()", "ShardedOptimStateDictConfig()"
    ),
    "scattered": "\n"
    + LOAD.replace(
        "optim_state_dict_to_load(model, optimizer, state)",
        "scatter_full_optim_state_dict(state, model)",
    ),
    "taken": "\n" + LOAD.replace("optim_state_dict_to_load(model, optimizer, state)",
                                 "optim_state_dict(model, optimizer)"),
}  # fmt: skip


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_what_is_sent_needs_every_rank(tmp_path: Path, body: str) -> None:
    assert lines(tmp_path, body) == [3]


KINDS = ("FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT")
FULL = "options=StateDictOptions(full_state_dict=True)"


def guarded(call: str) -> str:
    return f"if dist.get_rank() == 0:\n    {call}\n"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_state_is_taken_together(tmp_path: Path, kind: str) -> None:
    assert lines(tmp_path, with_type(kind, body=guarded("model.state_dict()"))) == [3]


@pytest.mark.parametrize("kind", KINDS)
def test_a_local_state_is_loaded_alone(tmp_path: Path, kind: str) -> None:
    found = lines(tmp_path, with_type(kind, body=guarded("model.load_state_dict(state)")))
    assert found == ([] if kind == "LOCAL_STATE_DICT" else [3])


TOGETHER = {
    "get": "get_model_state_dict(model)",
    "get whole": f"get_model_state_dict(model, {FULL})",
    "set": "set_model_state_dict(model, state)",
    "set whole": f"set_model_state_dict(model, state, {FULL})",
    "set the optimizer's": "set_optimizer_state_dict(model, optimizer, state)",
    "broadcast the optimizer's": "set_optimizer_state_dict(model, optimizer, state, options="
    "StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))",
}


@pytest.mark.parametrize("call", TOGETHER.values(), ids=TOGETHER)
def test_functions_that_communicate(tmp_path: Path, call: str) -> None:
    assert lines(tmp_path, guarded(call)) == [2]


def test_each_rank_cuts_its_part_of_a_whole_optimizer(tmp_path: Path) -> None:
    call = f"set_optimizer_state_dict(model, optimizer, state, {FULL})"
    assert lines(tmp_path, guarded(call)) == []


def test_summoned_parameters_are_whole(tmp_path: Path) -> None:
    block = with_type("FULL_STATE_DICT", body=guarded("model.state_dict()"))
    summon = "FSDP.summon_full_params(model)"
    first = block.partition(":")[0]
    assert lines(tmp_path, block.replace(first, f"with {summon}", 1)) == []


@pytest.mark.parametrize("call", ["state_dict()", "load_state_dict(state)"])
def test_what_is_not_sharded_is_not_gathered(tmp_path: Path, call: str) -> None:
    body = "model = FSDP(nn.Linear(8, 8), sharding_strategy=ShardingStrategy.NO_SHARD)\n"
    assert lines(tmp_path, body + guarded(f"model.{call}")) == []
