"""Policies that code other than the constructor reads."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

from fsdplint.interpreter import load
from fsdplint.migration.planner import plans_of

FORMS = {
    "a policy in a dict that the program calls": (
        """
        policies = {"blocks": ModuleWrapPolicy({Block}), "none": None}
        print(sum(policies["blocks"](m, False, 0) for m in Net().modules()))
        """,
        """
        policies = {"blocks": ModuleWrapPolicy({Block}), "none": None}
        print(sum(policies["blocks"](m, False, 0) for m in Net().modules()))
        """,
    ),
    "a policy that activation checkpointing reads too": (
        """
        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
        model = FSDP(Net(), auto_wrap_policy=policy)
        apply_activation_checkpointing(model, auto_wrap_policy=policy)
        """,
        """
        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
        model = Net()
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(model)
        apply_activation_checkpointing(model, auto_wrap_policy=policy)
        """,
    ),
    "a policy that a function gives and another library reads": (
        """
        class Config:
            pass


        def get_policy(size):
            return functools.partial(size_based_auto_wrap_policy, min_num_params=size)


        config = Config()
        config.policy = get_policy(100)
        model = FSDP(Net(), auto_wrap_policy=config.policy)
        build_tree(model, policy=config.policy)
        """,
        '''
        class Config:
            pass


        def get_policy(size):
            return functools.partial(size_based_auto_wrap_policy, min_num_params=size)


        config = Config()
        config.policy = get_policy(100)


        def shard_by_policy(model, policy, **kwargs):
            """Shard the submodules that a policy(module, recurse, nonwrapped_numel) picks,
            children first.
            """

            def visit(module):
                numel = sum(p.numel() for p in module.parameters())
                if not policy(module=module, recurse=True, nonwrapped_numel=numel):
                    return 0
                taken = sum(visit(child) for child in module.children())
                if module is model:
                    return taken
                if not policy(module=module, recurse=False, nonwrapped_numel=numel - taken):
                    return taken
                fully_shard(module, **kwargs)
                return numel

            visit(model)


        model = Net()
        shard_by_policy(model, config.policy)
        fully_shard(model)
        build_tree(model, policy=config.policy)
        ''',
    ),
    "a policy that is shown, and given to two models": (
        """
        policy = ModuleWrapPolicy({Block})
        print(policy)
        model = FSDP(Net(), auto_wrap_policy=policy)
        other = FSDP(Net(), auto_wrap_policy=policy)
        """,
        """
        policy = lambda module: isinstance(module, Block)
        print(policy)
        model = Net()
        for module in reversed(list(model.modules())):
            if policy(module):
                fully_shard(module)
        fully_shard(model)
        other = Net()
        for module in reversed(list(other.modules())):
            if policy(module):
                fully_shard(module)
        fully_shard(other)
        """,
    ),
    "a policy that Accelerate's FSDP1 gets too": (
        """
        from accelerate import FullyShardedDataParallelPlugin

        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
        model = FSDP(Net(), auto_wrap_policy=policy)
        plugin = FullyShardedDataParallelPlugin(auto_wrap_policy=policy, use_orig_params=True)
        """,
        """
        from accelerate import FullyShardedDataParallelPlugin

        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
        model = Net()
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(model)
        plugin = FullyShardedDataParallelPlugin(auto_wrap_policy=policy, use_orig_params=True)
        """,
    ),
    "a policy of a library": (
        """
        from library.policies import make_policy
        policy = make_policy()
        model = FSDP(Net(), auto_wrap_policy=policy)
        """,
        """
        from library.policies import make_policy
        policy = make_policy()


        def shard_by_policy(model, policy, **kwargs):
            \"\"\"Shard the submodules that a policy(module, recurse, nonwrapped_numel) picks,
            children first.
            \"\"\"

            def visit(module):
                numel = sum(p.numel() for p in module.parameters())
                if not policy(module=module, recurse=True, nonwrapped_numel=numel):
                    return 0
                taken = sum(visit(child) for child in module.children())
                if module is model:
                    return taken
                if not policy(module=module, recurse=False, nonwrapped_numel=numel - taken):
                    return taken
                fully_shard(module, **kwargs)
                return numel

            visit(model)


        model = Net()
        if policy is not None:
            shard_by_policy(model, policy)
        fully_shard(model)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()


WORKER = """
def work(rank, size, policy=None):
    dist.init_process_group("nccl", rank=rank, world_size=size)
    model = FSDP(Net(), auto_wrap_policy=policy)
    model(torch.ones(2, 8)).sum().backward()


policy = None
if os.environ.get("LAYERS"):
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
torch.multiprocessing.spawn(work, args=(2, policy), nprocs=2)
"""


def test_a_policy_that_a_process_may_not_get(tmp_path: Path) -> None:
    text = migrated(tmp_path, WORKER)
    assert "    if policy is not None:\n        shard_by_policy(model, policy)\n" in text, text


def test_a_policy_with_more_places_than_are_followed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not followed may call the policy with FSDP1's three arguments."""
    monkeypatch.setattr("fsdplint.migration.analysis.value_uses.MAX_PLACES", 1)
    body = """
policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
model = FSDP(Net(), auto_wrap_policy=policy)
"""
    text = migrated(tmp_path, body)
    assert "policy = functools.partial(transformer_auto_wrap_policy" in text
    assert "fully_shard(model)" in text


ELSEWHERE = """\
import functools
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy


def make_policy():
    return functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: hasattr(m, "bias"))
"""
RENAMED = """\
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from kinds import make_policy as linears


def show(module):
    policy = linears()
    print(policy(module=module, recurse=False, nonwrapped_numel=3))


dist.init_process_group("nccl")
model = FSDP(nn.Linear(4, 4), auto_wrap_policy=linears(), device_id=dist.get_rank())
HOOKS = {"show": show}
"""


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (RENAMED, True),
        (RENAMED.replace("policy = linears()", "policy = make_policy()").replace(
            "HOOKS", "def make_policy():\n    return print\n\n\nHOOKS"
        ), False),
    ],
)  # fmt: skip
def test_a_policy_is_followed_by_what_names_are_bound_to(
    text: str, kept: bool, tmp_path: Path
) -> None:
    (tmp_path / "kinds.py").write_text(ELSEWHERE, encoding="utf-8")
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    (found,) = plans_of(load(sorted(tmp_path.glob("*.py"))))
    assert not found.blockers
    changed = {Path(edit.path).name for edit in found.edits}
    assert ("kinds.py" not in changed) is kept
