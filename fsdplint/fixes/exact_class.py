"""Replace `isinstance(module, nn.Linear)` in a loop by `type(module) is nn.Linear`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import uses
from fsdplint.interpreter import Program
from fsdplint.interpreter.values import Symbol
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.trace import Site


def test_exact_class(rewrite: Rewrite, program: Program, site: Site, name: str) -> bool:
    """Rewrite the single class test that decides which modules the loop around a call selects.

    Returns:
        False, without changes, if there is no such test, or if it accepts several classes.
    """
    if not isinstance(site, NodeSite) or uses(site.source.tree, "type"):
        return False
    source = site.source
    tests = list(_class_tests(source, site.node))
    if len(tests) != 1 or len(tests[0].args) != 2:
        return False
    call = tests[0]
    module, kind = (argument.value for argument in call.args)
    values = program.values(kind)
    if not isinstance(kind, cst.Name | cst.Attribute) or not isinstance(module, cst.Name):
        return False
    if not values or not all(isinstance(v, Symbol) and v.name == name for v in values):
        return False
    rewrite.replace(source, call, f"type({module.value}) is {source.code(kind)}")
    return True


def _class_tests(source: Source, node: cst.CSTNode) -> Iterator[cst.Call]:
    """The `isinstance` calls in the conditions between a call and the loop around it."""
    for outer in ancestors(source, node):
        if isinstance(outer, cst.If):
            yield from _plain_tests(outer.test)
        elif isinstance(outer, cst.BaseComp):
            for condition in outer.for_in.ifs:
                yield from _plain_tests(condition.test)
        if isinstance(outer, cst.For | cst.BaseComp | cst.FunctionDef):
            return


def _plain_tests(test: cst.BaseExpression) -> Iterator[cst.Call]:
    """The `isinstance` calls that are a condition or its operands of `and`."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        yield from _plain_tests(test.left)
        yield from _plain_tests(test.right)
    elif isinstance(test, cst.Call) and isinstance(test.func, cst.Name):
        if test.func.value == "isinstance":
            yield test
