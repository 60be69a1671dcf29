"""Numbers that a program adds up on each rank, and that `all_reduce` sums over the ranks."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.migration.analysis.variables import calls_of, return_values
from fsdplint.migration.training.reduced_sums import is_reduced, summed_variable
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import symbols_in


def is_added_up(
    files: Sequence[Source], source: Source, function: cst.FunctionDef, node: cst.CSTNode
) -> bool:
    """Whether a number is added to others, and `all_reduce` sums the result over the ranks: in the
    function, or in all functions that call it."""
    symbols = symbols_in(source)
    name = summed_variable(source, node, symbols, is_norm=False)
    if name is not None and is_reduced(source, node, name, symbols):
        return True
    returned = return_values(function)
    if name is None:
        is_result = bool(returned) and all(_is_sum_of(one, node) for one in returned)
    else:
        is_result = bool(returned) and all(_is_name(one, name) for one in returned)
    if not is_result or len(returned) != 1:
        return False
    calls = list(calls_of(files, function))
    return bool(calls) and all(call and is_all_reduced(other, call) for other, call in calls)


def _is_sum_of(value: cst.BaseExpression, node: cst.CSTNode) -> bool:
    """Whether an expression is `sum(node for ...)`."""
    if not isinstance(value, cst.Call) or len(value.args) != 1:
        return False
    inner = value.args[0].value
    is_each = isinstance(inner, cst.GeneratorExp | cst.ListComp) and inner.elt is node
    return is_each and isinstance(value.func, cst.Name) and value.func.value == "sum"


def _is_name(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def is_all_reduced(source: Source, node: cst.CSTNode) -> bool:
    """Whether a number only goes to a variable that `all_reduce` sums over the ranks."""
    symbols = symbols_in(source)
    name = summed_variable(source, node, symbols, is_norm=False)
    return name is not None and is_reduced(source, node, name, symbols)
