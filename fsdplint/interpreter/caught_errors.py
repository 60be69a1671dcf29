"""Errors of one rank that a loop catches around collectives, and goes on."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.interpreter.library_classes import is_report
from fsdplint.interpreter.run import Run
from fsdplint.source.positions import descend
from fsdplint.syntax.dotted import dotted_name
from fsdplint.trace import BackwardRun, Called, ErrorCaught, Ranks

# Errors that come on all ranks at once, or end a loop or program.
_ON_ALL = re.compile(
    r"Attribute|Import|ModuleNotFound|NotImplemented|StopIteration|Keyboard|SystemExit|Generator"
)
# Calls at the end of a handler after which the loop certainly goes on, besides reports.
_GOES_ON = frozenset("append collect empty_cache print print_exc zero_grad".split())
_LEAVES = (cst.Raise, cst.Return, cst.Break)


def note_caught(run: Run, node: cst.Try, begin: int) -> None:
    """Note that a loop goes on after an error in code that trains a model of all ranks.

    begin: the number of events before the code.
    """
    if not run.loop_guards or run.ranks() is not Ranks.ALL or run.decisions.single_rank:
        return
    inside = [one for one in run.trace.events[begin:] if isinstance(one, BackwardRun | Called)]
    waiting = next((one for one in inside if one.collective and not one.ranks.partial), None)
    if not any(isinstance(one, BackwardRun) for one in inside):
        return  # an evaluation, which may be left out
    handler = next((one for one in node.handlers if _passes(run, one)), None)
    if waiting is not None and handler is not None:
        run.emit(ErrorCaught, handler, waiting=waiting.index)


def _passes(run: Run, handler: cst.ExceptHandler) -> bool:
    """Whether the loop may go on after a handler, and the error may come on one rank alone."""
    caught = "" if handler.type is None else run.text(handler.type)
    if _ON_ALL.search(caught):
        return False
    if any(isinstance(one, cst.Continue) for one in descend(handler.body)):
        return True
    return not _leaves(handler.body)


def _leaves(suite: cst.BaseSuite) -> bool:
    """Whether code may leave the loop around it, or end the program."""
    last = suite.body[-1] if suite.body else None
    if isinstance(last, cst.If):
        return _both_leave(last)
    small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
    if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
        name = dotted_name(small.value.func).rpartition(".")[2]
        return not (is_report(name) or name in _GOES_ON)  # it may end the program
    return isinstance(small, _LEAVES)


def _both_leave(node: cst.If) -> bool:
    if node.orelse is None or not _leaves(node.body):
        return False
    other = node.orelse
    return _leaves(other.body) if isinstance(other, cst.Else) else _both_leave(other)
