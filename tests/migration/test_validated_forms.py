"""Forms of states and options that the validation has to understand as the planner does.

With `FSDPLINT_VALIDATE=1` in the environment, the tests of all forms validate the migration.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import test_ignored_parameter_forms as ignored_parameters
import test_optimizer_state_forms as optimizer_states
import test_part_state_forms as part_states
import test_precision_forms as precisions
import test_scattered_state_forms as scattered_states
import test_state_forms as states
import test_state_type_forms as state_types
from forms import POLICY, refusals

FORMS = [
    (ignored_parameters, "ignored modules that are None"),
    (ignored_parameters, "ignored modules that a helper gets"),
    (ignored_parameters, "a list of no ignored modules"),
    (ignored_parameters, "frozen parameters by the name in torch 2.0"),
    (optimizer_states, "an optimizer's state that rank 0 saves"),
    (scattered_states, "a state in a variable of rank 0"),
    (scattered_states, "one rank's part of the optimizer's state"),
    (scattered_states, "the state of an optimizer of some parts"),
    (part_states, "parts that the policy wraps"),
    (precisions, "each module casts its inputs, and so does the root"),
    (states, "a library that takes the state itself"),
    (state_types, "types that are set one after the other"),
    (state_types, "one type within another, and a model that none is about"),
]
CHOSEN = {
    "by an expression": """
        strategy = (
            ShardingStrategy.SHARD_GRAD_OP
            if os.environ.get("FAST")
            else ShardingStrategy.FULL_SHARD
        )
        """,
    "by a function": """
        def choose(fast):
            return ShardingStrategy.SHARD_GRAD_OP if fast else ShardingStrategy.FULL_SHARD


        strategy = choose(bool(os.environ.get("FAST")))
        """,
    "by a statement": """
        strategy = ShardingStrategy.FULL_SHARD
        if os.environ.get("FAST"):
            strategy = ShardingStrategy.SHARD_GRAD_OP
        """,
}


@pytest.mark.parametrize(("module", "name"), FORMS, ids=[name for _, name in FORMS])
def test_the_migration_of_a_form_is_offered(module: object, name: str, tmp_path: Path) -> None:
    forms: dict[str, tuple[str, str]] = module.FORMS  # type: ignore[attr-defined]
    assert not refusals(tmp_path, forms[name][0])


@pytest.mark.parametrize("name", CHOSEN)
def test_a_chosen_strategy_of_several_units_is_offered(name: str, tmp_path: Path) -> None:
    model = f"model = FSDP(Net(), sharding_strategy=strategy, {POLICY})\n"
    assert not refusals(tmp_path, textwrap.dedent(CHOSEN[name]) + model)


@pytest.mark.parametrize("made", ["library.create()", "library.create().embeddings()"])
def test_rank_0s_weights_for_a_model_of_unknown_code(made: str, tmp_path: Path) -> None:
    model = f"import library\n\nmodel = FSDP({made}, sync_module_states=True)\n"
    assert not refusals(tmp_path, model)


VISITED = """
from transformers import AutoModelForCausalLM
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer


def visit(module):
    for name, parameter in list(module.named_parameters(recurse=False)):
        print(name, parameter.dtype)
    for child in module.children():
        visit(child)


model = AutoModelForCausalLM.from_pretrained("x")
visit(model)
policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={MistralDecoderLayer})
model = FSDP(model, auto_wrap_policy=policy, use_orig_params=True)
model(torch.ones(2, 8)).sum().backward()
"""


def test_parts_of_a_library_model_that_a_function_has_visited(tmp_path: Path) -> None:
    """The classes of its units are still those that the loop asks for."""
    assert refusals(tmp_path, VISITED) == set()
