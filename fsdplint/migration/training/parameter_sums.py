"""Sums over the parameters that each rank computes of its part, and that `all_reduce` adds up.

Such a sum is the same however the parameters are divided, so FSDP2's part takes the place of FSDP1's.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.text import atom
from fsdplint.migration.training.gradients import (
    NORMS,
    SAME,
    SQUARES,
    ignores_parameters,
    is_of_fsdp1,
)
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend, statement_of
from fsdplint.syntax.qualified_names import symbols_in

TITLE = "Add up this rank's part of the parameters: `to_local()`"
_COLLECTING = {"torch.stack", "torch.tensor", "torch.as_tensor", "torch.cat"}
_SAME = SAME - {"abs"} | {"item", "to"}  # of a number


def rewrite(migration: Migration, source: Source) -> None:
    """Sum this rank's part where `all_reduce` adds the sums of all ranks up."""
    if "all_reduce" not in source.text or ignores_parameters(migration):
        return
    symbols = symbols_in(source)
    for node in nodes(source):
        summed = _summed(node, symbols)
        if summed is None or not _is_elementwise(migration, summed):
            continue
        name = _variable(source, node, symbols, is_norm=_is_norm(node, symbols))
        if name is not None and _is_reduced(source, node, name, symbols):
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
        (arg.keyword is None or arg.keyword.value in ("p", "ord")) and _is_two(arg.value)
        for arg in given
    )


def _is_two(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Integer | cst.Float) and float(node.value) == 2.0


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


def _variable(
    source: Source, node: cst.CSTNode, symbols: dict[cst.CSTNode, str], *, is_norm: bool
) -> str | None:
    """The variable to which a number goes, alone or added to others; None if it is used otherwise.

    is_norm: whether the number is still to be squared.
    """
    current = node
    while True:
        parent = source.parent(current)
        if isinstance(parent, cst.Attribute):
            call, name = source.parent(parent), parent.attr.value
            if not isinstance(call, cst.Call) or call.func is not parent:
                return None
            if is_norm and name in SQUARES:
                is_norm = False
            elif name not in _SAME:
                return None
            current = call
        elif isinstance(parent, cst.BinaryOperation):
            if isinstance(parent.operator, cst.Power) and is_norm and _is_two(parent.right):
                is_norm = False
            elif is_norm or not isinstance(parent.operator, cst.Add):
                return None
            current = parent
        elif is_norm:
            return None
        elif isinstance(parent, cst.Element | cst.List | cst.Tuple):
            current = parent
        elif isinstance(parent, cst.GeneratorExp | cst.ListComp) and parent.elt is current:
            current = parent
        elif isinstance(parent, cst.Arg):
            call = source.parent(parent)
            if not isinstance(call, cst.Call) or not _collects(call, parent, symbols):
                return None
            current = call
        else:
            return _target(source, parent, current)


def _collects(call: cst.Call, arg: cst.Arg, symbols: dict[cst.CSTNode, str]) -> bool:
    """Whether a call makes one tensor of numbers, or adds them up."""
    is_sum = isinstance(call.func, cst.Name) and call.func.value == "sum"
    return call.args[0] is arg and (is_sum or symbols.get(call.func, "") in _COLLECTING)


def _target(source: Source, parent: cst.CSTNode | None, value: cst.CSTNode) -> str | None:
    if isinstance(parent, cst.AugAssign) and isinstance(parent.operator, cst.AddAssign):
        target: cst.CSTNode = parent.target
    elif isinstance(parent, cst.Assign) and len(parent.targets) == 1 and parent.value is value:
        target = parent.targets[0].target
    else:
        return None
    return target.value if isinstance(target, cst.Name) else None


def _is_reduced(
    source: Source, node: cst.CSTNode, name: str, symbols: dict[cst.CSTNode, str]
) -> bool:
    """Whether `all_reduce` adds a variable up over the ranks before other code reads it."""
    begin = source.span(node)[0]
    function = function_around(source, node)
    reads = sorted(
        (one for one in descend(function) if isinstance(one, cst.Name) and one.value == name),
        key=source.span,
    )
    for one in reads:
        parent = source.parent(one)
        if isinstance(parent, cst.AugAssign | cst.AssignTarget):
            continue
        if source.span(one)[0] < begin:
            if statement_of(source, one) is not statement_of(source, node):
                return False  # a loop may read it before the next number is added
            continue
        call = source.parent(parent) if isinstance(parent, cst.Arg) else None
        if isinstance(call, cst.Call) and call.args[0] is parent:
            function_name = symbols.get(call.func, "")
            if function_name == "torch.distributed.all_reduce":
                op = arguments(call, ("tensor", "op"))[0].get("op")
                return op is None or symbols.get(op.value, "").endswith("ReduceOp.SUM")
            if function_name in _COLLECTING:
                made = _variable(source, one, symbols, is_norm=False)
                return made is not None and _is_reduced(source, call, made, symbols)
        if isinstance(parent, cst.Element):
            made = _variable(source, one, symbols, is_norm=False)
            return made is not None and _is_reduced(source, one, made, symbols)
        return False
    return False
