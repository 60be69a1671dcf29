"""Numbers that code computes from a counter before a checkpoint restores it, and uses later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.source.positions import code_children, descend
from fsdplint.source.source import Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.enclosing import ancestors, function_around

_NUMBERS = frozenset({"int", "min", "max", "divmod", "abs", "round"})
_ORDERS = (cst.LessThan, cst.LessThanEqual, cst.GreaterThan, cst.GreaterThanEqual)
_LOOPS = (cst.For, cst.While)
_BINDERS = (cst.AssignTarget, cst.AnnAssign, cst.For, cst.CompFor, cst.NamedExpr)
_SCOPES = (cst.FunctionDef, cst.Lambda, cst.ClassDef)


@dataclass(frozen=True)
class Reader:
    """What is known of the code.

    is_counter: whether an attribute is the counter; the second argument says whether the read is
        before the load. called: the function of the program that a call executes.
    """

    is_counter: Callable[[cst.Attribute, bool], bool]
    called: Callable[[cst.Call], cst.FunctionDef | None]


def early_reads(
    source: Source, load: cst.CSTNode, reader: Reader
) -> Iterator[tuple[cst.Attribute, cst.Name]]:
    """The reads of a counter before a load, each with a loop after it that begins at the number."""
    scope = function_around(source, load)
    if isinstance(scope, cst.Lambda) or _in_loop(source, load, scope):
        return
    nodes = _own_nodes(scope)
    order = {id(node): number for number, node in enumerate(nodes)}
    bound = _bindings(nodes)
    outer = {id(one) for one in ancestors(source, load)}
    begun: dict[str, cst.Attribute] = {}
    generators: set[str] = set()
    for node in nodes:
        if not isinstance(node, cst.Assign) or len(node.targets) != 1:
            continue
        line = source.parent(node)
        block = source.parent(line) if line is not None else None
        before = order[id(node)] < order.get(id(load), -1)
        read = _counter_in(node.value, begun, reader, before)
        if read is None or (before and id(block) not in outer):
            continue
        made = before and _begins(node.value, begun, reader)
        if not (made or _is_number(node.value)):
            continue
        for name in _target_names(node.targets[0].target):
            if bound[name] == 1:
                begun[name] = read
                generators.update({name} if made else ())
    uses = [*_uses(source, nodes, begun.keys() - generators, reader)]
    for one in nodes:
        if isinstance(one, cst.Name) and _is_read_from(source, one, generators):
            uses.append(one)
    for use in uses:
        if order[id(use)] > order.get(id(load), len(nodes)):
            yield begun[use.value], use


def _counter_in(
    value: cst.CSTNode, begun: dict[str, cst.Attribute], reader: Reader, before: bool
) -> cst.Attribute | None:
    """The read of the counter from which a number is computed; None if there is none, or a later
    one."""
    found: cst.Attribute | None = None
    for node in descend(value):
        if isinstance(node, cst.Attribute) and reader.is_counter(node, before):
            if not before:
                return None
            found = found or node
        elif isinstance(node, cst.Name) and node.value in begun:
            found = found or begun[node.value]
    return found


def _is_number(value: cst.CSTNode) -> bool:
    """Whether an expression computes numbers from names, attributes and constants."""
    for node in descend(value):
        if isinstance(node, cst.Call):
            if not (isinstance(node.func, cst.Name) and node.func.value in _NUMBERS | {"len"}):
                return False
        elif isinstance(node, cst.BaseExpression) and not isinstance(
            node, cst.Name | cst.Attribute | cst.BaseNumber | cst.BinaryOperation | cst.Tuple
        ):
            return False
    return True


def _begins(value: cst.BaseExpression, begun: dict[str, cst.Attribute], reader: Reader) -> bool:
    """Whether a call makes a generator whose loops begin at the counter that it gets."""
    if not isinstance(value, cst.Call):
        return False
    function = reader.called(value)
    if function is None or not any(isinstance(one, cst.Yield) for one in descend(function.body)):
        return False
    return any(
        _is_number(arg.value)
        and _counter_in(arg.value, begun, reader, True) is not None
        and _begins_at(function, parameter)
        for arg, parameter in _parameters(value, function)
    )


def _is_read_from(source: Source, node: cst.Name, generators: set[str]) -> bool:
    """Whether code reads an element of a generator."""
    if node.value not in generators:
        return False
    parent = source.parent(node)
    if isinstance(parent, cst.For | cst.CompFor):
        return parent.iter is node
    call = source.parent(parent) if isinstance(parent, cst.Arg) else None
    return isinstance(call, cst.Call) and dotted_name(call.func) == "next"


def _uses(
    source: Source, nodes: list[cst.CSTNode], names: Collection[str], reader: Reader
) -> Iterator[cst.Name]:
    """The uses of numbers at which a loop begins, or up to which it skips elements."""
    for node in nodes:
        if isinstance(node, cst.Name) and node.value in names:
            if _decides(node, list(ancestors(source, node))):
                yield node
        elif isinstance(node, cst.Call):
            function = reader.called(node)
            for arg, parameter in _parameters(node, function) if function is not None else ():
                assert function is not None
                name = arg.value
                if isinstance(name, cst.Name) and name.value in names:
                    if _begins_at(function, parameter):
                        yield name


def _begins_at(function: cst.FunctionDef, parameter: str) -> bool:
    """Whether a loop of a function begins at a number that it gets, or skips elements up to it."""
    nodes = _own_nodes(function)
    bound = _bindings(nodes)
    if bound[parameter]:
        return False
    names = {parameter}
    for node in nodes:
        if isinstance(node, cst.Assign) and len(node.targets) == 1:
            read = {one.value for one in descend(node.value) if isinstance(one, cst.Name)}
            if read & names and _is_number(node.value):
                names.update(_target_names(node.targets[0].target))
    parents = {id(child): node for node in [function, *nodes] for child in code_children(node)}
    return any(
        isinstance(node, cst.Name) and node.value in names and _decides(node, _above(parents, node))
        for node in nodes
    )


def _above(parents: dict[int, cst.CSTNode], node: cst.CSTNode) -> list[cst.CSTNode]:
    found: list[cst.CSTNode] = []
    parent = parents.get(id(node))
    while parent is not None:
        found.append(parent)
        parent = parents.get(id(parent))
    return found


def _decides(name: cst.Name, above: list[cst.CSTNode]) -> bool:
    """Whether a loop begins at a number, or skips elements up to it. above: the nodes around it."""
    inner: cst.CSTNode = name
    ordered = False
    for number, node in enumerate(above):
        if isinstance(node, cst.Call):
            called = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
            position = next((n for n, arg in enumerate(node.args) if arg is inner), None)
            if not isinstance(called, cst.Name) or position is None:
                return False
            if called.value == "range":
                return position == 0 and len(node.args) > 1
            if called.value == "islice":
                return position == 1 and len(node.args) > 2
            if called.value not in _NUMBERS:
                return False
        elif isinstance(node, cst.Comparison):
            ordered = all(isinstance(one.operator, _ORDERS) for one in node.comparisons)
        elif isinstance(node, cst.While):
            return ordered and inner is node.test
        elif isinstance(node, cst.If):
            in_loop = any(isinstance(one, _LOOPS) for one in above[number:])
            return ordered and inner is node.test and in_loop and _skips(node)
        elif isinstance(node, cst.Arg):
            if inner is not node.value:
                return False
        elif not isinstance(node, cst.BaseExpression | cst.ComparisonTarget) or isinstance(
            node, cst.Attribute | cst.Subscript | cst.Lambda
        ):
            return False
        inner = node
    return False


def _skips(test: cst.If) -> bool:
    """Whether a test decides which elements of a loop are used."""
    return any(isinstance(node, cst.Continue | cst.Yield) for node in descend(test.body))


def _parameters(call: cst.Call, function: cst.FunctionDef) -> Iterator[tuple[cst.Arg, str]]:
    """The arguments of a call with the names of their parameters."""
    given = [one.name.value for one in (*function.params.posonly_params, *function.params.params)]
    if isinstance(call.func, cst.Attribute) and given[:1] in (["self"], ["cls"]):
        given = given[1:]
    if any(arg.star for arg in call.args):
        return
    for position, arg in enumerate(call.args):
        if arg.keyword is not None:
            yield arg, arg.keyword.value
        elif position < len(given):
            yield arg, given[position]


def _in_loop(source: Source, node: cst.CSTNode, scope: cst.CSTNode) -> bool:
    for one in ancestors(source, node):
        if one is scope:
            return False
        if isinstance(one, _LOOPS):
            return True
    return False


def _own_nodes(scope: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes of a function or module in their order, without those of functions in it."""
    found: list[cst.CSTNode] = []
    stack: list[cst.CSTNode] = [scope.body] if isinstance(scope, cst.FunctionDef) else [scope]
    while stack:
        node = stack.pop()
        found.append(node)
        if not isinstance(node, _SCOPES):
            stack.extend(reversed(code_children(node)))
    return found


def _bindings(nodes: list[cst.CSTNode]) -> Counter[str]:
    """How often each name is bound; `name += 1` does not count."""
    bound: Counter[str] = Counter()
    for node in nodes:
        if isinstance(
            node, cst.AssignTarget | cst.AnnAssign | cst.For | cst.CompFor | cst.NamedExpr
        ):
            bound.update(_target_names(node.target))
        elif isinstance(node, cst.AsName | cst.FunctionDef | cst.ClassDef):
            bound.update(_target_names(node.name))
        elif isinstance(node, cst.Global | cst.Nonlocal):
            bound.update({item.name.value: 2 for item in node.names})
        elif isinstance(node, cst.Del):
            bound.update({name: 2 for name in _target_names(node.target)})
    return bound


def _target_names(target: cst.CSTNode) -> list[str]:
    if isinstance(target, cst.Name):
        return [target.value]
    if isinstance(target, cst.Tuple | cst.List):
        return [name for element in target.elements for name in _target_names(element.value)]
    return []
