"""Statements that the migration writes: broken up where they are too long, else left alone."""

from __future__ import annotations

import ast

import pytest

from fsdplint.migration.text import statement
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
