"""Candidates of a choice that differ only in numbers: sizes of one model.

A registry often lists the same model in many sizes: functions with the same code or objects of one
class, whose widths and depths differ. What FSDP's contract depends on is the same for all of them,
so a search tries one.
"""

from __future__ import annotations

import io
import tokenize
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Dict, Function, Instance, Partial, Sequence, Value

MAX_DEPTH = 4  # of objects in objects
_TESTED = (-1, 0, 1)  # numbers that programs compare with: "no dropout", "one expert"
_LAYOUT = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


def by_shape(run: Run, candidates: Mapping[Any, Value]) -> list[list[Any]]:
    """The names of candidates, in groups that differ only in numbers; both in the given order."""
    groups: dict[Hashable, list[Any]] = {}
    for name, value in candidates.items():
        groups.setdefault(_shape(run, value, MAX_DEPTH), []).append(name)
    return list(groups.values())


def _shape(run: Run, value: Value, depth: int) -> Hashable:
    """What is the same of two values that differ only in numbers."""
    value = run.settle(value)
    if isinstance(value, Const):
        return _constant(value.value)
    if isinstance(value, Function) and isinstance(value.node, cst.FunctionDef):
        parts = _shapes(run, value.defaults, depth)
        return Function, id(value.scope), id(value.owner), _code(run, value), parts
    if depth and isinstance(value, Partial):
        named = _shapes(run, value.kwargs, depth)
        return (
            Partial,
            _shape(run, value.function, depth),
            _shape_of_items(run, value.args, depth),
            named,
        )
    if depth and isinstance(value, Instance):
        return id(value.cls), _shapes(run, value.attributes, depth)
    if depth and isinstance(value, Sequence):
        return value.kind, value.open, _shape_of_items(run, value.items, depth)
    if depth and isinstance(value, Dict):
        return Dict, value.open, _shapes(run, value.items, depth)
    return id(value)


def _shape_of_items(run: Run, values: list[Value], depth: int) -> Hashable:
    return tuple(_shape(run, one, depth - 1) for one in values)


def _shapes(run: Run, values: Mapping[Any, Value], depth: int) -> Hashable:
    return frozenset((name, _shape(run, one, depth - 1)) for name, one in values.items())


def _constant(value: object) -> Hashable:
    is_size = type(value) in {int, float} and value not in _TESTED
    return ("number", type(value)) if is_size else (type(value), repr(value))


def _code(run: Run, function: Function) -> Hashable:
    """The code of a function without its name, its docstring, and the numbers that it names."""
    known = run.project.shapes.get(function.node)
    if known is None:
        text = function.site.source.code(function.node)
        known = run.project.shapes[function.node] = tuple(_words(text))
    return known


def _words(text: str) -> Iterator[Hashable]:
    before, begins = "", True  # the last word, and whether a statement begins
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in _LAYOUT:
                begins = True
                yield token.type
            elif token.type == tokenize.NUMBER:
                yield "number" if token.string not in {"0", "1"} else token.string
            elif token.type == tokenize.COMMENT or (begins and token.type == tokenize.STRING):
                continue
            elif before != "def":
                yield token.string
            before, begins = token.string, begins and token.type in _LAYOUT
    except (tokenize.TokenError, IndentationError):
        yield text
