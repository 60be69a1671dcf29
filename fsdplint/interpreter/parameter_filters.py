"""By what a program chooses among a model's parameters, as in `[p for p in ... if p.ndim > 1]`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.interpreter.values import Const, Dict, ParameterName, ParametersOf, Sequence, Value
from fsdplint.source.source import NodeSite, children
from fsdplint.trace import GuardKind

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Interpreter

DIMENSIONS, LEAF_NAME = "dimensions", "leaf name"
# What parameters themselves are called, not the modules that hold them.
_LEAF = re.compile(r"(^|\.)(bias|weight)$")


class Choosing:
    """The part of the interpreter that knows why a parameter was chosen."""

    def choices(self: Interpreter, tests: Iterable[cst.CSTNode]) -> set[str]:
        """What these tests, which have been evaluated, ask of a parameter."""
        found: set[str] = set()
        for test in tests:
            nodes = _nodes(test)
            if any(self._is_dimensions(node) for node in nodes):
                found.add(DIMENSIONS)
            if any(isinstance(self.evaluations.get(node), ParameterName) for node in nodes):
                if any(_LEAF.search(text) for node in nodes for text in self._texts(node)):
                    found.add(LEAF_NAME)
        return found

    def _is_dimensions(self: Interpreter, node: cst.CSTNode) -> bool:
        """Whether a node is `p.dim()`, `p.ndim` or `len(p.shape)`."""
        sized = False
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
            if node.func.value == "len" and len(node.args) == 1:
                node, sized = node.args[0].value, True
        if isinstance(node, cst.Call):
            node = node.func
        if not isinstance(node, cst.Attribute):
            return False
        value = self.evaluations.get(node.value)
        if not isinstance(value, ParametersOf) or not value.element:
            return False
        return node.attr.value in ({"shape", "size"} if sized else {"ndim", "dim"})

    def _texts(self: Interpreter, node: cst.CSTNode) -> list[str]:
        if isinstance(node, cst.SimpleString):
            value = node.evaluated_value
            return [value] if isinstance(value, str) else []
        held = self.evaluations.get(node)
        items = held.items if isinstance(held, Sequence) else []
        return [i.value for i in items if isinstance(i, Const) and isinstance(i.value, str)]

    def chosen(self: Interpreter, value: Value, tests: Iterable[cst.CSTNode]) -> Value:
        """A value that was taken under some tests: a parameter, or a pair with one in it."""
        held = [value] if isinstance(value, ParametersOf) else []
        if isinstance(value, Sequence):
            held = [item for item in value.items if isinstance(item, ParametersOf)]
        if not any(item.element for item in held):
            return value
        found = self.choices(tests)
        if not found:
            return value
        if isinstance(value, ParametersOf):
            return dataclasses.replace(value, chosen_by=value.chosen_by | found)
        assert isinstance(value, Sequence)
        return dataclasses.replace(value, items=[self.chosen(item, tests) for item in value.items])

    def chosen_here(self: Interpreter, value: Value) -> Value:
        """A value that is put into a list under the conditions that hold now."""
        tests = [
            entry.guard.site.node
            for entry in self.guards
            if entry.guard.kind is GuardKind.VARYING and isinstance(entry.guard.site, NodeSite)
        ]
        return self.chosen(value, tests) if tests else value

    def tested_in_loop(self: Interpreter) -> bool:
        """Whether a test of the innermost loop, which could not be decided, led to this point."""
        if not self.loop_guards:
            return False
        around = {id(entry) for entry in self.loop_guards[-1]}
        return any(
            id(entry) not in around and entry.guard.kind is not GuardKind.RANK
            for entry in self.guards
        )

    def doubt_choice(self: Interpreter, value: Value) -> None:
        """The modules in a value were chosen by a test that could not be decided."""
        for module in self.modules_in(value):
            self.trace.modules[module.id].perhaps_chosen = True

    def choices_of(self: Interpreter, value: Value | None) -> set[str]:
        """By what the parameters in an optimizer's first argument were chosen."""
        value = self.settle(value) if value is not None else None
        if isinstance(value, ParametersOf):
            return set(value.chosen_by)
        parts: list[Value] = []
        if isinstance(value, Sequence):
            parts = value.items
        elif isinstance(value, Dict) and "params" in value.items:
            parts = [value.items["params"]]
        return {choice for part in parts for choice in self.choices_of(part)}


def _nodes(node: cst.CSTNode) -> list[cst.CSTNode]:
    """A node and all below it."""
    found = [node]
    for current in found:
        found.extend(children(current))
    return found
