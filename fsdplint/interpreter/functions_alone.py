"""Functions and methods that no program reaches, each called on its own."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import lazy
from fsdplint.interpreter.frames import Call, Frame
from fsdplint.interpreter.functions import bind, call_function
from fsdplint.interpreter.instances import instantiate
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.setup_methods import IsRelevant, set_up
from fsdplint.interpreter.values import Class, Function, Instance, Value
from fsdplint.source.source import Source


def run_alone(
    run: Run,
    source: Source,
    owner: cst.ClassDef | None,
    function: cst.FunctionDef,
    relevant: IsRelevant,
) -> None:
    """Call a function or method of a file with unknown arguments.

    Args:
        run: the run.
        source: the file.
        owner: the class that defines the method. An object of it is made first, and the methods
            that set what the method reads are called.
        function: the function or method.
        relevant: whether such a method matters.
    """
    scope = run.module_scope(source.path, source)
    run.begin_function()
    if owner is None:
        value: Value | None = scope.names.get(function.name.value)
        if isinstance(value, Function):
            _run_function(run, value)
        return
    found = scope.names.get(owner.name.value)
    klass = run.settle(found) if found is not None else None
    if not isinstance(klass, Class):
        return
    run.source = source
    run.frames.append(Frame(None, scope))
    try:
        instance = instantiate(run, klass, Call(owner, open=True))
        method = klass.attributes.get(function.name.value)
        if isinstance(instance, Instance):
            set_up(run, instance, function, relevant)
        if isinstance(method, Function) and method.node not in run.reached:
            bound = bind(run, method, instance, klass, owner)
            run.call(bound, Call(function, open=True))
    finally:
        run.frames.pop()


def _run_function(run: Run, function: Function) -> None:
    """Execute a function that no program reaches, with unknown arguments."""
    run.source = function.site.source
    run.frames.append(Frame(None, function.scope))
    try:
        result = call_function(run, function, None, [], {}, function.node, open_call=True)
        lazy.consume(run, result)
    finally:
        run.frames.pop()
