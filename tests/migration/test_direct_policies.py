"""Policies and constructors that a program forwards or chooses become direct."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import HEAD, POLICY, migrated, plan

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

WITH_POLICY = {
    "a partial in the call": f"model = functools.partial(FSDP, {POLICY})(Net())",
}


@pytest.mark.parametrize("body", [pytest.param(b, id=i) for i, b in WITH_POLICY.items()])
def test_a_constructor_with_a_policy(tmp_path: Path, body: str) -> None:
    text = migrated(tmp_path, textwrap.dedent(body))
    assert "model = Net()\n" in text and text.rstrip().endswith("fully_shard(model)")


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


        model = shard(Net(), mixed_precision=MixedPrecision(torch.bfloat16, _module_classes_to_ignore=(nn.LayerNorm,)))
        print(model.sharding_strategy)
    """
    found, _ = plan(tmp_path, body)
    places = [(one.code, one.source.code(one.node)) for one in found.blockers]
    assert [code for code, _ in places] == [
        "FSDP201-classes-to-ignore",
        "FSDP299-strategy-asked",
    ], places
    assert places[1][1] == "model.sharding_strategy"


def test_a_partial_with_a_policy(tmp_path: Path) -> None:
    body = """
        shard = functools.partial(FSDP, auto_wrap_policy=ModuleWrapPolicy({Block}))
        model = shard(Net())
    """
    text = migrated(tmp_path, body)
    assert "isinstance(module, Block)" in text and text.endswith("fully_shard(model)\n")
    assert "partial" not in text
