"""Objects that a configuration names: `hydra.utils` and the schemas of `omegaconf`."""

from __future__ import annotations

import re

from fsdplint.interpreter.attributes import read_attribute
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.imports import import_module, locate_module
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.optimizers import build_optimizer, owners_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Class,
    Const,
    Dict,
    Instance,
    Partial,
    Symbol,
    Unknown,
    Value,
    constant,
)

_HYDRA = ("hydra.utils", "hydra._internal.utils")
_TARGET = "_target_"
_SETTINGS = ("_recursive_", "_convert_", "_partial_", "_args_", _TARGET)
_OPTIMIZER = re.compile(r"optim", re.IGNORECASE)


def by_path(run: Run, path: str, call: Call) -> Value | None:
    """The object of a dotted path, in a file of the project or in a library."""
    parts = path.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    known = [n for n in range(len(parts), 0, -1) if locate_module(run, ".".join(parts[:n]))]
    if parts[0] == "__main__":
        scope = run.module_scopes.get("__main__")
        found = scope.names.get(parts[1]) if scope is not None and len(parts) > 1 else None
        rest = parts[2:]
    else:
        length = known[0] if known else 1
        found, rest = import_module(run, ".".join(parts[:length])), parts[length:]
    for part in rest:
        found = read_attribute(run, found, part, call.node) if found is not None else None
    return run.settle(found) if found is not None else None


@function(*(f"{home}.{name}" for home in _HYDRA
            for name in ("get_class", "get_method", "get_object")))  # fmt: skip
def object_by_path(run: Run, name: str, call: Call) -> Value:
    path = constant(call.arg(0, "path"))
    found = by_path(run, path, call) if isinstance(path, str) else None
    return found if found is not None else call_unknown(run, Symbol(name), call)


@function(*(f"{home}.{name}" for home in _HYDRA for name in ("instantiate", "call")))
def instantiate(run: Run, name: str, call: Call) -> Value:
    """Call what `_target_` names; a target that is not known may be an optimizer."""
    config = run.settle(call.arg(0, "config") or Unknown())
    rest = call.args[1:]
    named = {key: value for key, value in call.kwargs.items() if key != "config"}
    if isinstance(config, Dict):
        named = {**{str(key): value for key, value in config.items.items()}, **named}
    path = constant(named.get(_TARGET))
    target = by_path(run, path, call) if isinstance(path, str) else None
    is_partial = constant(named.get("_partial_")) is True
    arguments = {key: value for key, value in named.items() if key not in _SETTINGS}
    is_open = call.open or not isinstance(config, Dict) or config.open
    if target is not None:
        if is_partial:
            return Partial(target, rest, arguments, is_open)
        return run.call(target, Call(call.node, rest, arguments, is_open))
    inner = Call(call.node, rest, arguments, is_open)
    origin = config.origin if isinstance(config, Unknown) else ""
    gets_parameters = bool(owners_of(run, inner.arg(0, "params"))[0])
    if gets_parameters and ("params" in arguments or _OPTIMIZER.search(origin)):
        return build_optimizer(run, "Optimizer", inner)
    return call_unknown(run, Symbol(name), call)


@function("omegaconf.OmegaConf.structured")
def structured(run: Run, name: str, call: Call) -> Value:
    """A configuration with the fields of a class, which the user may set."""
    schema = run.settle(call.arg(0, "obj") or Unknown())
    if isinstance(schema, Class):
        return run.call(schema, Call(call.node, open=True))
    return schema if isinstance(schema, Instance) else call_unknown(run, Symbol(name), call)


@function("omegaconf.OmegaConf.merge", "omegaconf.OmegaConf.unsafe_merge",
          "omegaconf.OmegaConf.to_object")  # fmt: skip
def merge(run: Run, name: str, call: Call) -> Value:
    """The fields of a schema have the values of the last configuration that sets them."""
    first = run.settle(call.args[0]) if call.args else Unknown()
    if not isinstance(first, Instance):
        return call_unknown(run, Symbol(name), call)
    if len(call.args) == 1:
        return first
    merged = {
        key: Unknown(f"{first.cls.name}.{key}", default=value)
        if isinstance(value, Const)
        else value
        for key, value in first.attributes.items()
    }
    return Instance(first.cls, merged)
