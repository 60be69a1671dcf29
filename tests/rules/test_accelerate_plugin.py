"""Accelerate's plugin in code: what each argument becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.diagnostics.finding import Finding, Safety
from fsdplint.engine.check import check
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

RULE = rule_by_code("FSDP221")
assert RULE is not None
HEAD = """\
from functools import partial
import torch
from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin
from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from layers import Block

model = torch.nn.Sequential(torch.nn.Linear(8, 8))
"""
TAIL = """\
accelerator = Accelerator(fsdp_plugin=plugin)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
"""
STATE = 'state_dict_type="SHARDED_STATE_DICT"'


def program(arguments: str, tail: str = TAIL) -> str:
    return HEAD + f"plugin = FullyShardedDataParallelPlugin({arguments})\n" + tail


def found(folder: Path, text: str) -> Finding:
    path = folder / "train.py"
    path.write_text(text)
    (finding,) = check(load([path]), [RULE()])
    return finding


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('sharding_strategy="FULL_SHARD"', "reshard_after_forward=True"),
        ("sharding_strategy=2", "reshard_after_forward=False"),
        ("sharding_strategy=ShardingStrategy.SHARD_GRAD_OP", "reshard_after_forward=False"),
        ('fsdp_version=1, reshard_after_forward="FULL_SHARD"', "reshard_after_forward=True"),
        ("use_orig_params=True, cpu_offload=CPUOffload(flag())", "cpu_offload=flag()"),
        ("use_orig_params=False, cpu_offload=CPUOffload()", "cpu_offload=False"),
        ("forward_prefetch=False, min_num_params=5", "min_num_params=5"),
        (
            "sync_module_states=True, cpu_ram_efficient_loading=True",
            "cpu_ram_efficient_loading=True",
        ),
        ('limit_all_gathers=True, auto_wrap_policy="no_wrap"', 'auto_wrap_policy="no_wrap"'),
    ],
)
def test_arguments(before: str, after: str, tmp_path: Path) -> None:
    text = program(f"{before}, {STATE}")
    finding = found(tmp_path, text)
    assert finding.fix is not None and finding.fix.safety is Safety.SAFE, finding.blocker
    result = fix(Workspace([tmp_path / "train.py"]), [RULE()])
    (new,) = result.texts.values()
    lines = set(new.splitlines()) - set(text.splitlines())
    calls = [line for line in lines if "Plugin(" in line]
    assert len(calls) == 1 and not result.found
    assert calls[0].startswith("plugin = FullyShardedDataParallelPlugin(")
    inner = calls[0].partition("(")[2].removesuffix(")").replace("fsdp_version=2", "").strip(", ")
    assert ", ".join(inner.replace(" ,", "").split(", ")) == f"{after}, {STATE}"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (f"sync_module_states=True, {STATE}", "rank 0"),
        (f"use_orig_params=True, activation_checkpointing=flag(), {STATE}", "dropout"),
        ("use_orig_params=True", "full state dicts"),
        (
            f"use_orig_params=True, {STATE}, "
            "mixed_precision_policy=MixedPrecision(buffer_dtype=torch.bfloat16)",
            "buffers",
        ),
    ],
)
def test_unsafe(arguments: str, word: str, tmp_path: Path) -> None:
    finding = found(tmp_path, program(arguments))
    assert finding.fix is not None and finding.fix.safety is Safety.UNSAFE
    assert word in finding.fix.title


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ('sharding_strategy="NO_SHARD"', "MULTI_GPU"),
        ("sharding_strategy=4", "ParallelismConfig"),
        ("sharding_strategy=choose()", "only known"),
        ('use_orig_params=True, auto_wrap_policy="SIZE_BASED_WRAP"', "classes"),
        ("use_orig_params=True, auto_wrap_policy=my_policy", "classes"),
        ("use_orig_params=True, ignored_modules=[model[0]]", "ignored"),
        ('use_orig_params=True, state_dict_type="local_state_dict"', "LOCAL_STATE_DICT"),
        ("use_orig_params=True, param_init_fn=init", "param_init_fn"),
        ("use_orig_params=True, state_dict_config=FullStateDictConfig()", "`rank0_only` sends"),
        (
            "auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}), "
            "optim_state_dict_config=FullOptimStateDictConfig(rank0_only=False)",
            "`optim_state_dict_config` have other meanings",
        ),
        ("use_orig_params=True, **options", "unpacks"),
        ("use_orig_params=True, mixed_precision_policy={'param_dtype': 1}", "counterpart"),
        ('fsdp_version=1, reshard_after_forward="HYBRID_SHARD"', "FULL_SHARD, not HYBRID"),
    ],
)
def test_blockers(arguments: str, word: str, tmp_path: Path) -> None:
    finding = found(tmp_path, program(arguments))
    assert finding.fix is None and finding.blocker is not None and word in finding.blocker


@pytest.mark.parametrize(
    "tail",
    [
        "accelerator = Accelerator(fsdp_plugin=plugin)\nmodel = accelerator.prepare(model)\n",
        "accelerator = Accelerator(fsdp_plugin=plugin)\nmodel = accelerator.prepare_model(model)\n",
        TAIL + "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "print(isinstance(model, FSDP))\n",
    ],
)
def test_what_the_program_does_is_in_the_way(tail: str, tmp_path: Path) -> None:
    finding = found(tmp_path, program(f"use_orig_params=True, {STATE}", tail))
    assert finding.fix is None and finding.related


@pytest.mark.parametrize(
    "arguments", ["fsdp_version=2, sharding_strategy=x", "", "cpu_offload=True"]
)
def test_not_fsdp1_or_not_known(arguments: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(program(arguments))
    assert not check(load([path]), [RULE()])


def test_what_is_the_plugins_is_no_migration_of_torchs_fsdp1(tmp_path: Path) -> None:
    """FSDP1's names in its arguments, and in variables for them, are what its own fix is about."""
    from fsdplint.migration.planner import plans_of

    arguments = f"mixed_precision_policy=MixedPrecision(), cpu_offload=offload, {STATE}"
    text = program(arguments).replace("plugin =", "offload = CPUOffload()\nplugin =")
    (tmp_path / "train.py").write_text(text)
    assert not plans_of(load([tmp_path / "train.py"]))
    (tmp_path / "train.py").write_text(text + "print(ShardingStrategy.FULL_SHARD)\n")
    assert plans_of(load([tmp_path / "train.py"]))
