"""Functions that return a partial of FSDP1's class."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

PARTIAL = """
def make_wrapper(classes, strategy=ShardingStrategy.SHARD_GRAD_OP):
    print("wrap", classes)
    return functools.partial(
        FSDP,
        auto_wrap_policy=ModuleWrapPolicy(classes),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    )


wrapper = make_wrapper({Block})
net = wrapper(Net())
"""
AFTER = """
def make_wrapper(classes, strategy="SHARD_GRAD_OP"):
    print("wrap", classes)

    def shard_model(model):
        for module in reversed(list(model.modules())):
            if isinstance(module, tuple(classes)):
                fully_shard(module, reshard_after_forward=False)
        return fully_shard(model, reshard_after_forward=False)

    return shard_model


wrapper = make_wrapper({Block})
net = wrapper(Net())
"""


def test_it_becomes_a_function(tmp_path: Path) -> None:
    assert migrated(tmp_path, PARTIAL).strip() == AFTER.strip()


def test_one_of_several_wrappers(tmp_path: Path) -> None:
    body = """
    def make_wrapper(kind):
        if kind == "fsdp":
            return functools.partial(FSDP, auto_wrap_policy=ModuleWrapPolicy({Block}))
        return nn.parallel.DistributedDataParallel


    model = make_wrapper(os.environ.get("KIND", "fsdp"))(Net())
    """
    text = migrated(tmp_path, textwrap.dedent(body))
    assert '    if kind == "fsdp":\n        def shard_model(' in text
    assert "        return shard_model\n    return nn.parallel.Distr" in text.replace("\n\n", "\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("wrapper(Net())", "wrapper(Net(), use_orig_params=True)"),
        ("ModuleWrapPolicy(classes)", "ModuleWrapPolicy({classes.pop()})"),
        ("functools.partial(\n", "functools.partial(  # for all\n"),
        ("net = wrapper(Net())", ""),
    ],
)
def test_other_partials_block(old: str, new: str, tmp_path: Path) -> None:
    assert old in PARTIAL
    found, _ = plan(tmp_path, PARTIAL.replace(old, new))
    assert found.blockers
