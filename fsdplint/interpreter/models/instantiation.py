"""Objects that a configuration names: `hydra.utils` and the schemas of `omegaconf`."""

from __future__ import annotations

import re

from fsdplint.interpreter.argument_values import default_text
from fsdplint.interpreter.attributes import read_attribute
from fsdplint.interpreter.choices import choose, is_choice
from fsdplint.interpreter.chosen_members import offered_names
from fsdplint.interpreter.composed_settings import composed_settings
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.imports import import_module, locate_module
from fsdplint.interpreter.literal_settings import literal_settings
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.optimizers import build_optimizer, owners_of
from fsdplint.interpreter.possible_settings import possible_settings
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.settings_files import default_of, settings_in
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Class,
    Const,
    Dict,
    Function,
    Instance,
    Partial,
    Symbol,
    Unknown,
    Value,
    constant,
)

_MAIN = "hydra.main()"
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
    elif isinstance(config, Unknown):
        entries = {key: value for key, value in config.parts.items() if not key.startswith("[")}
        named = {**entries, **named}
    target = _target(run, run.settle(named.get(_TARGET) or Unknown()), call)
    is_partial = default_of(named.get("_partial_")) is True
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
        return build_optimizer(run, "Optimizer", inner, library="")
    return call_unknown(run, Symbol(name), call)


def _target(run: Run, path: Value, call: Call) -> Value | None:
    """The object that a path names; one in a settings file may be exchanged there."""
    text = default_of(path)
    texts = [*([text] if isinstance(text, str) else []), *offered_names(run, path)]
    found = {one: by_path(run, one, call) for one in dict.fromkeys(texts)}
    targets = {one: value for one, value in found.items() if value is not None}
    if isinstance(path, Const):
        return targets.get(str(text))
    if len(targets) > 1:
        targets = {one: value for one, value in targets.items() if is_choice(value)}
    return choose(run, path, targets, call.node, complete=False)


@function("omegaconf.OmegaConf.load")
def load_settings(run: Run, name: str, call: Call) -> Value:
    return _read(run, call.arg(0, "file_"), call) or call_unknown(run, Symbol(name), call)


@function("yaml.safe_load", "yaml.load", "yaml.full_load", "json.load", "json.loads")
def load_stream(run: Run, name: str, call: Call) -> Value:
    """`yaml.safe_load(open("settings.yaml"))`, or settings in a text of the program."""
    stream = run.settle(call.arg(0, "s" if name == "json.loads" else "stream") or Unknown())
    if isinstance(stream, Const) and isinstance(stream.value, str):
        found = literal_settings(stream.value, is_json=name == "json.loads")
        return found or call_unknown(run, Symbol(name), call)
    path = stream.parts.get("name") if isinstance(stream, Unknown) else None
    is_yaml = name.startswith("yaml.")
    return _read(run, path, call, is_yaml) or call_unknown(run, Symbol(name), call)


def _read(run: Run, path: Value | None, call: Call, is_yaml: bool = True) -> Value | None:
    """The settings in a file. Only of YAML, a file is searched if its path is not known."""
    text, origin = default_text(run, path), run.text(call.node)
    if text is None:
        return possible_settings(run, origin) if is_yaml else None
    return settings_in(run, text, origin)


@function("hydra.main")
def main(run: Run, name: str, call: Call) -> Value:
    return Partial(Symbol(_MAIN), [], dict(call.kwargs))


@function(_MAIN)
def with_settings(run: Run, name: str, call: Call) -> Value:
    """The function under `@hydra.main(...)` gets the settings of the file that it names."""
    target = run.settle(call.args[0]) if call.args else Unknown()
    if not isinstance(target, Function) or not target.node.params.params:
        return target
    folder, file = (
        constant(call.kwargs.get("config_path")),
        constant(call.kwargs.get("config_name")),
    )
    if isinstance(file, str):
        home = folder if isinstance(folder, str) else ""
        first = target.node.params.params[0].name.value
        found = composed_settings(run, home, file, f"{target.name}({first})")
        if found is not None:
            target.defaults[first] = found
    return target


@function("omegaconf.OmegaConf.structured")
def structured_config(run: Run, name: str, call: Call) -> Value:
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
