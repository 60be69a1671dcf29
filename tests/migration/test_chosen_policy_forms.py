"""Policies that are chosen, returned, kept in attributes or built in steps."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
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
    "a list of policies that is empty at first": (
        """
        def policies_for(linear):
            policies = []
            if linear:

                def is_linear(module):
                    return isinstance(module, nn.Linear)

                policy = functools.partial(lambda_auto_wrap_policy, lambda_fn=is_linear)
                policies.append(policy)
            policies.append(
                functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            )
            return functools.partial(_or_policy, policies=policies)


        model = FSDP(Net(), auto_wrap_policy=policies_for("LINEAR" in os.environ))
        """,
        """
        def policies_for(linear):
            policies = []
            if linear:

                def is_linear(module):
                    return isinstance(module, nn.Linear)

                policy = is_linear
                policies.append(policy)
            policies.append(
                lambda module: isinstance(module, Block)
            )
            return lambda module: any(matches(module) for matches in policies)


        model = Net()
        should_shard = policies_for("LINEAR" in os.environ)
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
