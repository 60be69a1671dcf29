"""Policies that some calls or configurations have and others have not, and policies of two models."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan


def test_a_shared_policy_may_pick_the_model_itself(tmp_path: Path) -> None:
    body = """
    policy = ModuleWrapPolicy({nn.Sequential})
    model = FSDP(nn.Sequential(Block(), nn.Sequential(Block())), auto_wrap_policy=policy)
    other = FSDP(nn.Sequential(Block(), nn.Sequential(Block())), auto_wrap_policy=policy)
    """
    text = migrated(tmp_path, body)
    assert text.count("for module in reversed(list(model.modules())[1:]):") == 1
    assert text.count("for module in reversed(list(other.modules())[1:]):") == 1


CHOICES = {
    "first": (
        "ModuleWrapPolicy({kind}) if kind is not None else None",
        "({}) if kind is not None else None",
    ),
    "last": (
        "None if kind is None else ModuleWrapPolicy({kind})",
        "None if kind is None else {}",
    ),
}


@pytest.mark.parametrize(("choice", "after"), list(CHOICES.values()), ids=list(CHOICES))
def test_a_choice_between_a_policy_and_none(choice: str, after: str, tmp_path: Path) -> None:
    body = f"""
    def shard_model(model, kind):
        policy = {choice}
        return FSDP(model, auto_wrap_policy=policy)


    model = shard_model(Net(), Block if os.environ.get("WRAP") else None)
    """
    text = migrated(tmp_path, body)
    assert f"    policy = {after.format('lambda module: isinstance(module, kind)')}\n" in text
    assert "    if policy is not None:\n" in text


NARROW = """\
import os
import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers import AutoModelForCausalLM

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
"""


def test_a_long_call_in_the_block_of_a_test(tmp_path: Path) -> None:
    body = """
    def shard(model, offloads):
        kind = next((type(m) for m in model.modules() if hasattr(m, "mlp")), None)
        if kind is not None:
            policy = ModuleWrapPolicy({kind})
        else:
            policy = None
        precision = MixedPrecision(param_dtype=torch.bfloat16)
        offload_policy = CPUOffload(offload_params=True) if offloads else None
        model = FSDP(
            model,
            auto_wrap_policy=policy,
            mixed_precision=precision,
            cpu_offload=offload_policy,
        )
        return model


    shard(AutoModelForCausalLM.from_pretrained("gpt2"), "OFFLOAD" in os.environ)
    """
    _, text = plan(tmp_path, body, NARROW)
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.endswith("    fully_shard("))
    assert len(lines[at + 1]) - len(lines[at + 1].lstrip()) == (
        len(lines[at]) - len(lines[at].lstrip()) + 4
    )


TWO_MODELS = """
import sys


def shard(model, other):
    klass = getattr(sys.modules[__name__], os.environ["BLOCK"])
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={klass})
    model = FSDP(model, auto_wrap_policy=policy)
    if other is not None:
        other = FSDP(other, auto_wrap_policy=policy)
    return model, other


shard(Net(), Net() if os.environ["LOSS"] == "dpo" else None)
"""


def test_neither_of_two_models_is_a_unit_of_its_own_policy(tmp_path: Path) -> None:
    found, text = plan(tmp_path, TWO_MODELS)
    assert not found.blockers
    assert text.count(".modules())[1:])") == 2


@pytest.mark.parametrize("size", ["", "int(1e5)", "min(64, 128)"])
def test_a_policy_by_size_is_chosen(size: str, tmp_path: Path) -> None:
    policy = "size_based_auto_wrap_policy"
    if size:
        policy = f"functools.partial({policy}, min_num_params={size})"
    body = f"""
    def build(model, kind):
        policy = always_wrap_policy if kind == "all" else {policy}
        return FSDP(model, auto_wrap_policy=policy)


    model = build(Net(), os.environ.get("POLICY"))
    """
    text = migrated(tmp_path, body)
    expected = f"partial(shard_large_modules, min_num_params={size or 'int(1e8)'})\n"
    assert expected in text


SEVERAL = """\
def policy_for(kind):
    if kind == "size":
        return functools.partial(size_based_auto_wrap_policy, min_num_params=100)
    elif kind == "all":
        return always_wrap_policy
    return None


policy = policy_for(os.environ["KIND"])
model = FSDP(Net(), auto_wrap_policy=policy)
"""


def test_a_function_gives_a_size_all_or_none(tmp_path: Path) -> None:
    text = migrated(tmp_path, SEVERAL)
    assert "return functools.partial(shard_large_modules, min_num_params=100)" in text
    assert "return functools.partial(shard_matching_modules, test=lambda module: not " in text
    assert "if policy is not None:\n    policy(model)\nfully_shard(model)\n" in text
