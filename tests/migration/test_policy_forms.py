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
            if isinstance(module, Block) or isinstance(module, Masked):
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
    "classes of which a variable gives some": (
        """
        def build(model, others):
            policy = ModuleWrapPolicy({Block, *others})
            return FSDP(model, auto_wrap_policy=policy)


        model = build(Net(), (nn.Linear,))
        """,
        """
        def build(model, others):
            for module in reversed(list(model.modules())):
                if isinstance(module, (Block, *others)):
                    fully_shard(module)
            return fully_shard(model)


        model = build(Net(), (nn.Linear,))
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
    "policies that classes have": (
        """
        blocks = ModuleWrapPolicy({Block})


        class Config:
            policy = blocks


        class Small(Config):
            policy = ModuleWrapPolicy({nn.Linear})


        model = FSDP(Net(), auto_wrap_policy=(Small() if os.environ.get("SMALL") else Config()).policy)
        """,
        """
        blocks = lambda module: isinstance(module, Block)


        class Config:
            policy = staticmethod(blocks)


        class Small(Config):
            policy = staticmethod(lambda module: isinstance(module, nn.Linear))


        model = Net()
        should_shard = (Small() if os.environ.get("SMALL") else Config()).policy
        for module in reversed(list(model.modules())):
            if should_shard(module):
                fully_shard(module)
        fully_shard(model)
        """,
    ),
    "a policy for two models": (
        """
        policy = ModuleWrapPolicy({Block})
        model = FSDP(Net(), auto_wrap_policy=policy)
        average = FSDP(Net(), auto_wrap_policy=policy)
        """,
        """
        policy = lambda module: isinstance(module, Block)
        model = Net()
        for module in reversed(list(model.modules())):
            if policy(module):
                fully_shard(module)
        fully_shard(model)
        average = Net()
        for module in reversed(list(average.modules())):
            if policy(module):
                fully_shard(module)
        fully_shard(average)
        """,
    ),
    "a policy that a function gets": (
        """
        def shard(model, *, policy):
            return FSDP(model, auto_wrap_policy=policy)


        class Trainer:
            def model(self, size):
                if size > 1:
                    net = Net()
                    return shard(
                        net,
                        policy=functools.partial(
                            lambda_auto_wrap_policy, lambda_fn=lambda m: m in net.blocks
                        ),
                    )
                return shard(Net(), policy=ModuleWrapPolicy({Block}))


        model = Trainer().model(1)
        """,
        """
        def shard(model, *, policy):
            for module in reversed(list(model.modules())[1:]):
                if policy(module):
                    fully_shard(module)
            return fully_shard(model)


        class Trainer:
            def model(self, size):
                if size > 1:
                    net = Net()
                    return shard(
                        net,
                        policy=lambda module: module in net.blocks,
                    )
                return shard(Net(), policy=lambda module: isinstance(module, Block))


        model = Trainer().model(1)
        """,
    ),
    "a policy with the class of a part, chosen": (
        """
        net = Net()
        if os.environ.get("PARTS"):
            policy = ModuleWrapPolicy([type(net.blocks[0].linear)])
        else:
            policy = ModuleWrapPolicy([type(net.blocks[0])])
        model = FSDP(net, auto_wrap_policy=policy)
        """,
        """
        net = Net()
        if os.environ.get("PARTS"):
            layer_class = type(net.blocks[0].linear)
            policy = lambda module: isinstance(module, layer_class)
        else:
            layer_class = type(net.blocks[0])
            policy = lambda module: isinstance(module, layer_class)
        for module in reversed(list(net.modules())):
            if policy(module):
                fully_shard(module)
        model = fully_shard(net)
        """,
    ),
    "a list of policies that grows": (
        """
        def policies_for(blocks):
            def is_linear(module):
                return isinstance(module, nn.Linear)

            linear = functools.partial(lambda_auto_wrap_policy, lambda_fn=is_linear)
            layers = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            if blocks:
                return layers
            policies = [linear]
            if os.environ.get("LAYERS"):
                policies.append(layers)
            return functools.partial(_or_policy, policies=policies)


        model = FSDP(Net(), auto_wrap_policy=policies_for("BLOCKS" in os.environ))
        """,
        """
        def policies_for(blocks):
            def is_linear(module):
                return isinstance(module, nn.Linear)

            linear = is_linear
            layers = lambda module: isinstance(module, Block)
            if blocks:
                return layers
            policies = [linear]
            if os.environ.get("LAYERS"):
                policies.append(layers)
            return lambda module: any(policy(module) for policy in policies)


        model = Net()
        should_shard = policies_for("BLOCKS" in os.environ)
        for submodule in reversed(list(model.modules())[1:]):
            if should_shard(submodule):
                fully_shard(submodule)
        fully_shard(model)
        """,
    ),
    "policies of which one is not used": (
        """
        def linear_policy():
            return functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.Linear})


        def block_policy():
            policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            return policy


        def policies():
            blocks = None
            blocks = block_policy()
            return linear_policy(), blocks


        def main(sharded=False):
            model = Net()
            linear, blocks = policies()
            if sharded:
                other, chosen = policies()
                model = FSDP(model, auto_wrap_policy=chosen)
            return FSDP(model, auto_wrap_policy=blocks)


        main()
        """,
        """
        def linear_policy():
            return lambda module: isinstance(module, nn.Linear)


        def block_policy():
            policy = lambda module: isinstance(module, Block)
            return policy


        def policies():
            blocks = None
            blocks = block_policy()
            return linear_policy(), blocks


        def main(sharded=False):
            model = Net()
            linear, blocks = policies()
            if sharded:
                other, chosen = policies()
                if chosen is not None:
                    for module in reversed(list(model.modules())):
                        if chosen(module):
                            fully_shard(module)
                fully_shard(model)
            for module in reversed(list(model.modules())):
                if blocks(module):
                    fully_shard(module)
            return fully_shard(model)


        main()
        """,
    ),
    "a policy that is not taken here": (
        """
        def linear_policy():
            return functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: hasattr(m, "bias"))


        def main(peft=False):
            if peft:
                policy = linear_policy()
            return FSDP(Net(), auto_wrap_policy=policy if peft else ModuleWrapPolicy({Block}))


        main()
        """,
        """
        def linear_policy():
            return lambda module: hasattr(module, "bias")


        def main(peft=False):
            if peft:
                policy = linear_policy()
            model = Net()
            should_shard = policy if peft else lambda module: isinstance(module, Block)
            for module in reversed(list(model.modules())[1:]):
                if should_shard(module):
                    fully_shard(module)
            return fully_shard(model)


        main()
        """,
    ),
    "a policy that is chosen": (
        """
        if os.environ.get("BLOCKS"):
            policy = ModuleWrapPolicy({Block})
        else:
            policy = None
        model = FSDP(Net(), auto_wrap_policy=policy)
        """,
        """
        if os.environ.get("BLOCKS"):
            policy = lambda module: isinstance(module, Block)
        else:
            policy = None
        model = Net()
        if policy is not None:
            for module in reversed(list(model.modules())):
                if policy(module):
                    fully_shard(module)
        fully_shard(model)
        """,
    ),
    "a policy only under a condition": (
        """
        wrap_blocks = bool(os.environ.get("BLOCKS"))
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}) if wrap_blocks else None)
        """,
        """
        wrap_blocks = bool(os.environ.get("BLOCKS"))
        model = Net()
        if wrap_blocks:
            for module in reversed(list(model.modules())):
                if isinstance(module, Block):
                    fully_shard(module)
        fully_shard(model)
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

            second = FSDP(model, auto_wrap_policy=other)

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

            # another policy
            # for the second model
            for module in reversed(list(model.modules())):
                if isinstance(module, Block):
                    fully_shard(module)
            second = fully_shard(model)

            # for both
            third = Net()
            for module in reversed(list(third.modules())):
                if isinstance(module, Block):
                    fully_shard(module)
            fully_shard(third)


        main()
        """,
    ),
    "a policy that is returned, and one of several": (
        """
        def policy_of(frozen):
            blocks = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            if not frozen:
                return blocks
            trained = functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m.training)
            return functools.partial(_or_policy, policies=[trained, blocks])


        model = FSDP(Net(), auto_wrap_policy=policy_of(bool(os.environ.get("FROZEN"))))
        """,
        """
        def policy_of(frozen):
            blocks = lambda module: isinstance(module, Block)
            if not frozen:
                return blocks
            return lambda module: module.training or blocks(module)


        model = Net()
        should_shard = policy_of(bool(os.environ.get("FROZEN")))
        for module in reversed(list(model.modules())[1:]):
            if should_shard(module):
                fully_shard(module)
        fully_shard(model)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()
