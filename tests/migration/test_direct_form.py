"""Programs that hide a use of FSDP1 behind a partial, a helper, a display or another name."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import POLICY, migrated, plan

PLAIN = "model = fully_shard(Net())"

CONSTRUCTORS = {
    "a call of dict": "model = FSDP(Net(), **dict(use_orig_params=True))",
    "a display in the call": 'model = FSDP(Net(), **{"use_orig_params": True})',
    "a tuple": "model = FSDP(*(Net(),), use_orig_params=True)",
    "a tuple in a variable": """
        given = (Net(),)
        model = FSDP(*given, use_orig_params=True)
    """,
    "a dict of classes": """
        builders = {"fsdp": FSDP, "ddp": nn.parallel.DistributedDataParallel}
        model = builders["fsdp"](Net())
    """,
    "a list of classes": """
        builders = [FSDP, nn.parallel.DistributedDataParallel]
        model = builders[0](Net())
    """,
    "a dict that is filled": """
        options = {}
        options["module"] = Net()
        options["use_orig_params"] = True
        model = FSDP(**options)
    """,
    "an attribute of a class": """
        class Api:
            wrap = staticmethod(FSDP)
        model = Api.wrap(Net())
    """,
    "an inherited name": """
        class Api:
            wrap = FSDP
        model = Api.wrap(Net(), device_id=local_rank)
    """,
}


@pytest.mark.parametrize("body", [pytest.param(b, id=i) for i, b in CONSTRUCTORS.items()])
def test_the_constructor_is_called_by_its_name(tmp_path: Path, body: str) -> None:
    assert migrated(tmp_path, textwrap.dedent(body)).strip() == PLAIN


TRAINING = {
    "a bound method": """
        clip = model.clip_grad_norm_
        clip(1.0)
    """,
    "an attribute by its name": 'getattr(model, "clip_grad_norm_")(1.0)',
    "a method caller": """
        import operator
        operator.methodcaller("clip_grad_norm_", 1.0)(model)
    """,
    "a dict of methods": """
        steps = {"clip": model.clip_grad_norm_, "show": print}
        steps["clip"](1.0)
    """,
    "a partial of a method": """
        clip = functools.partial(model.clip_grad_norm_, 1.0)
        clip()
    """,
}


@pytest.mark.parametrize("body", [pytest.param(b, id=i) for i, b in TRAINING.items()])
def test_a_method_is_called_on_the_model(tmp_path: Path, body: str) -> None:
    text = migrated(
        tmp_path, "model = FSDP(Net())\nmodel(1).sum().backward()\n" + textwrap.dedent(body)
    )
    assert text.rstrip().endswith("nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
    assert "operator" not in text and "steps" not in text


CONTEXTS = {
    "a variable": """
        context = FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)
        with context:
            state = model.state_dict()
    """,
    "a stack": """
        import contextlib
        with contextlib.ExitStack() as stack:
            stack.enter_context(FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT))
            state = model.state_dict()
    """,
    "a partial": """
        full = functools.partial(FSDP.state_dict_type, state_dict_type=StateDictType.FULL_STATE_DICT)
        with full(model):
            state = model.state_dict()
    """,
}


@pytest.mark.parametrize("body", [pytest.param(b, id=i) for i, b in CONTEXTS.items()])
def test_a_context_stands_in_the_head_of_its_block(tmp_path: Path, body: str) -> None:
    text = migrated(tmp_path, "model = FSDP(Net())\n" + textwrap.dedent(body))
    options = "StateDictOptions(full_state_dict=True)"
    assert f"state = get_model_state_dict(model, options={options})" in text
    assert "with" not in text and "stack" not in text and "partial" not in text


SETTINGS = {
    "a dict": ("SETTINGS = {'rank0': True, 'lr': 0.1}\n", "SETTINGS['rank0']"),
    "a class": ("class Settings:\n    rank0 = True\n\n\n", "Settings.rank0"),
    "an object": (
        "class Settings:\n    def __init__(self):\n        self.rank0 = True\n\n\n"
        "SETTINGS = Settings()\n",
        "SETTINGS.rank0",
    ),
    "a dataclass": (
        "import dataclasses\n\n\n@dataclasses.dataclass\nclass Settings:\n    rank0: bool = True\n\n\n"
        "SETTINGS = Settings()\n",
        "SETTINGS.rank0",
    ),
}
STATE = """\
model = FSDP(Net())
config = FullOptimStateDictConfig(rank0_only={flag})
with FSDP.state_dict_type(
    model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(), config
):
    state = FSDP.optim_state_dict(model, torch.optim.SGD(model.parameters(), lr=0.1))
