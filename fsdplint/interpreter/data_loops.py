"""Loops over constants that only compute data, such as a table of sizes.

Such a loop makes a few turns. What more turns would add to its lists is unknown then, and so are
the names that it assigns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Dict, Unknown, Value
from fsdplint.interpreter.values import Sequence as Items
from fsdplint.source.positions import code_children
from fsdplint.syntax.dotted import bound_by
from fsdplint.syntax.named_sites import names_in

MOST_STEPS = 200  # of all turns of a loop
FEWEST = 4  # elements
MAX_DEPTH = 4  # of lists in lists

_FILLING = {"add", "append", "extend", "insert", "setdefault", "update"}
_BUILTINS = {
    "abs", "bool", "dict", "divmod", "enumerate", "float", "int", "len", "list", "max", "min",
    "range", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip",
}  # fmt: skip
_BLOCKS = (cst.For, cst.If, cst.Else, cst.IndentedBlock, cst.SimpleStatementSuite)
_STATEMENTS = (
    cst.SimpleStatementLine, cst.Assign, cst.AugAssign, cst.Expr, cst.Pass, cst.Continue,
)  # fmt: skip


def few_turns(
    run: Run,
    loop: cst.BaseSuite,
    target: cst.CSTNode,
    elements: Sequence[Value],
    turns: Iterable[Callable[[], None]],
) -> Iterator[Callable[[], None]]:
    """The turns of a loop over elements, but only the first ones of many that compute data.

    target: what each element is assigned to.
    """
    settled = map(run.settle, elements)
    if len(elements) < FEWEST or not all(map(_is_data, settled)) or not _computes_data(loop):
        yield from turns
        return
    begin = run.steps
    for turn in turns:
        if run.steps - begin > MOST_STEPS and _forget(run, loop, names_in(target)):
            return
        yield turn


def _is_data(value: Value, depth: int = 0) -> bool:
    if isinstance(value, Items | Dict) and depth < MAX_DEPTH:
        items = value.items if isinstance(value, Items) else value.items.values()
        return all(_is_data(one, depth + 1) for one in items)
    return isinstance(value, Const) or (isinstance(value, Unknown) and value.number)


def _computes_data(node: cst.CSTNode) -> bool:
    """Whether code does nothing but compute values of builtin types, and puts them into names,
    lists and dicts."""
    if isinstance(node, cst.Call):
        name = node.func.value if isinstance(node.func, cst.Name) else ""
        return (name in _BUILTINS or _receiver(node) is not None) and all(
            _computes_data(one.value) for one in node.args
        )
    if isinstance(node, cst.AssignTarget) and not isinstance(
        node.target, cst.Name | cst.Tuple | cst.Subscript
    ):
        return False
    is_statement = isinstance(node, cst.BaseCompoundStatement | cst.BaseSmallStatement)
    if is_statement and not isinstance(node, (*_BLOCKS, *_STATEMENTS)):
        return False
    if isinstance(node, cst.Attribute | cst.Lambda | cst.Await | cst.Yield | cst.NamedExpr):
        return False
    return all(map(_computes_data, code_children(node)))


def _receiver(call: cst.Call) -> str | None:
    """The name of the list or dict that a call fills."""
    method = call.func
    if isinstance(method, cst.Attribute) and method.attr.value in _FILLING:
        return method.value.value if isinstance(method.value, cst.Name) else None
    return None


def _forget(run: Run, node: cst.CSTNode, target: set[str]) -> bool:
    """Forget what further turns of a loop would change; whether that is only data."""
    filled = _filled(node)
    assigned = {name for name in (bound_by(node) | target) - filled if name.isidentifier()}
    changed = {name: run.scope.lookup(name) for name in filled | assigned}
    if not all(value is not None and _is_data(value) for value in changed.values()):
        return False
    for name, value in changed.items():
        if name in assigned:
            run.scope.assign(name, Unknown())
        elif isinstance(value, Items):
            value.open, value.length, value.every = True, None, False
        elif isinstance(value, Dict):
            value.may_have_more()
    return True


def _filled(node: cst.CSTNode) -> set[str]:
    """The names of the lists and dicts that code fills."""
    found: set[str] = set()
    if isinstance(node, cst.Call):
        found.add(_receiver(node) or "")
    elif isinstance(node, cst.AssignTarget | cst.AugAssign):
        target: cst.BaseExpression = node.target
        while isinstance(target, cst.Subscript):
            target = target.value
            found.add(target.value if isinstance(target, cst.Name) else "")
    for child in code_children(node):
        found |= _filled(child)
    return found - {""}
