"""Entries that `load_state_dict` of a class restores if they are there, and that nothing saves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from fsdplint.source.positions import descend
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.dropped_counters import is_name, key_read, parameter


def optional_restores(load: cst.FunctionDef) -> Iterator[tuple[str, cst.Call]]:
    """The keys that a method asks for before it restores something, each with the call.

    `if "ema" in state: self.ema.load_state_dict(state["ema"])`. What another key restores, too, is
    left out: such code reads checkpoints of an older form.
    """
    state = parameter(load, 1)
    restores = list(_restores(load, state))
    for branch in descend(load.body):
        if not isinstance(branch, cst.If):
            continue
        keys = set(_keys_asked_for(branch.test, state))
        for key, call in _restores(branch.body, state):
            others = {name for other, one in restores if other != key for name in _objects(one)}
            if key in keys and set(_objects(call)) - others:
                yield key, call


def texts_in(functions: Iterable[cst.CSTNode]) -> set[str]:
    """The constant texts in some code."""
    nodes = (node for function in functions for node in descend(function))
    found = (node.evaluated_value for node in nodes if isinstance(node, cst.SimpleString))
    return {text for text in found if isinstance(text, str)}


def _keys_asked_for(test: cst.BaseExpression, state: str) -> Iterator[str]:
    """The texts that a test, or a part of `a and b`, says to be keys of a state."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        yield from _keys_asked_for(test.left, state)
        yield from _keys_asked_for(test.right, state)
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return
    asked, held = test.left, test.comparisons[0]
    if isinstance(held.operator, cst.In) and is_name(held.comparator, state):
        if isinstance(asked, cst.SimpleString) and isinstance(asked.evaluated_value, str):
            yield asked.evaluated_value


def _restores(code: cst.CSTNode, state: str) -> Iterator[tuple[str, cst.Call]]:
    """The calls that get an entry of a state, each with its key."""
    for node in descend(code):
        if isinstance(node, cst.Call):
            for arg in node.args:
                key = key_read(arg.value, state)
                if key is not None:
                    yield key, node


def _objects(call: cst.Call) -> Iterator[str]:
    """The names of the object whose method is called, and of the arguments."""
    if isinstance(call.func, cst.Attribute):
        yield dotted_name(call.func.value)
    yield from filter(None, (dotted_name(arg.value) for arg in call.args))
