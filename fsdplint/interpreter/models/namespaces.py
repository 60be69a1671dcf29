"""Namespaces as dicts: `globals()`, `locals()` and `exec`.

A configurator runs `exec(open("config.py").read())` or `globals().update(...)` after the program
has assigned its settings. What the program assigned is then the default of a setting, not its
value.
"""

from __future__ import annotations

import re

from fsdplint.interpreter.attributes import read_attribute
from fsdplint.interpreter.chosen_members import member
from fsdplint.interpreter.elements import subscript
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.own_dicts import dict_to_read
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.settings import override_entries, override_settings
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import (
    Const,
    Dict,
    Method,
    Namespace,
    Symbol,
    Unknown,
    Value,
    constant,
)

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@function("builtins.exec")
def execute_code(run: Run, name: str, call: Call) -> Value:
    code, namespace = call.arg(0, "source"), call.arg(1, "globals")
    if isinstance(code, Const):
        return Const(None)
    if namespace is None:
        override_settings(run.scope)
    elif isinstance(found := run.settle(namespace), Namespace | Dict):
        override_entries(found)
    return Const(None)


@function("builtins.eval")
def evaluate_code(run: Run, name: str, call: Call) -> Value:
    """`eval` of a dotted name."""
    text = constant(call.arg(0, "source"))
    if not isinstance(text, str) or len(call.values) > 1 or not _DOTTED.fullmatch(text):
        return unknown_result(call, run.text(call.node))
    head, *rest = text.split(".")
    found = run.scope.lookup(head)
    for part in rest:
        found = read_attribute(run, found, part, call.node) if found is not None else None
    return found if found is not None else Unknown(origin=run.text(call.node))


@function("builtins.globals")
def global_names(run: Run, name: str, call: Call) -> Value:
    return Namespace(run.scope.module)


@function("builtins.locals")
def local_names(run: Run, name: str, call: Call) -> Value:
    return Namespace(run.scope) if run.scope.kind == "module" else Unknown()


@method("Namespace", "update")
def update(run: Run, receiver: Namespace, name: str, call: Call) -> Value:
    new = run.settle(call.args[0]) if call.args else Dict(dict(call.kwargs), call.open)
    if isinstance(new, Dict):
        for key, value in new.items.items():
            receiver.scope.names[str(key)] = value
    if not isinstance(new, Dict) or new.open:
        override_entries(receiver)
    return Const(None)


@method("Namespace", "get", "pop", "setdefault", "__getitem__")
def get(run: Run, receiver: Namespace, name: str, call: Call) -> Value:
    key = call.arg(0, "key")
    if isinstance(key, Const):
        found = receiver.scope.names.get(key.value)
    else:
        found = member(run, receiver, key, call.node) if key is not None else None
    if found is not None:
        return run.settle(found)
    return Unknown(origin=run.text(call.node))


@method("Symbol", "get", "__getitem__")
def get_of_library(run: Run, receiver: Symbol, name: str, call: Call) -> Value:
    """`module.__dict__.get(name)` for a module of a library."""
    return subscript(run, receiver, call.arg(0, "key") or Unknown(), call.node)


@method("Namespace", "items", "keys", "values", "copy")
def read_all(run: Run, receiver: Namespace, name: str, call: Call) -> Value:
    held = dict_to_read(receiver)
    return run.call(Method(held, name), call) if isinstance(held, Dict) else Unknown()
