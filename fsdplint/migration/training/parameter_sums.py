"""Sums over the parameters that each rank computes of its part, and that `all_reduce` adds up.

Such a sum is the same however the parameters are divided, so FSDP2's part takes the place of FSDP1's.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.constructor.ignored_values import may_ignore
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.text import atom
from fsdplint.migration.training.gradient_norms import NORMS
from fsdplint.migration.training.gradients import is_of_fsdp1
from fsdplint.migration.training.reduced_sums import (
    SAME,
    SQUARES,
    is_reduced,
    is_two,
    summed_variable,
)
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import symbols_in

TITLE = "Add up this rank's part of the parameters: `to_local()`"


def rewrite(migration: Migration, source: Source) -> None:
    """Sum this rank's part where `all_reduce` adds the sums of all ranks up."""
    if "all_reduce" not in source.text or may_ignore(migration):
        return
    symbols = symbols_in(source)
    for node in nodes(source):
        summed = _summed(node, symbols)
        if summed is None or not _is_elementwise(migration, summed):
            continue
        name = summed_variable(source, node, symbols, is_norm=_is_norm(node, symbols))
        if name is not None and is_reduced(source, node, name, symbols):
            text = migration.text(source, summed)
            text = text if isinstance(summed, cst.Call) else atom(text)
            migration.substitute(source, summed, f"{text}.to_local()")
            migration.blocks.local_shard_functions.add(node)
            migration.step(source, node, TITLE)


def _summed(node: cst.CSTNode, symbols: dict[cst.CSTNode, str]) -> cst.BaseExpression | None:
    """The tensor whose elements a call sums, or whose norm it computes."""
    if not isinstance(node, cst.Call):
        return None
    given, function = list(node.args), symbols.get(node.func, "")
    if function in NORMS | {"torch.sum"} and given and not given[0].star:
        return given[0].value if _is_of_all(given[1:]) else None
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in ("sum", "norm"):
        return node.func.value if _is_of_all(given) else None
    return None


def _is_of_all(given: list[cst.Arg]) -> bool:
    """Whether the arguments of a sum or norm name no dimension and no order but 2."""
    return all(
        (arg.keyword is None or arg.keyword.value in ("p", "ord")) and is_two(arg.value)
        for arg in given
    )


def _is_norm(node: cst.CSTNode, symbols: dict[cst.CSTNode, str]) -> bool:
    assert isinstance(node, cst.Call)
    named = isinstance(node.func, cst.Attribute) and node.func.attr.value == "norm"
    return named or symbols.get(node.func, "") in NORMS


def _is_elementwise(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether an expression computes each element from that element of parameters alone."""
    leaves = list(_leaves(node))
    known = [one is not None and is_of_fsdp1(migration.program, one) for one in leaves]
    return any(known) and all(
        is_known or isinstance(one, cst.Name) for one, is_known in zip(leaves, known, strict=True)
    )


def _leaves(node: cst.BaseExpression) -> Iterator[cst.BaseExpression | None]:
    """The tensors in an expression; None for a part that is not elementwise."""
    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, cst.MatrixMultiply):
            yield None
        yield from _leaves(node.left)
        yield from _leaves(node.right)
    elif isinstance(node, cst.Call):
        func = node.func
        known = isinstance(func, cst.Attribute) and func.attr.value in SAME | SQUARES
        plain = all(isinstance(arg.value, cst.BaseNumber) for arg in node.args)
        if known and plain and isinstance(func, cst.Attribute):
            yield from _leaves(func.value)
        else:
            yield None
    elif isinstance(node, cst.Attribute) and node.attr.value == "data":
        yield from _leaves(node.value)
    elif not isinstance(node, cst.BaseNumber):
        is_gradient = isinstance(node, cst.Attribute) and node.attr.value == "grad"
        yield node if isinstance(node, cst.Name | cst.Attribute) and not is_gradient else None
