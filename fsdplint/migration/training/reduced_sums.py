"""Numbers of this rank that go to a variable, which `all_reduce` adds up over the ranks."""

from __future__ import annotations

import libcst as cst

from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend, statement_of

SAME = {"data", "detach", "float", "double", "abs"}  # the same for each part
SQUARES = {"pow", "square", "__pow__"}
_COLLECTING = {"torch.stack", "torch.tensor", "torch.as_tensor", "torch.cat"}
_SAME = SAME - {"abs"} | {"item", "to"}  # of a number


def is_two(node: cst.BaseExpression) -> bool:
    """Whether an expression is the number 2."""
    return isinstance(node, cst.Integer | cst.Float) and float(node.value) == 2.0


def summed_variable(
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
            if isinstance(parent.operator, cst.Power) and is_norm and is_two(parent.right):
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
    if isinstance(target, cst.Subscript):  # one of several sums
        target = target.value
    return target.value if isinstance(target, cst.Name) else None


def is_reduced(
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
        if _is_target(source, parent):
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
                made = summed_variable(source, one, symbols, is_norm=False)
                return made is not None and is_reduced(source, call, made, symbols)
        if isinstance(parent, cst.Element):
            made = summed_variable(source, one, symbols, is_norm=False)
            return made is not None and is_reduced(source, one, made, symbols)
        return False
    return False


def _is_target(source: Source, place: cst.CSTNode | None) -> bool:
    """Whether a name is assigned to, or has an entry that is."""
    if isinstance(place, cst.Subscript):
        place = source.parent(place)
    return isinstance(place, cst.AugAssign | cst.AssignTarget)
