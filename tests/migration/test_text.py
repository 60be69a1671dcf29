"""Statements that the migration writes: broken up where they are too long, else left alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from forms import migrated

from fsdplint.migration.text import call, on_one_line, statement
from fsdplint.source.source import Source

SOURCE = Source("train.py", "def main():\n    model = shard(model)\n")
LONG = "a_name_of_forty_letters_and_some_more_xx"


def broken(line: str) -> str:
    node = SOURCE.tree.body[0].body.body[0]  # type: ignore[attr-defined]
    return statement(SOURCE, node, line).replace("\t", "    ")


def test_an_argument_a_line_and_deeper_ones_where_they_are_too_long() -> None:
    line = f'policy = Policy(param={{"fp32": {LONG}, "bf16": {LONG}}}[args.precision], reduce={LONG}.dtype)'
    assert broken(line) == (
        "policy = Policy(\n"
        "    param={\n"
        f'        "fp32": {LONG},\n'
        f'        "bf16": {LONG},\n'
        "    }[args.precision],\n"
        f"    reduce={LONG}.dtype,\n"
        ")"
    )


def test_all_arguments_on_one_line_where_that_fits() -> None:
    assert broken(f"policy = MixedPrecisionPolicy(param={LONG}, reduce=torch.float32)") == (
        f"policy = MixedPrecisionPolicy(\n    param={LONG}, reduce=torch.float32\n)"
    )


@pytest.mark.parametrize(
    "line",
    [
        "policy = Policy(param=torch.bfloat16)",
        f"total = sum({LONG} for one in {LONG} if one.{LONG})",
        f"value = {LONG}.{LONG}.{LONG}",
        f'text = "a string with (brackets, commas) {LONG} and no bracket outside of it, really"',
        f"value = ({LONG} + {LONG} + {LONG})",
        f"value = {LONG}[{LONG}].{LONG}",
    ],
)
def test_means_the_same(line: str) -> None:
    assert ast.dump(ast.parse(broken(line))) == ast.dump(ast.parse(line))


CALLS = """
policy = MixedPrecision(  # policy
    param_dtype=torch.bfloat16,  # params
    buffer_dtype=torch.float32,  # removed
)
model = FSDP(  # open
    Net(),  # model
    mixed_precision=MixedPrecision(param_dtype=torch.float16,  # half
                                   reduce_dtype=torch.float16),
    backward_prefetch=BackwardPrefetch.BACKWARD_PRE,  # removed
)  # close
other = FSDP(Net(), mixed_precision=policy)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if model.clip_grad_norm_(  # clip
    1.0,  # bound
) > 3:
    print("large")
with FSDP.summon_full_params(  # summon
    model,  # of
    with_grads=True,  # gradients
):
    print([p.grad for p in model.parameters()])
with FSDP.summon_full_params(
    model,  # read
    writeback=False,
):
    print([p.sum() for p in model.parameters()])
with FSDP.state_dict_type(
    model,
    StateDictType.FULL_STATE_DICT,  # whole
    FullStateDictConfig(rank0_only=True, offload_to_cpu=True),  # config
):
    state = model.state_dict(  # taken
    )
optim_state = FSDP.optim_state_dict(
    model,  # first
    optimizer,  # second
)
torch.save((state, optim_state), "model.pt")
"""


def test_comments_in_every_form_of_a_call_stay(tmp_path: Path) -> None:
    """Each comment stays once, except those of arguments that are removed."""
    text = migrated(tmp_path, CALLS)
    words = re.findall(r"# (\w+)\n", CALLS)
    assert len(words) == 19
    for word in words:
        assert text.count(f"# {word}\n") == (0 if word == "removed" else 1), word


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("f(\n    a,\n    b,)", "f(a, b)"),
        ("f(\n    a=(\n        1,\n    ),\n)", "f(a=(1,))"),
        ("(\n    1,\n    2,\n)", "(1, 2)"),
        ("[\n    x,\n]", "[x]"),
        ("(\n    1,\n)", "(1,)"),
    ],
)
def test_only_a_tuple_of_one_element_keeps_its_comma(text: str, line: str) -> None:
    assert on_one_line(text) == line


def test_an_argument_that_is_too_long_is_broken_up() -> None:
    policy = f"Policy(param={LONG}, reduce={LONG})"
    text = call(SOURCE, "", "shard", ["model", f"policy={policy} if {LONG} else Policy()"])
    assert text.replace("\t", "    ") == (
        "shard(\n"
        "    model,\n"
        "    policy=Policy(\n"
        f"        param={LONG},\n"
        f"        reduce={LONG},\n"
        f"    ) if {LONG} else Policy(),\n"
        ")"
    )
