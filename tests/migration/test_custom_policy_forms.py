"""The text that policies which give units arguments are migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
    "a policy that gives some units a strategy which the program chooses": (
        """
        chosen = ShardingStrategy[os.environ["HOW"]]


        def choose(module):
            if isinstance(module, Block):
                return {"sharding_strategy": chosen}
            return isinstance(module, nn.Embedding)


        model = FSDP(Net(), auto_wrap_policy=CustomPolicy(choose))
        """,
        """
        chosen = os.environ["HOW"]


        def choose(module):
            if isinstance(module, Block):
                return {"reshard_after_forward": {"FULL_SHARD": True, "SHARD_GRAD_OP": False}[chosen]}
            return {} if isinstance(module, nn.Embedding) else None


        model = Net()
        for submodule in reversed(list(model.modules())[1:]):
            arguments = choose(submodule)
            if arguments is not None:
                fully_shard(submodule, **arguments)
        fully_shard(model)
        """,
    ),
    "a policy that looks up the strategy of some units": (
        """
        def shard(net, config):
            def choose(module):
                if isinstance(module, Block):
                    return {"sharding_strategy": ShardingStrategy[config["strategy"].upper()]}
                return False

            return FSDP(net, auto_wrap_policy=CustomPolicy(choose))


        model = shard(Net(), {"strategy": os.environ["HOW"]})
        """,
        """
        def shard(net, config):
            def choose(module):
                if isinstance(module, Block):
                    return {"reshard_after_forward": {"FULL_SHARD": True, "SHARD_GRAD_OP": False}[config["strategy"].upper()]}
                return None

            for submodule in reversed(list(net.modules())[1:]):
                arguments = choose(submodule)
                if arguments is not None:
                    fully_shard(submodule, **arguments)
            return fully_shard(net)


        model = shard(Net(), {"strategy": os.environ["HOW"]})
        """,
    ),
    "a policy that gives all units the same arguments": (
        """
        def choose(module):
            if isinstance(module, Block):
                return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
            return False


        model = FSDP(Net(), auto_wrap_policy=CustomPolicy(choose))
        """,
        """
        def choose(module):
            if isinstance(module, Block):
                return True
            return False


        model = Net()
        for submodule in reversed(list(model.modules())[1:]):
            if choose(submodule):
                fully_shard(submodule, reshard_after_forward=False)
        fully_shard(model)
        """,
    ),
    "a policy that gives units the arguments of the model": (
        """
        policy = CustomPolicy(
            lambda m: {"sharding_strategy": ShardingStrategy.FULL_SHARD} if m.training else False
        )
        model = FSDP(Net(), auto_wrap_policy=policy)
        """,
        """
        model = Net()
        for module in reversed(list(model.modules())[1:]):
            if module.training:
                fully_shard(module)
        fully_shard(model)
        """,
    ),
    "a policy that replaces an argument in a dict": (
        """
        arguments = dict(
            auto_wrap_policy=CustomPolicy(
                lambda m: {"sharding_strategy": ShardingStrategy.FULL_SHARD} if m.training else False
            ),
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        )
        model = FSDP(Net(), **arguments)
        """,
        """
        arguments = dict(reshard_after_forward=False)
        model = Net()
        for module in reversed(list(model.modules())[1:]):
            if module.training:
                fully_shard(module, **{**arguments, "reshard_after_forward": True})
        fully_shard(model, **arguments)
        """,
    ),
    "a policy that gives some units arguments": (
        """
        def choose(module) -> "bool | dict":
            if isinstance(module, Block):
                return dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True)
            elif module is model.head:
                return True
            return isinstance(module, Masked)


        model = Net()
        model.head = nn.Linear(8, 8)
        model = FSDP(
            model,
            auto_wrap_policy=CustomPolicy(choose),
            mixed_precision=MixedPrecision(torch.bfloat16),
            cpu_offload=CPUOffload(True),
        )
        """,
        """
        def choose(module) -> "dict | None":
            if isinstance(module, Block):
                return {"reshard_after_forward": False}
            elif module is model.head:
                return {}
            return {} if isinstance(module, Masked) else None


        model = Net()
        model.head = nn.Linear(8, 8)
        fsdp_kwargs = {
            "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
            "offload_policy": CPUOffloadPolicy(),
        }
        for submodule in reversed(list(model.modules())[1:]):
            arguments = choose(submodule)
            if arguments is not None:
                fully_shard(submodule, **fsdp_kwargs, **arguments)
        fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "a policy that replaces the only argument for some units": (
        """
        def choose(module):
            if isinstance(module, Block):
                return {"sharding_strategy": ShardingStrategy.FULL_SHARD}
            return isinstance(module, nn.Linear)


        model = FSDP(
            Net(),
            auto_wrap_policy=CustomPolicy(choose),
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        )
        """,
        """
        def choose(module):
            if isinstance(module, Block):
                return {"reshard_after_forward": True}
            return {} if isinstance(module, nn.Linear) else None


        model = Net()
        for submodule in reversed(list(model.modules())[1:]):
            arguments = choose(submodule)
            if arguments is not None:
                fully_shard(submodule, **{"reshard_after_forward": False, **arguments})
        fully_shard(model, reshard_after_forward=False)
        """,
    ),
    "a policy that a function returns, of two models": (
        """
        def make_policy():
            def choose(module):
                if isinstance(module, Block):
                    return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
                if isinstance(module, nn.Linear):
                    return True
                return False

            return CustomPolicy(choose)


        teacher = FSDP(Net(), auto_wrap_policy=make_policy())
        model = FSDP(
            Net(),
            auto_wrap_policy=make_policy(),
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        )
        """,
        """
        def make_policy():
            def choose(module):
                if isinstance(module, Block):
                    return {"reshard_after_forward": False}
                if isinstance(module, nn.Linear):
                    return {}
                return None

            return choose


        teacher = Net()
        should_shard = make_policy()
        for submodule in reversed(list(teacher.modules())[1:]):
            arguments = should_shard(submodule)
            if arguments is not None:
                fully_shard(submodule, **arguments)
        fully_shard(teacher)
        model = Net()
        should_shard = make_policy()
        for submodule in reversed(list(model.modules())[1:]):
            arguments = should_shard(submodule)
            if arguments is not None:
                fully_shard(submodule, **{"reshard_after_forward": False, **arguments})
        fully_shard(model, reshard_after_forward=False)
        """,
    ),
    "a policy of a method": (
        """
        def choose(module):
            if isinstance(module, Block):
                return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
            return isinstance(module, nn.Linear)


        class Plugin:
            def policy(self):
                return CustomPolicy(choose)


        model = FSDP(Net(), auto_wrap_policy=Plugin().policy())
        """,
        """
        def choose(module):
            if isinstance(module, Block):
                return {"reshard_after_forward": False}
            return {} if isinstance(module, nn.Linear) else None


        class Plugin:
            def policy(self):
                return choose


        model = Net()
        should_shard = Plugin().policy()
        for submodule in reversed(list(model.modules())[1:]):
            arguments = should_shard(submodule)
            if arguments is not None:
                fully_shard(submodule, **arguments)
        fully_shard(model)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()
