"""The classes that a module may have at an event, from the tests of its class."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import elements
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.qualified_names import symbol_of
from fsdplint.trace import Guard, GuardKind


def tested_classes(guards: Sequence[Guard], class_name: str) -> list[str] | None:
    """The classes that a module may have, from the innermost test of its class.

    The guards of an event name no object. A test that differs between the turns of a loop is
    understood as a test of the module, since the loop goes over the modules.

    Args:
        guards: those of an event, outermost first.
        class_name: the class of the module in the trace. It tells a class that the program defines
            from a variable that holds classes.
    """
    for guard in reversed(guards):
        if guard.kind is GuardKind.VARYING and isinstance(guard.site, NodeSite):
            classes = _Test(guard.site.source, class_name).classes(guard.site.node, guard.holds)
            if classes is not None:
                return classes
    return None


class _Test:
    def __init__(self, source: Source, class_name: str) -> None:
        self._source = source
        self._class_name = class_name

    def classes(self, node: cst.CSTNode, holds: bool) -> list[str] | None:
        """The classes that are left where a test is true or false; None for other tests."""
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            return self.classes(node.expression, not holds)
        if isinstance(node, cst.BooleanOperation):
            return self._of_operands(node, holds)
        if not holds or not isinstance(node, cst.Call) or len(node.args) != 2:
            return None
        if dotted_name(node.func) != "isinstance":
            return None
        return self._class_names(node.args[1].value)

    def _of_operands(self, node: cst.BooleanOperation, holds: bool) -> list[str] | None:
        left, right = self.classes(node.left, holds), self.classes(node.right, holds)
        if isinstance(node.operator, cst.And) is holds:  # both operands have this outcome
            return right if left is None else left
        return None if left is None or right is None else [*left, *right]

    def _class_names(self, node: cst.BaseExpression) -> list[str] | None:
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitOr):
            left, right = self._class_names(node.left), self._class_names(node.right)
            return None if left is None or right is None else [*left, *right]
        if isinstance(node, cst.Tuple):
            parts = elements(node)
            found = [self._class_names(one) for one in parts] if parts else [None]
            return None if None in found else [name for one in found for name in one or ()]
        imported = symbol_of(self._source, node)
        last = (imported or dotted_name(node)).rpartition(".")[2]
        return [last] if imported or last == self._class_name else None
