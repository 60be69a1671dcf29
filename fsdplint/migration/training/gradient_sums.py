"""Numbers that a program adds up on each rank, and that `all_reduce` sums over the ranks."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.migration.analysis.variables import calls_of, return_values
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend, statement_of
from fsdplint.syntax.qualified_names import symbols_in


def is_added_up(
    files: Sequence[Source], source: Source, function: cst.FunctionDef, node: cst.CSTNode
) -> bool:
    """Whether a number is added to others, and `all_reduce` sums the result over the ranks: in the
    function, or in all functions that call it."""
    name = variable_of_sum(source, node)
    if name is not None and is_all_reduced(function, name, symbols_in(source)):
        return True
    returned = return_values(function)
    if name is None:
        is_result = bool(returned) and all(_is_sum_of(one, node) for one in returned)
    else:
        is_result = bool(returned) and all(_target(one) == name for one in returned)
    if not is_result or len(returned) != 1:
        return False
    calls = list(calls_of(files, function))
    return bool(calls) and all(call and _reduces_result(other, call) for other, call in calls)


def _is_sum_of(value: cst.BaseExpression, node: cst.CSTNode) -> bool:
    """Whether an expression is `sum(node for ...)`."""
    if not isinstance(value, cst.Call) or len(value.args) != 1:
        return False
    inner = value.args[0].value
    is_each = isinstance(inner, cst.GeneratorExp | cst.ListComp) and inner.elt is node
    return is_each and isinstance(value.func, cst.Name) and value.func.value == "sum"


def _reduces_result(source: Source, call: cst.Call) -> bool:
    """Whether a function only assigns the result of a call to a variable that `all_reduce` sums."""
    statement = statement_of(source, call)
    function = function_around(source, call)
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return False
    name = _target(statement.targets[0].target)
    if statement.value is not call or name is None or not isinstance(function, cst.FunctionDef):
        return False
    return is_all_reduced(function, name, symbols_in(source))


def variable_of_sum(source: Source, node: cst.CSTNode) -> str | None:
    """The variable to which code adds a number: `total += number`, `total = sum(number for ...)`."""
    statement = statement_of(source, node)
    if isinstance(statement, cst.AugAssign):
        added = isinstance(statement.operator, cst.AddAssign) and statement.value is node
        return _target(statement.target) if added else None
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return None
    if _is_sum_of(statement.value, node):
        return _target(statement.targets[0].target)
    if isinstance(statement.value, cst.BinaryOperation) and statement.value.right is node:
        name = _target(statement.targets[0].target)
        if isinstance(statement.value.operator, cst.Add) and _target(statement.value.left) == name:
            return name
    return None


def _target(node: cst.CSTNode) -> str | None:
    return node.value if isinstance(node, cst.Name) else None


def is_all_reduced(function: cst.FunctionDef, name: str, symbols: dict[cst.CSTNode, str]) -> bool:
    """Whether `all_reduce` sums a variable, or a tensor of it."""
    names = {name}
    for node in descend(function):
        if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call) and node.value.args:
            first = node.value.args[0].value
            if isinstance(first, cst.List) and len(first.elements) == 1:
                first = first.elements[0].value
            if symbols.get(node.value.func) == "torch.tensor" and _target(first) == name:
                made = _target(node.targets[0].target)
                names |= {made} if made else set()
    for node in descend(function):
        if isinstance(node, cst.Call) and symbols.get(node.func) == "torch.distributed.all_reduce":
            given = arguments(node, ("tensor", "op"))[0]
            tensor, op = given.get("tensor"), given.get("op")
            if tensor is None or _target(tensor.value) not in names:
                continue
            if op is None or symbols.get(op.value, "").endswith("ReduceOp.SUM"):
                return True
    return False