"""


@pytest.mark.parametrize(("head", "flag"), list(SETTINGS.values()), ids=list(SETTINGS))
def test_a_flag_that_is_the_same_everywhere(tmp_path: Path, head: str, flag: str) -> None:
    text = migrated(tmp_path, head + STATE.format(flag=flag))
    assert head in text
    assert "cpu_offload=True" in text and "get_optimizer_state_dict" in text


def test_a_flag_that_changes_blocks(tmp_path: Path) -> None:
    head = "class Settings:\n    rank0 = True\n\n\nSettings.rank0 = bool(local_rank)\n"
    found, _ = plan(tmp_path, head + STATE.format(flag="Settings.rank0"))
    assert "`rank0_only` is only known at run time" in found.blockers[0].reason


ASSIGNMENTS = {
    "a chain": "copy = state = model.state_dict()",
    "a tuple": "state, rest = model.state_dict(), None",
    "a rest": "state, *rest = [model.state_dict(), None]",
    "an expression": "if (state := model.state_dict()) is None:\n        pass",
}


@pytest.mark.parametrize("line", [pytest.param(b, id=i) for i, b in ASSIGNMENTS.items()])
def test_a_state_has_an_assignment_of_its_own(tmp_path: Path, line: str) -> None:
    body = (
        "model = FSDP(Net())\nget = functools.partial(FSDP.state_dict_type, model)\n"
        f"with get(StateDictType.FULL_STATE_DICT):\n    {line}\n"
    )
    text = migrated(tmp_path, body)
    assert "state = get_model_state_dict(" in text and ":=" not in text


def test_lists_that_get_parameters_later_stay_in_one_statement(tmp_path: Path) -> None:
    body = """
        def shard(net, **options):
            return FSDP(net, **options)


        def groups(model):
            plain, rest = [], []
            for name, parameter in model.named_parameters():
                (plain if name.endswith("bias") else rest).append(parameter)
            return [{"params": plain}, {"params": rest}]


        model = shard(Net(), use_orig_params=True)
        optimizer = torch.optim.AdamW(groups(model))
    """
    assert "    plain, rest = [], []\n" in migrated(tmp_path, textwrap.dedent(body))


def test_a_second_name_of_the_arguments(tmp_path: Path) -> None:
    body = """
        def build():
            copy = options = dict(use_orig_params=True)
            options["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
            return FSDP(Net(), **options)


        model = build()
    """
    text = migrated(tmp_path, body)
    assert "copy" not in text and "reshard_after_forward" in text


def test_a_function_of_an_alias(tmp_path: Path) -> None:
    body = """
        Fsdp = getattr(torch.distributed.fsdp, "FullyShardedDataParallel")
        model = Fsdp(Net())
        print(len(Fsdp.fsdp_modules(model)))
    """
    assert "Fsdp" not in migrated(tmp_path, body)


def test_a_helper_that_calls_what_it_gets(tmp_path: Path) -> None:
    body = """
        def call(function, *args, **kwargs):
            return function(*args, **kwargs)


        model = call(FSDP, Net(), use_orig_params=True)
        call(print, "built")
        call(model.clip_grad_norm_, 1.0)
    """
    text = migrated(tmp_path, body)
    assert "model = fully_shard(Net())\n" in text
    assert 'call(print, "built")\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n' in text


REFUSED = {
    "a policy that is called": """
        policy = transformer_auto_wrap_policy(transformer_layer_cls={Block})
        model = FSDP(Net(), auto_wrap_policy=policy)
    """,
    "a policy that is called with the model": """
        net = Net()
        policy = transformer_auto_wrap_policy(net, transformer_layer_cls={Block})
        model = FSDP(net, auto_wrap_policy=policy)
    """,
    "a policy with an argument of another one": """
        policy = functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}, min_num_params=1000
        )
        model = FSDP(Net(), auto_wrap_policy=policy)
    """,
    "a flag for offloading": f"""
        model = FSDP(Net(), {POLICY}, cpu_offload=False)
    """,
    "arguments of DistributedDataParallel": f"""
        model = FSDP(Net(), {POLICY}, device_ids=[local_rank], find_unused_parameters=True)
    """,
    "the argument of torch 1.11": f"""
        model = FSDP(Net(), fsdp_{POLICY})
    """,
}


@pytest.mark.parametrize("body", [pytest.param(b, id=i) for i, b in REFUSED.items()])
def test_a_call_that_raises_is_read_as_it_is_meant(tmp_path: Path, body: str) -> None:
    found, text = plan(tmp_path, body)
    assert [note.text for note in found.notes] == [
        "calls that raise TypeError are read as they are meant"
    ]
    assert "partial" not in text and "DataParallel" not in text
    text = text.replace("net = Net()\n", "model = Net()\n").replace("net.modules", "model.modules")
    assert text.replace("model = fully_shard(net)", "fully_shard(model)").endswith(
        "model = Net()\n"
        "for module in reversed(list(model.modules())):\n"
        "    if isinstance(module, Block):\n"
        "        fully_shard(module)\n"
        "fully_shard(model)\n"
    )


KEPT = {
    "a partial that a function gets": """
        def build(shard):
            return shard(Net())


        model = build(functools.partial(FSDP, auto_wrap_policy=ModuleWrapPolicy({Block})))
    """,
    "a dict that changes": """
        builders = {"fsdp": nn.parallel.DistributedDataParallel}
        if os.environ.get("SHARD"):
            builders["fsdp"] = FSDP
        model = builders["fsdp"](Net())
    """,
    "a name that is chosen": """
        builders = {"fsdp": FSDP, "ddp": nn.parallel.DistributedDataParallel}
        model = builders[os.environ["BUILDER"]](Net())
    """,
    "a model that changes in between": """
        model = FSDP(Net())
        clip = model.clip_grad_norm_
        model = FSDP(Net())
        clip(1.0)
    """,
    "an effect in between": """
        model = FSDP(Net())
        given = (model.state_dict(),)
        torch.save({}, "state")
        model.load_state_dict(*given)
        clip = model.clip_grad_norm_
        clip(*given)
        clip(1.0)
        print(clip)
    """,
    "a function that hands its arguments on, and is given away": """
        def shard(*args, **kwargs):
            return FSDP(*args, **kwargs)


        model = shard(Net())
        print(shard)
    """,
    "a policy that is called by position": """
        model = FSDP(Net(), auto_wrap_policy=transformer_auto_wrap_policy({Block}))
    """,
    "an argument that nothing has": """
        model = FSDP(Net(), wrap_policy=ModuleWrapPolicy({Block}))
    """,
    "a helper with an effect of its own": """
        def call(function, *args, **kwargs):
            print("called")
            return function(*args, **kwargs)


        model = call(FSDP, Net())
    """,
    "an attribute with another value": """
        class Api:
            wrap = staticmethod(FSDP)
        Api.wrap = staticmethod(print)
        model = Api.wrap(Net())
    """,
}


@pytest.mark.parametrize("body", [pytest.param(b, id=i) for i, b in KEPT.items()])
def test_what_is_not_certain_blocks(tmp_path: Path, body: str) -> None:
    found, _ = plan(tmp_path, body)
    assert found.blockers
    assert not found.edits


def test_comments_and_other_code_stay(tmp_path: Path) -> None:
    body = """
        # the model
        build = functools.partial(FSDP, use_orig_params=True)  # one for all
        add = functools.partial(torch.add, 1)
        model = build(Net())  # sharded
        size = getattr(model, "clip_grad_norm_")(add(1))
    """
    text = migrated(tmp_path, body)
    assert "# the model" in text and "# one for all" in text and "# sharded" in text
    assert "add = functools.partial(torch.add, 1)" in text


def test_a_flag_of_the_command_line_for_offloading(tmp_path: Path) -> None:
    body = f"""
        import argparse

        parser = argparse.ArgumentParser()
        parser.add_argument("--cpu-offload", action="store_true")
        args = parser.parse_args()
        model = FSDP(Net(), {POLICY}, cpu_offload=args.cpu_offload)
    """
    text = migrated(tmp_path, body)
    assert "offload_policy = CPUOffloadPolicy() if args.cpu_offload else OffloadPolicy()\n" in text
    other = body.replace('action="store_true"', "type=int")
    assert plan(tmp_path, other)[0].blockers
