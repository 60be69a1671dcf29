"""Namespaces as dicts: `globals()`, `locals()` and `exec`.

A configurator runs `exec(open("config.py").read())` or `globals().update(...)` after the program
has assigned its settings. What the program assigned is then the default of a setting, not its
value.
"""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.settings import override_settings
from fsdplint.interpreter.values import Const, Dict, Namespace, Unknown, Value


@function("builtins.exec")
def execute_code(run: Run, name: str, call: Call) -> Value:
    code, namespace = call.arg(0, "source"), call.arg(1, "globals")
    if isinstance(code, Const):
        return Const(None)
    if namespace is None:
        override_settings(run.scope)
    elif isinstance(found := run.settle(namespace), Namespace):
        override_settings(found.scope)
    return Const(None)


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
        override_settings(receiver.scope)
    return Const(None)


@method("Namespace", "get", "pop", "setdefault", "__getitem__")
def get(run: Run, receiver: Namespace, name: str, call: Call) -> Value:
    key = call.arg(0, "key")
    found = receiver.scope.names.get(key.value) if isinstance(key, Const) else None
    if found is not None:
        return run.settle(found)
    return Unknown(origin=run.text(call.node))


@method("Namespace", "items", "keys", "values", "copy")
def read_all(run: Run, receiver: Namespace, name: str, call: Call) -> Value:
    return Unknown()
