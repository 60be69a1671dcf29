"""Squares of gradients that a program adds up over the ranks by hand.

In FSDP1 `p.grad` is this rank's part. Where the squares of the parts are added up by an `all_reduce`, the
sum is that of the whole, however the parameters are cut: `p.grad.to_local()` says the same in FSDP2.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.editing.layout import descend, statement_of
from fsdplint.program import Program
from fsdplint.program.names import references
from fsdplint.program.source import Source
from fsdplint.program.values import ParametersOf
from fsdplint.rules.migration.calls import arguments
from fsdplint.rules.migration.context import Migration, is_fsdp1, nodes
from fsdplint.rules.migration.names import FSDP

SAME = {"data", "detach", "float", "double", "abs"}  # the same of each part
SQUARES = {"pow", "square", "__pow__"}
NORMS = {"torch.norm", "torch.linalg.norm", "torch.linalg.vector_norm"}
ELEMENTWISE = {"mul_", "div_", "zero_", "fill_", "add_", "sub_", "clamp_", "neg_", "nan_to_num_"}
IGNORED = ("ignored_modules", "ignored_states", "ignored_parameters")
TITLE = "Add up the squares of this rank's part: `to_local()`"


def rewrite(migration: Migration, source: Source) -> None:
    """Say `to_local()` in each function that adds up squares over the ranks."""
    if ".grad" not in source.text or ignores(migration):
        return
    symbols = {node: full for _, node, full in references(source, "")}
    for function in [n for n in nodes(source) if isinstance(n, cst.FunctionDef)]:
        uses = [node for node in _gradients(function) if _of_fsdp1(migration.program, node)]
        sums = [node for node in uses if _added_up(source, function, node, symbols)]
        rest = [node for node in uses if node not in sums and not _harmless(source, node)]
        if not sums or rest or len(uses) != len(list(_gradients(function))):
            continue
        for node in sums:
            text = migration.text(source, node)
            migration.substitute(source, node, f"{text}.to_local()")
            migration.local.add(node)
        migration.local.add(function)
        migration.step(source, sums[0], TITLE)


def adds_up(program: Program, source: Source) -> bool:
    """Whether a file has such a function, and so belongs to the migration."""
    if ".grad" not in source.text or "all_reduce" not in source.text:
        return False
    return any(_of_fsdp1(program, node) for node in _gradients(source.tree))


def _gradients(tree: cst.CSTNode) -> Iterator[cst.Attribute]:
    for node in descend(tree):
        if isinstance(node, cst.Attribute) and node.attr.value == "grad":
            yield node


def _of_fsdp1(program: Program, node: cst.Attribute) -> bool:
    """Whether it is the gradient of parameters of wrapped models, and of no others."""
    values = program.values(node.value)
    return bool(values) and all(
        isinstance(v, ParametersOf) and v.element and v.modules and all(map(is_fsdp1, v.modules))
        for v in values
    )


def ignores(migration: Migration) -> bool:
    """Whether parameters may be left whole, which have no `to_local`."""
    return any(
        isinstance(node, cst.Call)
        and migration.fsdp1(node.func) == FSDP
        and any(arg.star or (arg.keyword and arg.keyword.value in IGNORED) for arg in node.args)
        for source in migration.sources
        for node in nodes(source)
    )


def _harmless(source: Source, node: cst.Attribute) -> bool:
    """Whether a gradient is only compared with None, or changed element by element."""
    parent = source.parent(node)
    if isinstance(parent, cst.Comparison):
        return True
    if isinstance(parent, cst.Attribute) and parent.attr.value == "data":
        parent = source.parent(parent)
    return isinstance(parent, cst.Attribute) and parent.attr.value in ELEMENTWISE


def _added_up(
    source: Source, function: cst.FunctionDef, node: cst.Attribute, symbols: dict[cst.CSTNode, str]
) -> bool:
    """Whether the squares of a gradient go into a sum that `all_reduce` adds up."""
    top = _square(source, node, symbols)
    name = _sum(source, top) if top is not None else None
    return name is not None and _reduced(function, name, symbols)


def _square(
    source: Source, node: cst.Attribute, symbols: dict[cst.CSTNode, str]
) -> cst.CSTNode | None:
    """The expression that is the sum of the squares of a gradient."""
    current: cst.CSTNode = node
    norm = squared = False
    while True:
        parent = source.parent(current)
        if isinstance(parent, cst.Attribute) and parent.value is current:
            name, call = parent.attr.value, source.parent(parent)
            if not isinstance(call, cst.Call) or call.func is not parent:
                if name != "data":
                    return None
                current = parent
                continue
            if name == "norm" and not norm and not squared and _is_two(call, 0):
                norm = True
            elif name in SQUARES and not squared and (name == "square" or _is_two(call, 0)):
                squared = True
            elif name == "sum" and squared and not norm and not call.args:
                return call
            elif name not in SAME and not (name == "item" and norm):
                return None
            current = call
        elif isinstance(parent, cst.Arg):
            call = source.parent(parent)
            if not isinstance(call, cst.Call) or norm or squared or call.args[0] is not parent:
                return None
            if symbols.get(call.func, "") not in NORMS or not _is_two(call, 1):
                return None
            norm, current = True, call
        elif isinstance(parent, cst.BinaryOperation) and isinstance(parent.operator, cst.Power):
            if parent.left is not current or not _two(parent.right) or squared:
                return None
            squared, current = True, parent
        else:
            return current if norm and squared else None


def _is_two(call: cst.Call, position: int) -> bool:
    """Whether the order of a norm, or the exponent, is 2 (for norms, by default)."""
    given = arguments(call, ["input", "p"][1 - position :])[0]
    order = given.get("p") or given.get("ord") or given.get("exponent")
    if order is not None:
        return _two(order.value)
    name = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    return name not in SQUARES and "dim" not in given


def _two(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Integer | cst.Float) and float(node.value) == 2.0


def _sum(source: Source, node: cst.CSTNode) -> str | None:
    """The variable that a number is added to: `total += number`, `total = sum(number for ...)`."""
    statement = statement_of(source, node)
    if isinstance(statement, cst.AugAssign):
        added = isinstance(statement.operator, cst.AddAssign) and statement.value is node
        return _target(statement.target) if added else None
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return None
    if isinstance(statement.value, cst.Call):
        call, inner = statement.value, source.parent(node)
        comprehension = isinstance(inner, cst.GeneratorExp | cst.ListComp) and inner.elt is node
        whole = comprehension and len(call.args) == 1 and call.args[0].value is inner
        if whole and isinstance(call.func, cst.Name) and call.func.value == "sum":
            return _target(statement.targets[0].target)
    if isinstance(statement.value, cst.BinaryOperation) and statement.value.right is node:
        name = _target(statement.targets[0].target)
        if isinstance(statement.value.operator, cst.Add) and _target(statement.value.left) == name:
            return name
    return None


def _target(node: cst.CSTNode) -> str | None:
    return node.value if isinstance(node, cst.Name) else None


def _reduced(function: cst.FunctionDef, name: str, symbols: dict[cst.CSTNode, str]) -> bool:
    """Whether `all_reduce` adds up a variable, or the tensor that is made of it."""
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
