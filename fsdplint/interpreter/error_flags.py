"""Flags that a handler of an error sets, and tests of them that end the loop around it.

`failed = True` in the handler, and `if failed: break` behind it, or `while not failed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.source.positions import descend
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.enclosing import function_around

_ENDS = (cst.Break, cst.Raise, cst.Return)
_EXITS = frozenset({"_exit", "abort", "exit", "quit"})
MayLeave = Callable[[cst.BaseSuite], bool]


def ends_loop_later(
    run: Run, node: cst.Try, code: Iterable[cst.CSTNode], may_leave: MayLeave
) -> bool:
    """Whether a test of what a handler of an error sets may end the loop.

    code: that of the handler, and that of the functions which it calls.
    may_leave: whether the end of some code of the function around the handler may end the loop.
    """
    here = function_around(run.source, node)
    handler, *called = code
    names = {one.value for one in _targets(handler) if isinstance(one, cst.Name)}
    if any(not names.isdisjoint(_names(test)) for test in _tests(here, may_leave)):
        return True
    targets = (one for part in (handler, *called) for one in _targets(part))
    held = {one.attr.value for one in targets if isinstance(one, cst.Attribute)}
    sources = run.project.sources.values() if held else ()
    tests = (test for source in sources for test in _tests(source.tree, _has_end))
    return any(not held.isdisjoint(_attributes(test)) for test in tests)


def _targets(code: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """What the assignments in some code set."""
    for node in descend(code):
        if isinstance(node, cst.AnnAssign | cst.AssignTarget | cst.AugAssign | cst.NamedExpr):
            yield from descend(node.target)


def _tests(code: cst.CSTNode, may_leave: MayLeave) -> Iterator[cst.CSTNode]:
    """The tests in some code that may end a loop."""
    for node in descend(code):
        if isinstance(node, cst.While | cst.Assert):
            yield node.test
        elif isinstance(node, cst.If):
            other = node.orelse.body if isinstance(node.orelse, cst.Else) else None
            if may_leave(node.body) or (other is not None and may_leave(other)):
                yield node.test


def _has_end(code: cst.BaseSuite) -> bool:
    calls = (one for one in descend(code) if isinstance(one, cst.Call))
    if any(dotted_name(one.func).rpartition(".")[2] in _EXITS for one in calls):
        return True
    return any(isinstance(one, _ENDS) for one in descend(code))


def _names(code: cst.CSTNode) -> Iterator[str]:
    return (one.value for one in descend(code) if isinstance(one, cst.Name))


def _attributes(code: cst.CSTNode) -> Iterator[str]:
    return (one.attr.value for one in descend(code) if isinstance(one, cst.Attribute))
