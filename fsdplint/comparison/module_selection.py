"""Code that shards only some of several modules, and what it says about which."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.trace import GuardKind, Sharded, Trace, Wrapped
from fsdplint.trace.arguments import Constant

# Functions whose result has the elements of their argument.
_KEEPS = {"list", "tuple", "reversed", "enumerate", "iter", "sorted"}
_SIZES = {"numel", "nelement"}  # methods of a parameter that tests of sizes call
_LEAVING = (cst.Return, cst.Continue, cst.Break)


def list_part(trace: Trace, event: Sharded | Wrapped) -> tuple[NodeSite, Constant] | None:
    """The code that takes a part of a list, such as `model.blocks[1:]` or `model.blocks[0]`.

    Returns:
        The loop over a slice or the element itself, and a description that is the same where two
        programs may take the same part; None for other code.
    """
    for site in (event.site, *event.stack):
        if isinstance(site, NodeSite):
            for loop, iterated in _loops(site.source, site.node):
                if _is_part(iterated):
                    return NodeSite(site.source, loop), Constant("sharded in a part of the list")
    site = event.site
    module = event.inner if isinstance(event, Wrapped) else event.module
    if not isinstance(site, NodeSite) or not _stands_for_several(trace, module):
        return None
    element = _constant_element(site.node)
    if element is None:
        return None
    return NodeSite(site.source, element.slice[0]), Constant(f"element {_index(element)}")


def selection_test(event: Sharded | Wrapped) -> str | None:
    """The test that decides for each module whether it is sharded; None if there is none.

    A test in a loop differs from turn to turn. A test of the number of parameters differs between
    modules, also where it only leaves the function early.
    """
    for guard in event.guards:
        if guard.kind is GuardKind.VARYING and guard.own_data is None:
            return guard.text if guard.holds else f"not ({guard.text})"
    site = event.site
    return _size_test(site.source, site.node) if isinstance(site, NodeSite) else None


def selection_text(trace: Trace, event: Sharded | Wrapped) -> str | None:
    """In words, which of the modules that it may be an event shards; None for all of them."""
    part = list_part(trace, event)
    if part is not None:
        site, what = part
        code = _iterated_text(site)
        return f"`{code}`" if code is not None else str(what.value)
    test = selection_test(event)
    return None if test is None else f"those that a test selects: `{test}`"


def _stands_for_several(trace: Trace, module: str) -> bool:
    return any(
        one in trace.modules and trace.modules[one].repeated
        for one in (module, *trace.ancestors(module))
    )


# Parts of lists -------------------------------------------------------------------------------


def _loops(source: Source, node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """The loops around a node in its function, and what they iterate over."""
    current: cst.CSTNode | None = node
    while current is not None and not isinstance(current, cst.FunctionDef | cst.Lambda):
        if isinstance(current, cst.For):
            yield current, current.iter
        elif isinstance(current, cst.BaseSimpleComp):
            yield current, current.for_in.iter
        current = source.parent(current)


def _iterated_text(site: NodeSite) -> str | None:
    if isinstance(site.node, cst.For):
        return site.source.code(_without_copies(site.node.iter))
    if isinstance(site.node, cst.BaseSimpleComp):
        return site.source.code(_without_copies(site.node.for_in.iter))
    return None


def _is_part(node: cst.BaseExpression) -> bool:
    """Whether an expression leaves elements of a list out."""
    node = _without_copies(node)
    if not isinstance(node, cst.Subscript) or len(node.slice) != 1:
        return False
    bounds = node.slice[0].slice
    if not isinstance(bounds, cst.Slice) or (bounds.lower is None and bounds.upper is None):
        return False
    return not _leaves_root_out(_without_copies(node.value), bounds)


def _without_copies(node: cst.BaseExpression) -> cst.BaseExpression:
    while isinstance(node, cst.Call) and node.args and dotted_name(node.func) in _KEEPS:
        node = node.args[0].value
    return node


def _leaves_root_out(node: cst.BaseExpression, bounds: cst.Slice) -> bool:
    """Whether a slice is `list(model.modules())[1:]`: all modules but the model itself."""
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in ("modules", "named_modules")
        and bounds.upper is None
        and isinstance(bounds.lower, cst.Integer)
        and bounds.lower.evaluated_value == 1
    )


def _constant_element(node: cst.CSTNode) -> cst.Subscript | None:
    """The element of a list, by a constant index, that a call gets as its module."""
    if not isinstance(node, cst.Call) or not node.args:
        return None
    module = next((arg for arg in node.args if arg.keyword and arg.keyword.value == "module"), None)
    value = (module or node.args[0]).value
    while isinstance(value, cst.Attribute):  # a part of the element
        value = value.value
    return value if isinstance(value, cst.Subscript) and _index(value) is not None else None


def _index(node: cst.Subscript) -> int | None:
    if len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
        return None
    value, sign = node.slice[0].slice.value, 1
    if isinstance(value, cst.UnaryOperation) and isinstance(value.operator, cst.Minus):
        value, sign = value.expression, -1
    return sign * value.evaluated_value if isinstance(value, cst.Integer) else None


# Tests of sizes -------------------------------------------------------------------------------

# The interpreter knows no sizes, and no guard tells that code comes after `if size < n: return`. So
# the syntax decides: such a test uses a number of parameters, or what is computed from it.


def _size_test(source: Source, node: cst.CSTNode) -> str | None:
    """The condition under which a test of sizes that may end a turn or a call lets a node run."""
    if not any(name in source.text for name in _SIZES):
        return None
    tests = _leaving_tests(source, node)
    sizes = _size_names(source, node) if tests else set()
    test = next((one for one in tests if _tests_sizes(source, one, sizes)), None)
    return None if test is None else f"not ({source.code(test)})"


def _leaving_tests(source: Source, node: cst.CSTNode) -> list[cst.BaseExpression]:
    """The tests before a node in its function that may leave the function, or a loop around it."""
    current, parent = node, source.parent(node)
    tests: list[cst.BaseExpression] = []
    while parent is not None and not isinstance(current, cst.FunctionDef | cst.Lambda):
        if isinstance(parent, cst.IndentedBlock):
            before = parent.body[: next(i for i, x in enumerate(parent.body) if x is current)]
            tests += [one.test for one in before if isinstance(one, cst.If) and _leaves(one.body)]
        current, parent = parent, source.parent(parent)
    return tests


def _leaves(body: cst.BaseSuite) -> bool:
    last = body.body[-1] if body.body else None
    return isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], _LEAVING)


def _size_names(source: Source, node: cst.CSTNode) -> set[str]:
    """The functions of a file, and the variables of the function around a node, that are sizes."""
    around: cst.CSTNode | None = node
    while around is not None and not isinstance(around, cst.FunctionDef):
        around = source.parent(around)
    given: list[tuple[str, cst.BaseExpression]] = []
    for one in source.descend(around if around is not None else source.tree):
        if isinstance(one, cst.Assign):
            names = [x.target.value for x in one.targets if isinstance(x.target, cst.Name)]
            given += [(name, one.value) for name in names]
    for one in source.descend(source.tree):
        if isinstance(one, cst.FunctionDef):
            returned = [
                x.value for x in source.descend(one) if isinstance(x, cst.Return) and x.value
            ]
            given += [(one.name.value, value) for value in returned]
    found: set[str] = set()
    size = -1
    while len(found) > size:
        size = len(found)
        found |= {name for name, value in given if _tests_sizes(source, value, found)}
    return found


def _tests_sizes(source: Source, node: cst.BaseExpression, names: set[str]) -> bool:
    return any(
        (isinstance(one, cst.Name) and one.value in names)
        or (isinstance(one, cst.Attribute) and one.attr.value in _SIZES)
        for one in source.descend(node)
    )
