"""Conditions that certainly have the same value on all ranks."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.fixes.syntax import uses
from fsdplint.source.source import Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.trace.queries.common import RANK_WORDS

# Names of step counters and step intervals.
COUNTERS = re.compile(
    r"(^|_)(step|epoch|iteration|iter)s?(_num|_idx|_no|_id)?$"
    r"|(^|_)(every|interval|freq|frequency|period)$"
)
# Names of objects that hold the user's settings.
SETTINGS = {"args", "cfg", "conf", "config", "hparams", "FLAGS", "settings"}
QUESTIONS = {"dist.is_initialized", "torch.distributed.is_initialized", "dist.is_available"}
# Other nodes that bind a name; the value is unknown.
OTHER_BINDERS = (
    *(cst.AsName, cst.Global, cst.Nonlocal, cst.NameItem, cst.ImportAlias, cst.Del),
    *(cst.MatchAs, cst.MatchStar, cst.MatchMapping, cst.FunctionDef, cst.ClassDef),
)
# Other names whose values differ between ranks.
OWN = re.compile(r"gpu|device|host|node|worker|proc|seed|local|shard|loss|metric|best", re.I)
_WORDS = {"True", "False", "None"}


def is_rank_invariant(
    source: Source, node: cst.CSTNode, inside: frozenset[str] = frozenset()
) -> bool:
    """Whether an expression has no effects and the same truth value on all ranks that evaluate it.

    inside: the names whose assignments are being checked.
    """
    if isinstance(node, cst.BaseNumber | cst.SimpleString):
        return True
    parts: list[cst.CSTNode] = []
    if isinstance(node, cst.Name):
        return node.value in _WORDS or _same_name(source, node, inside)
    if isinstance(node, cst.Attribute):
        return _same_attribute(dotted_name(node))
    if isinstance(node, cst.Call):
        return not node.args and dotted_name(node.func) in QUESTIONS
    if isinstance(node, cst.Comparison):
        parts = [node.left, *(target.comparator for target in node.comparisons)]
    elif isinstance(node, cst.BinaryOperation | cst.BooleanOperation):
        parts = [node.left, node.right]
    elif isinstance(node, cst.UnaryOperation):
        parts = [node.expression]
    elif isinstance(node, cst.IfExp):
        parts = [node.test, node.body, node.orelse]
    return bool(parts) and all(is_rank_invariant(source, part, inside) for part in parts)


def _suggests_rank(name: str) -> bool:
    """Whether a name suggests a value that each rank has of its own."""
    return bool(RANK_WORDS.search(name) or OWN.search(name))


def _same_attribute(path: str) -> bool:
    """Whether a path is like `args.save` or `state.epoch` and does not mention the rank."""
    *owners, last = path.split(".")
    if _suggests_rank(path) or not path:
        return False
    return bool(COUNTERS.search(last)) or not SETTINGS.isdisjoint(owners)


def _same_name(source: Source, node: cst.Name, inside: frozenset[str]) -> bool:
    name = node.value
    if name in inside:
        return True  # `step = step + 1`
    if _suggests_rank(name):
        return False
    scope = function_around(source, node)
    bindings = _bindings(source, scope, name)
    if not bindings and scope is not source.tree:
        scope = source.tree
        bindings = _bindings(source, scope, name)
    around = {*ancestors(source, node)}
    return bool(bindings) and all(
        _same_binding(source, binding, name, inside | {name})
        and not any(
            isinstance(outer, cst.If | cst.While | cst.Try | cst.TryStar | cst.Match | cst.With)
            and outer not in around
            for outer in ancestors(source, binding)
        )
        for binding in bindings
    )


def _bindings(source: Source, scope: cst.CSTNode, name: str) -> list[cst.CSTNode]:
    """The bindings of a name in a scope; for an unsupported kind, the name node itself."""
    nodes: list[cst.CSTNode] = []
    for use in uses(scope, name):
        outer = source.parent(use)
        if isinstance(outer, cst.Tuple | cst.Element | cst.List | cst.StarredElement):
            while isinstance(outer, cst.Tuple | cst.Element | cst.List | cst.StarredElement):
                outer = source.parent(outer)
            if isinstance(outer, cst.For) and use in _flat(outer.target):
                nodes.append(outer)
            elif isinstance(outer, cst.AssignTarget | cst.CompFor):
                nodes.append(use)
        elif isinstance(outer, cst.AssignTarget):
            assign = source.parent(outer)
            nodes.append(assign if assign is not None else use)
        elif isinstance(outer, cst.AugAssign | cst.AnnAssign | cst.NamedExpr | cst.For):
            if outer.target is use:
                nodes.append(outer)
        elif isinstance(outer, cst.Param):
            if outer.name is use:
                nodes.append(outer)
        elif isinstance(outer, OTHER_BINDERS):
            nodes.append(use)
    return nodes


def _flat(target: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(target, cst.Tuple | cst.List):
        return [name for element in target.elements for name in _flat(element.value)]
    return [target]


def _same_binding(source: Source, binding: cst.CSTNode, name: str, inside: frozenset[str]) -> bool:
    if isinstance(binding, cst.For):
        return _counts(source, binding, name, inside)
    if isinstance(binding, cst.Param):
        return bool(COUNTERS.search(name))
    if isinstance(binding, cst.Assign):
        return len(binding.targets) == 1 and is_rank_invariant(source, binding.value, inside)
    if isinstance(binding, cst.AugAssign | cst.AnnAssign):
        return binding.value is not None and is_rank_invariant(source, binding.value, inside)
    return False


def _counts(source: Source, loop: cst.For, name: str, inside: frozenset[str]) -> bool:
    """Whether a loop counts its iterations in a variable: by `range` or `enumerate`."""
    call = loop.iter
    if not isinstance(call, cst.Call) or any(a.star or a.keyword is not None for a in call.args):
        return False
    function, given = dotted_name(call.func), [arg.value for arg in call.args]
    if function == "range":
        starts = [given[0], *given[2:]] if len(given) > 1 else []
        variable: cst.BaseExpression | None = loop.target
    elif function == "enumerate":
        starts = given[1:]
        variable = loop.target.elements[0].value if isinstance(loop.target, cst.Tuple) else None
    else:
        return False
    if not isinstance(variable, cst.Name) or variable.value != name:
        return False
    return all(is_rank_invariant(source, start, inside) for start in starts)
