"""What becomes of `enable_wrap`, partials of FSDP, attributes of its wrapper and contexts that are kept."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

STEP = "model(torch.ones(2, 8)).sum().backward()"

FORMS = {
    "children of a model that is not wrapped itself": (
        """
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = Net()


        def build(model):
            policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            with enable_wrap(wrapper_cls=FSDP, auto_wrap_policy=policy):
                # one after the other
                for name, module in model.named_children():
                    model.add_module(name, wrap(module))
            return model


        build(Outer())
        """,
        """
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = Net()


        def build(model):
            # one after the other
            for name, module in model.named_children():
                for submodule in reversed(list(module.modules())):
                    if isinstance(submodule, Block):
                        fully_shard(submodule)
                model.add_module(name, fully_shard(module))
            return model


        build(Outer())
        """,
    ),
    "arguments of the block and of the call": (
        """
        kwargs = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        net = Net()
        with enable_wrap(wrapper_cls=FSDP, **kwargs):
            for name, block in net.blocks.named_children():
                setattr(net.blocks, name, wrap(block))
            model = wrap(net)
        model.clip_grad_norm_(1.0)
        """,
        """
        kwargs = dict(reshard_after_forward=False)
        net = Net()
        for name, block in net.blocks.named_children():
            setattr(net.blocks, name, fully_shard(block, **kwargs))
        model = fully_shard(net, **kwargs)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        """,
    ),
    "a partial": (
        """
        shard = functools.partial(FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        net = Net()
        net.blocks[0] = shard(net.blocks[0])
        model = shard(net)
        print(model.rank)
        """,
        """
        shard = functools.partial(fully_shard, reshard_after_forward=False)
        net = Net()
        net.blocks[0] = shard(net.blocks[0])
        model = shard(net)
        print(dist.get_rank())
        """,
    ),
    "names and modules inside": (
        """
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
        model.blocks[0]._fsdp_wrapped_module.linear.register_forward_hook(print)
        names = [n.replace("_fsdp_wrapped_module.", "") for n, _ in model.named_parameters()]
        inner = getattr(model, "_fsdp_wrapped_module", model)
        """,
        """
        model = Net()
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(model)
        model.blocks[0].linear.register_forward_hook(print)
        names = [n.replace("_fsdp_wrapped_module.", "") for n, _ in model.named_parameters()]
        inner = getattr(model, "_fsdp_wrapped_module", model)
        """,
    ),
    "names of files that lose the prefix, if they have it": (
        """
        model = FSDP(Net())
        state = {}
        for name, value in torch.load("weights.pt").items():
            if name not in state and name.startswith("model._fsdp_wrapped_module."):
                name = name.replace("model._fsdp_wrapped_module.", "model.", 1)
            if name.startswith("_fsdp_wrapped_module."):
                name = name[len("_fsdp_wrapped_module.") :]
            state[name] = value
        names = [
            n.replace("_fsdp_wrapped_module.", "") if "_fsdp_wrapped_module." in n else n for n in state
        ]
        """,
        """
        model = fully_shard(Net())
        state = {}
        for name, value in torch.load("weights.pt").items():
            if name not in state and name.startswith("model._fsdp_wrapped_module."):
                name = name.replace("model._fsdp_wrapped_module.", "model.", 1)
            if name.startswith("_fsdp_wrapped_module."):
                name = name[len("_fsdp_wrapped_module.") :]
            state[name] = value
        names = [
            n.replace("_fsdp_wrapped_module.", "") if "_fsdp_wrapped_module." in n else n for n in state
        ]
        """,
    ),
    "annotations, in quotes too, and a question for the type": (
        """
        model = FSDP(Net())


        def kept(module: "FSDP") -> "list[FSDP]":
            other: FSDP = module
            return [other] if type(other) is FSDP else []


        kept(model)
        """,
        """
        model = fully_shard(Net())


        def kept(module: "FSDPModule") -> "list[FSDPModule]":
            other: FSDPModule = module
            return [other] if isinstance(other, FSDPModule) else []


        kept(model)
        """,
    ),
    "a lambda": (
        """
        shard = lambda m: FSDP(m.cuda(), auto_wrap_policy=ModuleWrapPolicy({Block}))
        model = shard(Net())
        """,
        """
        def shard(m):
            m = m.cuda()
            for module in reversed(list(m.modules())):
                if isinstance(module, Block):
                    fully_shard(module)
            return fully_shard(m)
        model = shard(Net())
        """,
    ),
    "a context of one branch or another": (
        f"""
        from contextlib import nullcontext

        model = FSDP(Net())
        for step in range(4):
            if step % 2:
                context = model.no_sync()
            else:
                context = nullcontext()
            with context:
                {STEP}
        """,
        f"""
        model = fully_shard(Net())
        for step in range(4):
            if step % 2:
                model.set_requires_gradient_sync(False)
            else:
                model.set_requires_gradient_sync(True)
            {STEP}
            model.set_requires_gradient_sync(True)
        """,
    ),
    "a method that is chosen": (
        f"""
        from contextlib import nullcontext

        model = FSDP(Net())
        for step in range(4):
            context = model.no_sync if step % 2 else nullcontext
            with context():
                {STEP}
        """,
        f"""
        model = fully_shard(Net())
        for step in range(4):
            model.set_requires_gradient_sync(not step % 2)
            {STEP}
            model.set_requires_gradient_sync(True)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()


MODEL = "model = FSDP(Net())\n"
BLOCKED = {
    "a container": (
        "net = Net()\nwith enable_wrap(wrapper_cls=FSDP):\n    net.blocks = wrap(net.blocks)\n",
        "it has no forward",
    ),
    "another class": ("with enable_wrap(wrapper_cls=Net):\n    wrap(Net())\n" + MODEL, "the class of this"),
    "a wrap that is called elsewhere": (
        "def build(module):\n    return wrap(module)\n\n\n"
        "with enable_wrap(wrapper_cls=FSDP):\n    model = build(Net())\n",
        "which `enable_wrap` block",
    ),
    "a partial whose mesh comes too early": (
        "def shard(wrap):\n    return wrap(Net())\n\n\ndef build():\n    return shard(functools.partial("
        "FSDP, sharding_strategy=ShardingStrategy.HYBRID_SHARD))\n\n\nbuild()",
        "the process group may not exist",
    ),
    "a partial with a policy": (
        "def build(shard):\n    return shard(Net())\n\n\n"
        "model = build(functools.partial(FSDP, auto_wrap_policy=ModuleWrapPolicy({Block})))",
        "write a function",
    ),
    "a class for a function": ("def build(cls):\n    return cls(Net())\n\n\nbuild(FSDP)\n" + MODEL, "as an argument"),
    "names that are searched": (
        MODEL + 'print([n for n, _ in model.named_parameters() if "_fsdp_wrapped_module" in n])',
        "searches names",
    ),
    "names whose prefix becomes another one": (
        MODEL + 'print([n.replace("_fsdp_wrapped_module.", "module.") for n, _ in model.named_parameters()])',
        "searches names",
    ),
    "names that only have the prefix in FSDP1": (
        MODEL
        + "for name, _ in model.named_parameters():\n"
        + '    if name.startswith("_fsdp_wrapped_module."):\n        print(name)',
        "searches names",
    ),
    "an unknown module's handle": (
        MODEL + "for part in FSDP.fsdp_modules(model):\n    print(part._handle)",
        "no flat parameters",
    ),
    "a handle where nobody calls": (
        MODEL + "def free(model):\n    for part in model.modules():\n        if isinstance(part, FSDP):\n"
        "            print(part._handle.flat_param.data)",
        "no flat parameters",
    ),
    "a handle where nobody calls, behind a test": (
        MODEL + "def free(model):\n    for part in model.modules():\n"
        "        if not isinstance(part, FSDP):\n            continue\n        print(part._handle)",
        "no flat parameters",
    ),
    "an attribute where nobody calls": (
        MODEL + "def kinds(model):\n    return [p.sharding_strategy for p in model.modules() "
        "if isinstance(p, FSDP)]",
        "keep it in a variable",
    ),
    "several classes where nobody calls": (
        MODEL + "def hold(model):\n    if isinstance(model, (FSDP, nn.parallel.DistributedDataParallel)):\n"
        "        with model.no_sync():\n            print(model)",
        "or to another class",
    ),
    "a part of a test where nobody calls": (
        MODEL + "def is_root(model):\n    return isinstance(model, FSDP) and model.check_is_root()",
        "whether it is the root",
    ),
    "functions on whole parameters": (
        "def init(module):\n    for p in module.parameters():\n        nn.init.normal_(p)\n\n\n"
        + MODEL + "model.apply(init)",
        "before it is sharded",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "reason"), list(BLOCKED.values()), ids=list(BLOCKED))
def test_what_blocks(body: str, reason: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, body + "\n")
    reasons = [blocker.reason for blocker in found.blockers]
    assert any(re.search(reason, one) for one in reasons), reasons


TRAINER = """
class Trainer:
    def __init__(self):
        self.model = FSDP(Net())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def predict(self, x):
        return self.model.forward(x)

    def first(self):
        return self.model.module.blocks[0]


trainer = Trainer()
"""


def test_attributes_in_methods_that_nothing_calls(tmp_path: Path) -> None:
    """FSDP1's wrapper works in its `forward`; FSDP2's hooks do not run there."""
    text = migrated(tmp_path, TRAINER)
    assert "return self.model(x)" in text
    assert "return self.model.blocks[0]" in text


def test_a_test_of_the_name_of_the_class(tmp_path: Path) -> None:
    """Only a model of DDP comes to the branch."""
    text = migrated(
        tmp_path,
        """
        def unwrap(model):
            if type(model).__name__ == "DistributedDataParallel":
                return model.module
            return model


        if os.environ.get("SHARD"):
            model = FSDP(Net())
        else:
            model = nn.parallel.DistributedDataParallel(Net())
        print(unwrap(model))
        """,
    )
    assert "return model.module\n" in text
    assert "hasattr" not in text


def test_comments_on_a_variable_that_is_deleted(tmp_path: Path) -> None:
    body = """
    # The number of epochs.
    epochs = 3

    # Shard everything.
    # See the paper.
    strategy = ShardingStrategy.FULL_SHARD  # or SHARD_GRAD_OP

    # Settings
    prefetch = BackwardPrefetch.BACKWARD_PRE
    steps = 4
    model = FSDP(Net(), sharding_strategy=strategy, backward_prefetch=prefetch)
    """
    after = """
    # The number of epochs.
    epochs = 3

    # Settings
    steps = 4
    model = fully_shard(Net())
    """
    assert migrated(tmp_path, body) == textwrap.dedent(after)
