"""Programs that hide a use of FSDP1 behind a partial, a helper, a display or another name."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import HEAD, migrated, plan

from fsdplint.diagnostics.finding import Fix, Safety
from fsdplint.edits.apply import apply
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.migration.planner import plans_of
from fsdplint.registry.rules import all_rules

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


POLICY = "auto_wrap_policy=ModuleWrapPolicy({Block})"
WITH_POLICY = {
    "a partial in the call": f"model = functools.partial(FSDP, {POLICY})(Net())",
}


@pytest.mark.parametrize("body", [pytest.param(b, id=i) for i, b in WITH_POLICY.items()])
def test_a_constructor_with_a_policy(tmp_path: Path, body: str) -> None:
    text = migrated(tmp_path, textwrap.dedent(body))
    assert "model = Net()\n" in text and text.rstrip().endswith("fully_shard(model)")


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
    assert text.endswith(
        "model = Net()\n"
        "for module in reversed(list(model.modules())):\n"
        "    if isinstance(module, Block):\n"
        "        fully_shard(module)\n"
        "fully_shard(model)\n"
    )


def test_the_policy_of_torch_1_11(tmp_path: Path) -> None:
    head = HEAD.replace("ModuleWrapPolicy, ", "default_auto_wrap_policy, ModuleWrapPolicy, ")
    _, text = plan(
        tmp_path, "model = FSDP(Net(), auto_wrap_policy=default_auto_wrap_policy)\n", head
    )
    assert "model = Net()\nshard_large_modules(model, int(1e8))\nfully_shard(model)\n" in text
    assert "default_auto" not in text


def test_the_policy_of_torch_1_11_on_a_model_of_known_parts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        HEAD.replace("    ModuleWrapPolicy,", "    default_auto_wrap_policy, ModuleWrapPolicy,")
        + "model = FSDP(Net(), fsdp_auto_wrap_policy=default_auto_wrap_policy)\n"
    )
    result = fix(Workspace([tmp_path / "train.py"]), [rule() for rule in all_rules()])
    assert "shard_large_modules(model, int(1e8))" in result.texts[tmp_path / "train.py"]


FORWARDING_POLICIES = {
    "a lambda": """
        policy = lambda module, recurse, nonwrapped_numel: transformer_auto_wrap_policy(
            module, recurse, nonwrapped_numel, {Block}
        )
    """,
    "a function": """
        def policy(module, recurse, nonwrapped_numel):
            \"\"\"The blocks.\"\"\"
            return transformer_auto_wrap_policy(
                module=module,
                recurse=recurse,
                nonwrapped_numel=nonwrapped_numel,
                transformer_layer_cls={Block},
            )
    """,
    "the name of an older torch": """
        policy = lambda module, recurse, unwrapped_params: lambda_auto_wrap_policy(
            module, recurse, unwrapped_params, lambda m: isinstance(m, Block)
        )
    """,
}


@pytest.mark.parametrize("body", list(FORWARDING_POLICIES.values()), ids=list(FORWARDING_POLICIES))
def test_a_policy_that_forwards_its_arguments(tmp_path: Path, body: str) -> None:
    program = textwrap.dedent(body) + "\n\nmodel = FSDP(Net(), auto_wrap_policy=policy)\n"
    text = migrated(tmp_path, program)
    assert "isinstance(" in text and "Block)" in text and "policy" not in text


OTHER_POLICIES = {
    "another order": "lambda module, recurse, nonwrapped_numel: transformer_auto_wrap_policy("
    "recurse, module, nonwrapped_numel, {Block})",
    "an argument that depends on the module": "lambda module, recurse, nonwrapped_numel: "
    "transformer_auto_wrap_policy(module, recurse, nonwrapped_numel, {type(module)})",
    "other names": "lambda m, recurse, numel: transformer_auto_wrap_policy("
    "m, recurse, numel, {Block})",
}


@pytest.mark.parametrize("policy", list(OTHER_POLICIES.values()), ids=list(OTHER_POLICIES))
def test_a_policy_that_does_not_forward_its_arguments(tmp_path: Path, policy: str) -> None:
    body = f"policy = {policy}\nmodel = FSDP(Net(), auto_wrap_policy=policy)\n"
    found, _ = plan(tmp_path, body)
    assert found.blockers


def test_a_constructor_that_is_chosen(tmp_path: Path) -> None:
    body = f"""
        model: nn.Module = (FSDP if dist.is_initialized() else nn.DataParallel)(
            Net(), {POLICY},  # all of it
        )
    """
    assert (
        migrated(tmp_path, body).strip()
        == textwrap.dedent("""
        # all of it
        if dist.is_initialized():
            model = Net()
            for module in reversed(list(model.modules())):
                if isinstance(module, Block):
                    fully_shard(module)
            fully_shard(model)
        else:
            model = nn.DataParallel(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
    """).strip()
    )


def test_what_a_direct_form_solves_is_no_blocker(tmp_path: Path) -> None:
    body = """
        def shard(*args, **kwargs):
            return FSDP(*args, **kwargs)


        model = shard(Net(), mixed_precision=MixedPrecision(torch.bfloat16, _module_classes_to_ignore=()))
        print(model.sharding_strategy)
    """
    found, _ = plan(tmp_path, body)
    places = [(one.code, one.source.code(one.node)) for one in found.blockers]
    assert [code for code, _ in places] == [
        "FSDP201-classes-to-ignore",
        "FSDP299-strategy-asked",
    ], places
    assert places[1][1] == "model.sharding_strategy"


FORWARDING = """
def shard(*args, **kwargs):
    \"\"\"Shard a model.\"\"\"
    return FSDP(*args, **kwargs)
"""


def test_a_function_that_hands_its_arguments_on(tmp_path: Path) -> None:
    text = migrated(tmp_path, f"{FORWARDING}\n\nmodel = shard(Net(), {POLICY})\n")
    assert (
        text.strip()
        == textwrap.dedent("""
        model = Net()
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(model)
    """).strip()
    )


def test_a_function_of_another_file_that_hands_its_arguments_on(tmp_path: Path) -> None:
    script = HEAD[HEAD.index("class Block") :] + "model = shard(Net())\n"
    head = NAMES.replace("import functools", "import functools\nfrom helpers import seed, shard")
    helpers = f"{NAMES}\n{FORWARDING}\n\ndef seed():\n    torch.manual_seed(0)\n"
    found = _files(tmp_path, {"train.py": head + script, "helpers.py": helpers})
    assert "FSDP" not in found["helpers.py"] and "def shard" not in found["helpers.py"]
    assert "from helpers import seed\n" in found["train.py"]
    assert found["train.py"].endswith(f"{PLAIN}\n")


def test_arguments_of_two_calls(tmp_path: Path) -> None:
    body = """
        shared = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True)
        one = FSDP(Net(), **shared)
        other = FSDP(Net(), **shared)
    """
    lines = migrated(tmp_path, body).strip().splitlines()
    call = "fully_shard(Net(), reshard_after_forward=False)"
    assert lines == [f"one = {call}", f"other = {call}"]


def test_a_partial_with_a_policy(tmp_path: Path) -> None:
    body = """
        shard = functools.partial(FSDP, auto_wrap_policy=ModuleWrapPolicy({Block}))
        model = shard(Net())
    """
    text = migrated(tmp_path, body)
    assert "isinstance(module, Block)" in text and text.endswith("fully_shard(model)\n")
    assert "partial" not in text


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


NAMES = HEAD.partition("class Block")[0]


def _files(tmp_path: Path, texts: dict[str, str]) -> dict[str, str]:
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    program = load([tmp_path / name for name in texts])
    (found,) = plans_of(program)
    assert not found.blockers, [one.reason for one in found.blockers]
    fix = Fix("", Safety.SAFE, found.edits, found.imports, "g", found.maybe_unused_imports)
    applied = apply(program.files, [fix])
    assert not applied.broken
    return {Path(path).name: text for path, text in applied.texts.items()}


@pytest.mark.parametrize("imported", ["FSDP, nn, torch, os, dist", "*"])
def test_names_that_another_file_imports(tmp_path: Path, imported: str) -> None:
    script = HEAD[HEAD.index("class Block") :] + "model = FSDP(Net())\nmodel.clip_grad_norm_(1.0)\n"
    texts = {
        "train.py": f"from setup_names import {imported}\n\n\n{script}",
        "setup_names.py": "import os\nimport torch\nimport torch.distributed as dist\nimport torch.nn as nn\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n",
    }
    found = _files(tmp_path, texts)
    assert "FSDP" not in found["setup_names.py"] and "FSDP" not in found["train.py"]
    assert "from torch.distributed.fsdp import fully_shard\n" in found["train.py"]
    end = "model = fully_shard(Net())\nclip_grad_norm_(model.parameters(), 1.0)\n"
    assert found["train.py"].endswith(end)


def test_what_a_file_that_was_not_read_imports_stays(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    script = tmp_path / "train.py"
    script.write_text(
        HEAD + "class Api:\n    wrap = staticmethod(FSDP)\n\n\nmodel = Api.wrap(Net())\n", "utf-8"
    )
    (found,) = plans_of(load([script]))
    assert not found.blockers
    (tmp_path / "other.py").write_text("from train import Api\n\nprint(Api.wrap)\n", "utf-8")
    (found,) = plans_of(load([script]))
    assert found.blockers


def test_a_name_with_another_meaning_blocks(tmp_path: Path) -> None:
    body = """
        class Api:
            wrap = staticmethod(FSDP)


        def build(FSDP):
            return Api.wrap(FSDP)


        model = build(Net())
    """
    found, _ = plan(tmp_path, body)
    assert found.blockers
