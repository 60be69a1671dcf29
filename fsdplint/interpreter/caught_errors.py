"""Errors of one rank that a loop catches around collectives, and goes on."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from functools import partial

import libcst as cst

from fsdplint.interpreter.attributes import read_attribute
from fsdplint.interpreter.error_flags import ends_loop_later
from fsdplint.interpreter.method_names import library_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.signals import EXITS
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Function,
    Instance,
    Method,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
)
from fsdplint.source.positions import descend
from fsdplint.trace import BackwardRun, Called, ErrorCaught, Ranks

# Errors that come on all ranks at once, or end a loop or program.
_ON_ALL = re.compile(
    r"Attribute|Import|ModuleNotFound|NotImplemented|StopIteration|Keyboard|SystemExit|Generator"
)
_ENDS = EXITS | {"os.abort", "os.kill", "os.killpg", "signal.raise_signal"}
_LEAVES = (cst.Raise, cst.Return, cst.Break)
_COMPOUND = (cst.For, cst.Match, cst.Try, cst.TryStar, cst.While, cst.With)
_BINDS = (cst.AnnAssign, cst.AssignTarget, cst.AugAssign, cst.For, cst.NamedExpr)
# Libraries whose functions return, but for those that end the program.
_KNOWN = frozenset(
    "builtins gc logging loguru rich time torch tqdm traceback wandb warnings".split()
)
MAX_DEPTH = 3  # of functions that a handler calls


def note_caught(run: Run, node: cst.Try, begin: int) -> None:
    """Note that a loop goes on after an error in code that trains a model of all ranks.

    begin: the number of events before the code.
    """
    if not run.loop_guards or run.ranks() is not Ranks.ALL or run.decisions.single_rank:
        return
    inside = [one for one in run.trace.events[begin:] if isinstance(one, BackwardRun | Called)]
    waiting = next((one for one in inside if one.collective and not one.ranks.partial), None)
    if waiting is None or not any(isinstance(one, BackwardRun) for one in inside):
        return  # an evaluation, which may be left out
    handler = next((one for one in node.handlers if _passes(run, one)), None)
    if handler is None or _may_leave_at_end(run, node.finalbody):
        return
    code = [handler.body, *_called_code(run, handler.body, ())]
    if not ends_loop_later(run, node, code, partial(_may_leave, run)):
        run.emit(ErrorCaught, handler, waiting=waiting.index)


def _passes(run: Run, handler: cst.ExceptHandler) -> bool:
    """Whether the loop may go on after a handler, and the error may come on one rank alone."""
    if handler.type is not None:
        caught = run.settle(run.eval(handler.type))
        kinds = caught.items if isinstance(caught, Sequence) else [caught]
        if any(isinstance(run.settle(one), Class) for one in kinds):
            return False  # a signal of the program, which may raise it on all ranks
        if any(map(_ON_ALL.search, (name for one in kinds for name in _names(run, one)))):
            return False
    if any(isinstance(one, cst.Continue) for one in descend(handler.body)):
        return True
    return not _may_leave(run, handler.body)


def _names(run: Run, error: Value) -> list[str]:
    """The names of a class of errors and its bases, as far as they are known."""
    error = run.settle(error)
    if isinstance(error, Symbol):
        return [error.name]
    return [error.origin] if isinstance(error, Unknown) else []


def _may_leave(run: Run, suite: cst.BaseSuite, inside: tuple[Function, ...] = ()) -> bool:
    """Whether the end of some code may leave the loop around it, or end the program.

    inside: the functions that the handler calls, the last of which has the code.
    """
    tests = [one for one in suite.body if isinstance(one, cst.If)]
    if not inside and any(_holds(run, one) and _may_leave(run, one.body) for one in tests):
        return True
    last = suite.body[-1] if suite.body else None
    if isinstance(last, cst.If):
        return _both_leave(run, last, inside)
    if isinstance(last, _COMPOUND):
        return any(_leaves(run, one, inside) for one in descend(last))
    small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
    return small is not None and _leaves(run, small, inside)


def _holds(run: Run, node: cst.If) -> bool:
    """Whether a test holds in each run of several ranks: `dist.get_world_size() > 1`."""
    return constant(run.settle(run.eval(node.test))) is True


def _may_leave_at_end(run: Run, node: cst.Finally | None) -> bool:
    if node is None:
        return False
    return any(isinstance(one, _LEAVES) for one in descend(node)) or _may_leave(run, node.body)


def _both_leave(run: Run, node: cst.If, inside: tuple[Function, ...]) -> bool:
    if node.orelse is None or not _may_leave(run, node.body, inside):
        return False
    other = node.orelse
    if isinstance(other, cst.Else):
        return _may_leave(run, other.body, inside)
    return _both_leave(run, other, inside)


def _leaves(run: Run, node: cst.CSTNode, inside: tuple[Function, ...]) -> bool:
    """Whether a statement may leave the loop, or calls a function that may end the program."""
    if isinstance(node, _LEAVES) and not (inside and isinstance(node, cst.Return)):
        return True
    if not isinstance(node, cst.BaseSmallStatement):
        return False
    calls = (one for one in descend(node) if isinstance(one, cst.Call))
    return any(_may_end(run, _callee(run, one.func, inside), inside) for one in calls)


def _called_code(
    run: Run, code: cst.CSTNode, inside: tuple[Function, ...]
) -> Iterator[cst.CSTNode]:
    """The code of the functions that some code calls, and of those that they call."""
    for call in (one for one in descend(code) if isinstance(one, cst.Call)):
        function = _callee(run, call.func, inside)
        while isinstance(function, Partial | Bound):
            function = run.settle(function.function)
        if isinstance(function, Function) and len(inside) < MAX_DEPTH:
            yield function.node.body
            yield from _called_code(run, function.node.body, (*inside, function))


def _callee(run: Run, node: cst.BaseExpression, inside: tuple[Function, ...]) -> Value:
    """The function that code calls, which is not executed here."""
    if not inside:
        return run.settle(run.eval(node))
    if isinstance(node, cst.Attribute):
        return read_attribute(run, _callee(run, node.value, inside), node.attr.value, node)
    if not isinstance(node, cst.Name) or _is_local(inside[-1], node.value):
        return Unknown()
    found = inside[-1].scope.lookup(node.value)
    if found is None and hasattr(builtins, node.value):
        return Symbol(f"builtins.{node.value}")
    return run.settle(found or Unknown())


def _is_local(function: Function, name: str) -> bool:
    """Whether a name may be one of the parameters and variables of a function."""
    params = function.node.params
    every = (*params.posonly_params, *params.params, *params.kwonly_params)
    bound = (one.target for one in descend(function.node.body) if isinstance(one, _BINDS))
    names = [one.name.value for one in every]
    names += [one.value for target in bound for one in descend(target) if isinstance(one, cst.Name)]
    return name in names


def _may_end(run: Run, function: Value, inside: tuple[Function, ...]) -> bool:
    """Whether a function may end the program, or raises an error."""
    if isinstance(function, Partial | Bound):
        return _may_end(run, run.settle(function.function), inside)
    if isinstance(function, Function):
        body = function.node.body
        if len(inside) >= MAX_DEPTH or not isinstance(body, cst.BaseSuite):
            return True
        return _may_leave(run, body, (*inside, function))
    if isinstance(function, Symbol):
        return function.name in _ENDS or not _is_known(function.name)
    if isinstance(function, Method):
        return isinstance(run.settle(function.receiver), Instance)
    if isinstance(function, Unknown):
        return not _is_known(function.library or library_of(function))
    return True


def _is_known(name: str) -> bool:
    """Whether the functions of a library return, but for those that end the program."""
    return name.partition(".")[0] in _KNOWN
