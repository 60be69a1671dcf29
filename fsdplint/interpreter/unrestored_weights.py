"""Context managers that set the weights of a model, and do nothing when they are left."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Bound, Function, Value
from fsdplint.source.positions import descend
from fsdplint.source.source import Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.trace import StateLoaded, WeightsSet, WeightsUnrestored

_MODES = frozenset({"train", "eval"})


def note_unrestored_weights(
    run: Run, function: Value | None, node: cst.CSTNode, begun: int, entered: int
) -> None:
    """Record that a context has set weights at its begin, if its end certainly does nothing.

    function: the generator function of the context, or the `__exit__` of its class.
    begun, entered: the numbers of events at its begin and at the begin of the block.
    """
    if isinstance(function, Bound):
        function = function.function
    code = function.node if isinstance(function, Function) else None
    if not isinstance(function, Function) or not isinstance(code, cst.FunctionDef):
        return
    modules = dict.fromkeys(
        module
        for event in run.trace.events[begun:entered]
        if isinstance(event, WeightsSet) and event.extent == "all" and not event.same_values
        for module in event.modules
    )
    loads = [one for one in run.trace.events[begun:entered] if isinstance(one, StateLoaded)]
    modules.update(dict.fromkeys(one.into for one in loads if one.into in run.trace.modules))
    if modules and ends_without_work(function.scope.source, code):
        run.emit(WeightsUnrestored, node, modules=tuple(modules), begun=begun, entered=entered)


def ends_without_work(source: Source, function: cst.FunctionDef) -> bool:
    """Whether nothing but a switch of the mode comes after the `yield`, or in an `__exit__`."""
    yields = [node for node in descend(function.body) if isinstance(node, cst.Yield)]
    if not yields:
        return _does_nothing(function.body.body)
    if len(yields) > 1:
        return False
    inner: cst.CSTNode = yields[0]
    outer = source.parent(inner)
    while outer is not None and inner is not function:
        if isinstance(outer, cst.IndentedBlock | cst.SimpleStatementLine):
            rest = outer.body[list(outer.body).index(inner) + 1 :]
            if not _does_nothing(rest):
                return False
        elif isinstance(outer, cst.Try):
            final = outer.finalbody
            if outer.handlers or (final is not None and not _does_nothing(final.body.body)):
                return False
        elif not isinstance(outer, cst.FunctionDef | cst.With | cst.Expr):
            return False
        inner, outer = outer, source.parent(outer)
    return True


def _does_nothing(body: Sequence[cst.CSTNode]) -> bool:
    """Whether statements do nothing, or only switch the mode of a module."""
    return all(
        _is_idle(statement)
        for line in body
        for statement in (line.body if isinstance(line, cst.SimpleStatementLine) else [line])
    )


def _is_idle(statement: cst.CSTNode) -> bool:
    if isinstance(statement, cst.Pass):
        return True
    value = statement.value if isinstance(statement, cst.Return | cst.Expr) else statement
    if value is None or isinstance(value, cst.BaseString):
        return True
    if isinstance(value, cst.Name):
        return value.value in ("None", "False", "True")
    called = value.func if isinstance(value, cst.Call) else None
    return called is not None and dotted_name(called).rpartition(".")[2] in _MODES
