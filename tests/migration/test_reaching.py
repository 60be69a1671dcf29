"""A variable that gets one value after the other, as in a script that builds its model twice."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

IN_ORDER = {
    "two dicts": (
        """
        options = dict(
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
        )
        model = FSDP(Net(), **options)
        options = dict(cpu_offload=CPUOffload(True))
        options["limit_all_gathers"] = True
        again = FSDP(Net(), **options)
        """,
        """
        options = dict(reshard_after_forward=False)
        model = Net()
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module, **options)
        fully_shard(model, **options)
        options = dict(offload_policy=CPUOffloadPolicy())
        again = fully_shard(Net(), **options)
        """,
    ),
    "two dicts, each for several calls": (
        """
        options = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        first = FSDP(Net(), **options)
        second = FSDP(Net(), **options)
        options = dict(sharding_strategy=ShardingStrategy.FULL_SHARD)
        first = FSDP(Net(), **options)
        second = FSDP(Net(), **options)
        """,
        """
        first = fully_shard(Net(), reshard_after_forward=False)
        second = fully_shard(Net(), reshard_after_forward=False)
        first = fully_shard(Net())
        second = fully_shard(Net())
        """,
    ),
    "two results of a function": (
        """
        def options_of(strategy):
            return dict(sharding_strategy=strategy, use_orig_params=True)


        strategy = ShardingStrategy.SHARD_GRAD_OP
        options = options_of(strategy)
        first = FSDP(Net(), **options)
        options = options_of(strategy)
        second = FSDP(Net(), **options)
        """,
        None,
    ),
}
PARTIALS = {
    "two policies": (
        """
        def choose(module):
            if isinstance(module, Block):
                return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
            return False


        policy = CustomPolicy(choose)
        first = FSDP(Net(), auto_wrap_policy=policy)
        policy = CustomPolicy(choose)
        second = FSDP(Net(), auto_wrap_policy=policy)
        """,
        """
        def choose(module):
            if isinstance(module, Block):
                return True
            return False


        first = Net()
        for submodule in reversed(list(first.modules())[1:]):
            if choose(submodule):
                fully_shard(submodule, reshard_after_forward=False)
        fully_shard(first)
        second = Net()
        for submodule in reversed(list(second.modules())[1:]):
            if choose(submodule):
                fully_shard(submodule, reshard_after_forward=False)
        fully_shard(second)
        """,
    ),
    "two partials": (
        """
        shard = functools.partial(FSDP, auto_wrap_policy=CustomPolicy(lambda m: isinstance(m, Block)))
        model = Net()
        model = shard(model)
        shard = functools.partial(FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        again = shard(Net())
        """,
        """
        model = Net()
        for module in reversed(list(model.modules())[1:]):
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(model)
        again = fully_shard(Net(), reshard_after_forward=False)
        """,
    ),
    "a partial of the variable that it replaces": (
        """
        model = Net()
        model.side = nn.Linear(8, 8).requires_grad_(False)
        shard = functools.partial(FSDP, auto_wrap_policy=always_wrap_policy, ignored_modules=[model.side])
        model = shard(model)
        """,
        """
        model = Net()
        model.side = nn.Linear(8, 8).requires_grad_(False)
        ignored_params = set(model.side.parameters())
        for module in reversed(list(model.modules())[1:]):
            if not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
                fully_shard(module, ignored_params=ignored_params)
        fully_shard(model, ignored_params=ignored_params)
        """,
    ),
}
OTHERWISE = {
    "in a branch": (
        """
        options = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        if os.environ.get("OFFLOAD"):
            options = dict(cpu_offload=CPUOffload(True))
        model = FSDP(Net(), **options)
        """
    ),
    "in a loop": (
        """
        options = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        for _ in range(2):
            model = FSDP(Net(), **options)
            options = dict(cpu_offload=CPUOffload(True))
        """
    ),
    "before a function that reads it runs again": (
        """
        options = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


        def build():
            return FSDP(Net(), **options)


        model = build()
        options = dict(cpu_offload=CPUOffload(True))
        model = build()
        """
    ),
}


@pytest.mark.parametrize(("body", "expected"), list(IN_ORDER.values()), ids=list(IN_ORDER))
def test_one_dict_after_the_other(tmp_path: Path, body: str, expected: str | None) -> None:
    text = migrated(tmp_path, body)
    if expected is not None:
        assert text.strip() == textwrap.dedent(expected).strip()
    else:
        assert text.count(" = options_of(strategy)\n") == 2 and text.count("fully_shard(") == 2


@pytest.mark.parametrize(("body", "expected"), list(PARTIALS.values()), ids=list(PARTIALS))
def test_one_value_after_the_other(tmp_path: Path, body: str, expected: str) -> None:
    assert migrated(tmp_path, body).strip() == textwrap.dedent(expected).strip()


@pytest.mark.parametrize("body", list(OTHERWISE.values()), ids=list(OTHERWISE))
def test_a_dict_that_is_perhaps_another(tmp_path: Path, body: str) -> None:
    text = migrated(tmp_path, body)
    assert 'options.get("sharding_strategy") == "SHARD_GRAD_OP"' in text
    assert 'offload_policy=options.get("cpu_offload") or OffloadPolicy()' in text
