"""Whether what a loop over modules does with each of them is known to be done with this one.

The interpreter visits every module that a loop may visit. Where the program chooses among them by
something that cannot be followed (a test of a name, a function of a library), an event says no more
than that the module may be chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from fsdplint.source.positions import code_children
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.dotted import leaves
from fsdplint.trace import Event, GuardKind, Site
from fsdplint.trace.certainty import Certainty

_PLAIN_METHODS = {
    "modules", "named_modules", "children", "named_children", "values", "items",
}  # fmt: skip
_PLAIN_FUNCTIONS = {"list", "tuple", "reversed", "enumerate", "iter"}
_FOR_EACH = {"apply", "map"}


class StaticCertainty(Certainty):
    """What the interpreter knows for certain, judged by the code around each event."""

    def of_module(self, event: Event) -> bool:
        return certain(event)

    def tested_in_loop(self, event: Event) -> bool:
        return tested(event)

    def handles_errors(self, event: Event) -> bool:
        return handles_errors(event)

    def same_function(self, one: Site | None, other: Site | None) -> bool:
        return same_function(one, other)


def certain(event: Event) -> bool:
    """Whether the event happens to the very module that it names, as far as loops are concerned.

    Always true of what was recorded.
    """
    frames = [*event.stack, event.site]
    for number, frame in enumerate(frames):
        if not isinstance(frame, NodeSite):
            return True
        choosers = list(_choosing(frame))
        if not choosers:
            continue
        if not all(_plain(node) for node in choosers):
            return False
        inner = frames[number + 1 :]
        bodies = [*choosers, *(_function(f) for f in inner if isinstance(f, NodeSite))]
        if any(body is not None and _turns_away(body) for body in bodies):
            return False
        return not any(_belongs(guard.site, frame, choosers, inner) for guard in event.guards)
    return True


def tested(event: Event) -> bool:
    """Whether the event stands under a test that the program makes anew in each turn of a loop
    around it, be it in a function that is called there, and that could not be decided."""
    frames = [*event.stack, event.site]
    for number, frame in enumerate(frames):
        if not isinstance(frame, NodeSite):
            return False
        choosers = list(_choosing(frame))
        inner = frames[number + 1 :]
        tests = [guard.site for guard in event.guards if guard.kind is not GuardKind.RANK]
        if choosers and any(_belongs(test, frame, choosers, inner) for test in tests):
            return True
    return False


def handles_errors(event: Event) -> bool:
    """Whether the event happens in an `except` clause: only if something else has failed."""
    return any(
        isinstance(parent, cst.ExceptHandler | cst.ExceptStarHandler)
        for frame in (*event.stack, event.site)
        if isinstance(frame, NodeSite)
        for parent in _around(frame)
    )


def same_function(one: Site | None, other: Site | None) -> bool:
    """Whether two places stand in one function, or both in none."""
    if not isinstance(one, NodeSite) or not isinstance(other, NodeSite):
        return True
    return one.source is other.source and _function(one) is _function(other)


def _around(site: NodeSite) -> Iterator[cst.CSTNode]:
    node: cst.CSTNode | None = site.node
    while node is not None and not isinstance(node, cst.FunctionDef | cst.Lambda):
        yield node
        node = site.source.parent(node)


def _choosing(site: NodeSite) -> Iterator[cst.CSTNode]:
    """The loops around a node in its function, and the call itself if it is `m.apply(f)`."""
    node: cst.CSTNode | None = site.node
    if isinstance(node, cst.Call) and _name(node.func) in _FOR_EACH:
        yield node
    while node is not None and not isinstance(node, cst.FunctionDef | cst.Lambda):
        if isinstance(node, cst.BaseComp | cst.For):
            yield node
        node = site.source.parent(node)


def _plain(node: cst.CSTNode) -> bool:
    """Whether a loop certainly visits all that it seems to visit."""
    if isinstance(node, cst.For):
        return _all_of(node.iter)
    if isinstance(node, cst.BaseComp):
        loop = node.for_in
        return not loop.ifs and loop.inner_for_in is None and _all_of(loop.iter)
    return True


def _turns_away(node: cst.CSTNode) -> bool:
    """Whether a loop or function leaves some modules out by anything but their class."""
    if isinstance(node, cst.If):
        left_early = leaves(node.body) or (node.orelse is not None and leaves(node.orelse))
        if left_early and not _of_class(node.test):
            return True
    return any(_turns_away(child) for child in code_children(node))


def _of_class(test: cst.BaseExpression) -> bool:
    """Whether a test asks for nothing but classes, which the interpreter decides or guards."""
    if isinstance(test, cst.BooleanOperation):
        return _of_class(test.left) and _of_class(test.right)
    if isinstance(test, cst.UnaryOperation):
        return _of_class(test.expression)
    return isinstance(test, cst.Call) and _name(test.func) == "isinstance"


def _all_of(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Tuple | cst.List):
        return not any(isinstance(item, cst.StarredElement) for item in node.elements)
    if isinstance(node, cst.Attribute):
        return True
    if not isinstance(node, cst.Call):
        return False
    if isinstance(node.func, cst.Attribute):
        return node.func.attr.value in _PLAIN_METHODS
    plain = isinstance(node.func, cst.Name) and node.func.value in _PLAIN_FUNCTIONS
    return plain and len(node.args) == 1 and _all_of(node.args[0].value)


def _belongs(
    site: Site | None, frame: NodeSite, loops: Sequence[cst.CSTNode], inner: Sequence[Site]
) -> bool:
    """Whether a condition lies in one of the loops, or in a function called from within them."""
    if not isinstance(site, NodeSite):
        return True
    if any(_inside(site, frame.source, loop) for loop in loops):
        return True
    functions = [_function(other) for other in inner if isinstance(other, NodeSite)]
    return _function(site) in functions


def _inside(site: NodeSite, source: Source, node: cst.CSTNode) -> bool:
    current: cst.CSTNode | None = site.node if site.source is source else None
    while current is not None and current is not node:
        current = source.parent(current)
    return current is not None


def _function(site: NodeSite) -> cst.CSTNode | None:
    node: cst.CSTNode | None = site.node
    while node is not None and not isinstance(node, cst.FunctionDef | cst.Lambda):
        node = site.source.parent(node)
    return node


def _name(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""
