"""Whether a loop over modules certainly does to each module what its events say.

The interpreter visits every module that a loop may visit. If the program selects modules by
something that cannot be followed (a test of a name, a function of a library), an event only says
that the module may be selected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.source.positions import code_children
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.dotted import leaves
from fsdplint.trace import Event, GuardKind, Site
from fsdplint.trace.certainty import Certainty

if TYPE_CHECKING:
    from fsdplint.interpreter.configurations import Decisions

_ITERATING_METHODS = {
    "modules", "named_modules", "children", "named_children", "values", "items",
}  # fmt: skip
_ITERATING_FUNCTIONS = {"list", "tuple", "reversed", "enumerate", "iter"}
_FOR_EACH = {"apply", "map"}


class StaticCertainty(Certainty):
    """The certainty of a static trace, judged by the code around each event.

    A site that is not a node of a file was recorded: what happened there is certain.

    visits: loops whose iterated value is known, with whether they visit every element of it.
    decisions: those of the run.
    """

    def __init__(
        self,
        visits: Mapping[cst.CSTNode, bool] | None = None,
        decisions: Decisions | None = None,
    ) -> None:
        self.visits = {} if visits is None else visits
        self.decisions = decisions

    def of_module(self, event: Event) -> bool:
        frames = [*event.stack, event.site]
        for number, frame in enumerate(frames):
            if not isinstance(frame, NodeSite):
                return True
            loops = list(_loops_around(frame, self.visits))
            if not loops:
                continue
            if not all(self.visits.get(loop) or _visits_every_module(loop) for loop in loops):
                return False
            inner = frames[number + 1 :]
            bodies = [*loops, *(_function(site) for site in inner if isinstance(site, NodeSite))]
            if any(body is not None and _skips_modules(body) for body in bodies):
                return False
            if any(_in_loop(guard.site, frame, loops, inner) for guard in event.guards):
                return False
            return not any(self._is_decided(test) for test in _tests_in_loop(frame, loops))
        return True

    def _is_decided(self, test: cst.CSTNode) -> bool:
        """Whether the run decided a test for some module: others may have followed from it."""
        places = self.decisions.places.values() if self.decisions is not None else ()
        return any(test in nodes for nodes in places)

    def tested_in_loop(self, event: Event) -> bool:
        frames = [*event.stack, event.site]
        for number, frame in enumerate(frames):
            if not isinstance(frame, NodeSite):
                return False
            loops = list(_loops_around(frame, self.visits))
            inner = frames[number + 1 :]
            tests = [guard.site for guard in event.guards if guard.kind is not GuardKind.RANK]
            if loops and any(_in_loop(test, frame, loops, inner) for test in tests):
                return True
        return False

    def handles_errors(self, event: Event) -> bool:
        return any(
            isinstance(parent, cst.ExceptHandler | cst.ExceptStarHandler)
            for frame in (*event.stack, event.site)
            if isinstance(frame, NodeSite)
            for parent in _enclosing(frame)
        )

    def same_function(self, one: Site | None, other: Site | None) -> bool:
        if not isinstance(one, NodeSite) or not isinstance(other, NodeSite):
            return True
        return one.source is other.source and _function(one) is _function(other)


def _enclosing(site: NodeSite) -> Iterator[cst.CSTNode]:
    """A node and the nodes around it in its function, the innermost first."""
    node: cst.CSTNode | None = site.node
    while node is not None and not isinstance(node, cst.FunctionDef | cst.Lambda):
        yield node
        node = site.source.parent(node)


def passes_all_on(
    function: cst.CSTNode, loops: Sequence[cst.CSTNode], visits: Mapping[cst.CSTNode, bool]
) -> bool:
    """Whether a generator certainly yields each element that its loops visit.

    loops: those of the function, see `loops_in`.
    """
    if not all(visits.get(loop) or _visits_every_module(loop) for loop in loops):
        return False
    return not _skips_modules(function)


def loops_in(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The loops, comprehensions and `yield from` of a function, without functions in it."""
    for child in code_children(node):
        if isinstance(child, cst.BaseComp | cst.For | cst.While):
            yield child
        if isinstance(child, cst.Yield) and isinstance(child.value, cst.From):
            yield child
        if not isinstance(child, cst.FunctionDef | cst.Lambda):
            yield from loops_in(child)


def _loops_around(site: NodeSite, visits: Mapping[cst.CSTNode, bool]) -> Iterator[cst.CSTNode]:
    """The loops around a node in its function, and the node itself if it is `m.apply(f)`."""
    if isinstance(site.node, cst.Call) and _name(site.node.func) in _FOR_EACH:
        yield site.node
    for node in _enclosing(site):
        if isinstance(node, cst.BaseComp | cst.For) or node in visits:
            yield node


def _tests_in_loop(site: NodeSite, loops: Sequence[cst.CSTNode]) -> Iterator[cst.CSTNode]:
    """The tests of the `if` statements around a node, in the outermost loop around it."""
    tests: list[cst.CSTNode] = []
    for node in _enclosing(site):
        if isinstance(node, cst.If):
            tests.append(node.test)
        if node is loops[-1]:
            break
    yield from tests


def _visits_every_module(node: cst.CSTNode) -> bool:
    """Whether a loop certainly visits every module of what it loops over."""
    if isinstance(node, cst.For):
        return iterates_over_all(node.iter)
    if isinstance(node, cst.BaseComp):
        loop = node.for_in
        return not loop.ifs and loop.inner_for_in is None and iterates_over_all(loop.iter)
    return not isinstance(node, cst.While | cst.Yield)


def _skips_modules(node: cst.CSTNode) -> bool:
    """Whether a loop or function skips some modules by anything but their class."""
    if isinstance(node, cst.If):
        skips = leaves(node.body) or (node.orelse is not None and leaves(node.orelse))
        if skips and not _tests_class_only(node.test):
            return True
    return any(_skips_modules(child) for child in code_children(node))


def _tests_class_only(test: cst.BaseExpression) -> bool:
    """Whether a test checks classes only. The interpreter decides these tests, or guards them."""
    if isinstance(test, cst.BooleanOperation):
        return _tests_class_only(test.left) and _tests_class_only(test.right)
    if isinstance(test, cst.UnaryOperation):
        return _tests_class_only(test.expression)
    return isinstance(test, cst.Call) and _name(test.func) == "isinstance"


def iterates_over_all(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Tuple | cst.List):
        return not any(isinstance(item, cst.StarredElement) for item in node.elements)
    if isinstance(node, cst.Attribute):
        return True
    if not isinstance(node, cst.Call):
        return False
    if isinstance(node.func, cst.Attribute):
        return node.func.attr.value in _ITERATING_METHODS
    every = isinstance(node.func, cst.Name) and node.func.value in _ITERATING_FUNCTIONS
    return every and len(node.args) == 1 and iterates_over_all(node.args[0].value)


def _in_loop(
    site: Site | None, frame: NodeSite, loops: Sequence[cst.CSTNode], inner: Sequence[Site]
) -> bool:
    """Whether a condition stands in one of the loops, or in a function that they call."""
    if not isinstance(site, NodeSite):
        return True
    if any(_is_inside(site, frame.source, loop) for loop in loops):
        return True
    functions = [_function(other) for other in inner if isinstance(other, NodeSite)]
    return _function(site) in functions


def _is_inside(site: NodeSite, source: Source, node: cst.CSTNode) -> bool:
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
