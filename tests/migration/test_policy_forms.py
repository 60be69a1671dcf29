"""The text that each form of a wrapping policy is migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
    "a policy with a lambda": (
        """
        policy = functools.partial(
            lambda_auto_wrap_policy,
            lambda_fn=lambda m: isinstance(m, Block) and m.training,  # no frozen ones
        )
        model = FSDP(
            Net(),
            auto_wrap_policy=policy,
            #sync_module_states=True,
        )
        """,
        """
        model = Net()
        # no frozen ones
        for module in reversed(list(model.modules())[1:]):
            if isinstance(module, Block) and module.training:
                fully_shard(module)
        fully_shard(model)
        """,
    ),
    "one policy or another": (
        """
        first = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
        second = ModuleWrapPolicy({Masked})
        model = FSDP(Net(), auto_wrap_policy=functools.partial(_or_policy, policies=[first, second]))
        """,
        """
        model = Net()
        for module in reversed(list(model.modules())):
            if isinstance(module, (Block, Masked)):
                fully_shard(module)
        fully_shard(model)
        """,
    ),
    "a policy that says yes or no": (
        """
        def is_block(module):
            return isinstance(module, Block) and module.training


        model = FSDP(Net(), auto_wrap_policy=CustomPolicy(is_block))
        """,
        """
        def is_block(module):
            return isinstance(module, Block) and module.training


        model = Net()
        for submodule in reversed(list(model.modules())[1:]):
            if is_block(submodule):
                fully_shard(submodule)
        fully_shard(model)
        """,
    ),
    "comments with other values of a policy's arguments": (
        """
        policy = functools.partial(
            # always_wrap_policy,
            transformer_auto_wrap_policy,
            # The blocks are large.
            # Blocks.
            transformer_layer_cls={Block},  # 100
            # blocks,
        )
        model = FSDP(Net(), auto_wrap_policy=policy)
        """,
        """
        model = Net()
        # The blocks are large.
        # Blocks.
        # blocks,
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(model)
        """,
    ),
    "a policy by size beside ignored parameters": (
        """
        model = Net()
        model.blocks[0].requires_grad_(False)
        model = FSDP(
            model,
            auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=20),
            ignored_modules=[model.blocks[0]],
        )
        """,
        """
        model = Net()
        model.blocks[0].requires_grad_(False)


        def shard_large_modules(model, min_num_params, ignored_params=frozenset(), **kwargs):
            \"\"\"Shard each submodule that holds at least min_num_params parameters which no
            submodule of its own has taken.
            \"\"\"

            def visit(module):
                numel = sum(p.numel() for p in module.parameters() if p not in ignored_params)
                if numel < min_num_params or isinstance(module, nn.MultiheadAttention):
                    return 0
                taken = sum(visit(child) for child in module.children())
                if module is model or isinstance(module, (nn.ModuleList, nn.ModuleDict)):
                    return taken
                if numel - taken < min_num_params:
                    return taken
                fully_shard(module, ignored_params=ignored_params, **kwargs)
                return numel

            visit(model)


        ignored_params = set(model.blocks[0].parameters())
        shard_large_modules(model, 20, ignored_params=ignored_params)
        fully_shard(model, ignored_params=ignored_params)
        """,
    ),
    "a lambda that always goes into the parts": (
        """
        model = FSDP(
            Net(), auto_wrap_policy=lambda module, recurse, **rest: recurse or isinstance(module, Block)
        )
        """,
        """
        model = Net()
        for submodule in reversed(list(model.modules())):
            if isinstance(submodule, Block):
                fully_shard(submodule)
        fully_shard(model)
        """,
    ),
    "a lambda that goes into the parts and asks for more than the class": (
        """
        model = Net()
        FSDP(
            model,
            auto_wrap_policy=lambda module, recurse, nonwrapped_numel: (
                recurse or module in model.blocks
            ),
        )
        """,
        """
        model = Net()
        for submodule in reversed(list(model.modules())[1:]):
            if submodule in model.blocks:
                fully_shard(submodule)
        fully_shard(model)
        """,
    ),
    "a policy by size that nothing uses, and the comments of another": (
        """
        def by_size(min_params=1e8):
            policy = functools.partial(
                size_based_auto_wrap_policy, min_num_params=min_params
            )
            return policy


        blocks = functools.partial(
            transformer_auto_wrap_policy,
            transformer_layer_cls={Block})    # not the head
        fsdp_kwargs = dict(auto_wrap_policy=blocks, cpu_offload=CPUOffload(offload_params=True))
        model = FSDP(Net(), **fsdp_kwargs)
        other = FSDP(
            Net(),
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            sharding_strategy=ShardingStrategy.FULL_SHARD,  # or SHARD_GRAD_OP
        )
        """,
        """
        fsdp_kwargs = dict(offload_policy=CPUOffloadPolicy())
        model = Net()
        # not the head
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module, **fsdp_kwargs)
        fully_shard(model, **fsdp_kwargs)
        other = Net()
        for module in reversed(list(other.modules())):
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(other)
        """,
    ),
    "nested by hand": (
        """
        model = Net()
        model.blocks = nn.ModuleList([FSDP(block) for block in model.blocks])
        model = FSDP(model)
        """,
        """
        model = Net()
        model.blocks = nn.ModuleList([fully_shard(block) for block in model.blocks])
        fully_shard(model)
        """,
    ),
    "a policy of the modules of a list": (
        """
        class Stacked(Net):
            def units(self):
                return list(self.blocks)


        def main(model, two):
            model = FSDP(model, auto_wrap_policy=functools.partial(
                lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.blocks
            ))
            two = FSDP(two, auto_wrap_policy=functools.partial(
                lambda_auto_wrap_policy, lambda_fn=lambda m: m in two.units()
            ))
            return model, two


        main(Net(), Stacked())
        """,
        """
        class Stacked(Net):
            def units(self):
                return list(self.blocks)


        def main(model, two):
            for block in model.blocks:
                fully_shard(block)
            fully_shard(model)
            for module in two.units():
                fully_shard(module)
            fully_shard(two)
            return model, two


        main(Net(), Stacked())
        """,
    ),
    "a list with a module that holds another": (
        """
        model = Net()
        parts = [model.blocks[0], model.blocks[0].linear]
        model = FSDP(model, auto_wrap_policy=functools.partial(
            lambda_auto_wrap_policy, lambda_fn=lambda m: m in parts
        ))
        """,
        """
        model = Net()
        parts = [model.blocks[0], model.blocks[0].linear]
        for module in reversed(list(model.modules())[1:]):
            if module in parts:
                fully_shard(module)
        fully_shard(model)
        """,
    ),
    "comments above a policy": (
        """
        def main():
            model = Net()

            # one unit a block
            policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})

            print("sharding")
            model = FSDP(model, auto_wrap_policy=policy)

            # another policy
            # for the second model
            other = ModuleWrapPolicy({Block})

            second = Net()
            second = FSDP(second, auto_wrap_policy=other)

            # for both
            third_policy = ModuleWrapPolicy({Block})
            third = Net()
            third = FSDP(third, auto_wrap_policy=third_policy)


        main()
        """,
        """
        def main():
            model = Net()

            print("sharding")
            # one unit a block
            for module in reversed(list(model.modules())):
                if isinstance(module, Block):
                    fully_shard(module)
            fully_shard(model)

            second = Net()
            # another policy
            # for the second model
            for module in reversed(list(second.modules())):
                if isinstance(module, Block):
                    fully_shard(module)
            fully_shard(second)

            # for both
            third = Net()
            for module in reversed(list(third.modules())):
                if isinstance(module, Block):
                    fully_shard(module)
            fully_shard(third)


        main()
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()
