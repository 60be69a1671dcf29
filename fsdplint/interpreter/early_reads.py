"""Counters that the program reads before a checkpoint restores them.

See `fsdplint.syntax.early_reads`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Bound, Function, Instance, Scope, Value
from fsdplint.syntax.early_reads import Reader, early_reads
from fsdplint.trace import CounterReadEarly


def note_early_reads(run: Run, holder: Instance, names: Collection[str], node: cst.CSTNode) -> None:
    """Record the numbers that callers have computed from attributes that a load sets at a node."""
    frames = [frame for frame in run.frames if not frame.of_comprehension]
    sites = [*run.stack, run.site(node)]
    outer = run.source
    for frame, site in zip(reversed(frames), reversed(sites), strict=False):
        reader = Reader(
            partial(_is_attribute, run, holder, names), partial(_called_function, frame.scope)
        )
        seen = set()
        for read, use in early_reads(site.source, site.node, reader):
            if read in seen:
                continue
            seen.add(read)
            run.source = site.source
            run.emit(CounterReadEarly, read, name=read.attr.value, number=use.value)
            run.source = outer


def _is_attribute(
    run: Run, holder: Instance, names: Collection[str], read: cst.Attribute, before: bool
) -> bool:
    if read.attr.value not in names:
        return False
    value = run.evaluations.get(read.value)
    return not before or (value is not None and run.settle(value) is holder)


def _called_function(scope: Scope, call: cst.Call) -> cst.FunctionDef | None:
    """The function of the program that a call executes; None for any other."""
    found: Value | None = None
    if isinstance(call.func, cst.Name):
        found = scope.lookup(call.func.value)
    elif isinstance(call.func, cst.Attribute) and isinstance(call.func.value, cst.Name):
        holder = scope.lookup(call.func.value.value)
        found = holder.cls.lookup(call.func.attr.value) if isinstance(holder, Instance) else None
    if isinstance(found, Bound):
        found = found.function
    node = found.node if isinstance(found, Function) else None
    return node if isinstance(node, cst.FunctionDef) else None
