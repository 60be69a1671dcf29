"""Iterators that do their work when they are consumed: `map(...)`, generators and others."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Dict, Lazy, Sequence, Value
from fsdplint.source.positions import code_children

MAX_DEPTH = 2  # of nested lists and dicts that are searched for iterators

# Python functions that consume their arguments; others pass them on or inspect the object.
CONSUMERS = frozenset(
    "builtins.all builtins.any builtins.dict builtins.dict.fromkeys builtins.frozenset "
    "builtins.list builtins.max builtins.min builtins.set builtins.sorted builtins.sum "
    "builtins.tuple collections.Counter collections.OrderedDict collections.deque "
    "functools.reduce math.fsum math.prod".split()
)
_PYTHON = ("builtins.", "collections.", "functools.", "inspect.", "itertools.", "logging.", "tqdm.",
           "typing.", "warnings.")  # fmt: skip
# Methods that store their argument without consuming it.
_KEEP = frozenset("append appendleft add insert put setdefault __setitem__ __setattr__".split())


def lazy(
    run: Run, node: cst.CSTNode, produce: Callable[[], Value], source: Value | None = None
) -> Lazy:
    """An iterator made at a node; its elements are computed in the current file and frame."""
    return Lazy(in_frame(run, produce), node, source)


def generator(
    run: Run,
    node: cst.CSTNode,
    function: cst.CSTNode,
    execute: Callable[[Callable[[Value], None] | None], Value],
) -> Lazy:
    """The call of a generator function.

    execute: executes the function. It gets what to do with each value that is yielded; without it,
        the result is the yielded values.
    """

    def drive(on_yield: Callable[[Value], None]) -> None:
        made.elements = Sequence([], "iter", open=True)
        in_frame(run, lambda: execute(on_yield))()

    made = Lazy(in_frame(run, lambda: execute(None)), node, drive=drive, generator=function)
    return made


def in_frame(run: Run, produce: Callable[[], Value]) -> Callable[[], Value]:
    """The same function, executed in the file and frame that are current now."""
    file, frame = run.source, run.frames[-1]

    def elements() -> Value:
        if run.frames[-1] is frame:  # not a nested call, whose depth is bounded
            return produce()
        outer, run.source = run.source, file
        run.frames.append(frame)
        try:
            return produce()
        finally:
            run.frames.pop()
            run.source = outer

    return elements


def consume(run: Run, value: Value) -> Value:
    """The elements of an iterator, computed at the first use; any other value unchanged."""
    value = run.settle(value)
    if not isinstance(value, Lazy):
        return value
    value.elements = Sequence([], open=True)  # for an iterator that consumes itself
    value.elements = elements = consume(run, value.produce())
    run.evaluations[value.node] = elements
    return elements


def consume_arguments(run: Run, call: Call) -> None:
    """Consume the iterators in the arguments of a call."""
    call.args = [_consume_inside(run, value) for value in call.args]
    call.kwargs = {name: _consume_inside(run, value) for name, value in call.kwargs.items()}


def _consume_inside(run: Run, value: Value, depth: int = 0) -> Value:
    if isinstance(value, Lazy):
        return consume(run, value)
    if depth < MAX_DEPTH and isinstance(value, Sequence):
        value.items = [_consume_inside(run, item, depth + 1) for item in value.items]
    elif depth < MAX_DEPTH and isinstance(value, Dict):
        value.items = {
            key: _consume_inside(run, item, depth + 1) for key, item in value.items.items()
        }
    return value


def function_consumes(name: str) -> bool:
    """Whether a modelled library function consumes its arguments."""
    return name in CONSUMERS or not name.startswith(_PYTHON)


def method_consumes(name: str) -> bool:
    """Whether a modelled method consumes its arguments."""
    return name not in _KEEP


def has_lazy(call: Call) -> bool:
    """Whether an argument is an iterator that is not consumed yet."""
    return any(isinstance(value, Lazy) and value.elements is None for value in call.values)


def is_generator(run: Run, node: cst.CSTNode) -> bool:
    """Whether a function has a `yield` of its own."""
    known = run.project.generators
    if node not in known:
        body = node.body if isinstance(node, cst.FunctionDef | cst.Lambda) else node
        known[node] = _yields(body)
    return known[node]


def _yields(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Yield):
        return True
    if isinstance(node, cst.FunctionDef | cst.Lambda | cst.ClassDef):
        return False
    return any(_yields(child) for child in code_children(node))
