"""Configuration objects of libraries: dicts whose entries are attributes, too.

`omegaconf.DictConfig`, `ml_collections.ConfigDict`, `easydict.EasyDict` and others have their
entries under the keys of a dict and as attributes, in nested dicts as well. What a configuration
has as a constant is the default of a setting: a command line may override it.
"""

from __future__ import annotations

from dataclasses import replace

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.own_dicts import CONFIG_LISTS, ENTRIES, as_dict, entries_of
from fsdplint.interpreter.records import empty_class
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Class,
    Const,
    Dict,
    Instance,
    LibraryObject,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
    is_none,
)

_OMEGACONF = "omegaconf.DictConfig"
_KINDS = {
    _OMEGACONF: "content",
    "omegaconf.OmegaConf.create": "obj",
    "omegaconf.dictconfig.DictConfig": "content",
    "ml_collections.ConfigDict": "initial_dictionary",
    "ml_collections.config_dict.ConfigDict": "initial_dictionary",
    "easydict.EasyDict": "d",
    "munch.Munch": "",
    "munch.munchify": "x",
    "munch.Munch.fromDict": "d",
    "addict.Dict": "",
    "box.Box": "",
}
_STORE = "hydra.core.config_store.ConfigStore"
_LITERALS = (bool, int, float, str, type(None))
_TARGET = "_target_"
MAX_DEPTH = 8  # of dicts in dicts


@function(*_KINDS)
def config_object(run: Run, name: str, call: Call) -> Value:
    """A configuration of the entries of a dict."""
    keyword = _KINDS[name]
    given = call.arg(0, keyword) if keyword else next(iter(call.args), None)
    content = as_dict(run.settle(given)) if given is not None else Dict()
    if isinstance(content, Sequence) and name == "omegaconf.OmegaConf.create":
        return content
    if is_none(content):
        content = Dict()
    if not isinstance(content, Dict) or call.open and keyword:
        return call_unknown(run, Symbol(name), call)
    more = {} if keyword else call.kwargs
    entries = Dict({**content.items, **more}, content.open or call.open)
    kind = _OMEGACONF if name.startswith("omegaconf.") else name
    return _object(run, call, kind, entries)


def _object(run: Run, call: Call, kind: str, content: Dict, depth: int = 0) -> Instance:
    """The object with the entries of a dict, and with objects for the dicts among them."""
    entries = {}
    for key, value in content.items.items():
        value = run.settle(value)
        if isinstance(value, Dict) and depth < MAX_DEPTH:
            value = _object(run, call, kind, value, depth + 1)
        entries[key] = _setting(f"{kind}.{key}", key, value)
    made = Instance(_class(run, call, kind))
    made.attributes[ENTRIES] = Dict(entries, content.open)
    return made


def _setting(origin: str, key: object, value: Value) -> Value:
    if key == _TARGET or not isinstance(value, Const) or not isinstance(value.value, _LITERALS):
        return value
    return Unknown(origin, default=value, is_default=True)


def _class(run: Run, call: Call, kind: str) -> Class:
    """The class of such objects, which reads and writes entries as attributes."""
    made = empty_class(run, call.node, kind.rpartition(".")[2])
    made.bases += [Symbol("builtins.dict"), Symbol(kind)]
    made.attributes["__getattr__"] = Symbol("builtins.dict.__getitem__")
    made.attributes["__setattr__"] = Symbol("builtins.dict.__setitem__")
    return made


@function(*CONFIG_LISTS)
def config_list(run: Run, name: str, call: Call) -> Value:
    content = run.settle(call.arg(0, "content") or Unknown())
    return content if isinstance(content, Sequence) else call_unknown(run, Symbol(name), call)


@function(_STORE, f"{_STORE}.instance")
def config_store(run: Run, name: str, call: Call) -> Value:
    return LibraryObject(_STORE)


@method("LibraryObject", "store")
def store_config(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    """`store(name="config", node=node)` makes a configuration known under its name."""
    stored, group = constant(call.arg(0, "name")), call.arg(2, "group")
    node = call.arg(1, "node")
    if receiver.name != _STORE:
        return call_unknown(run, Unknown(origin=f"{receiver.name}.{name}"), call)
    if isinstance(stored, str) and node is not None and (group is None or is_none(group)):
        run.stored_configs[stored] = node
    return Const(None)


@function("hydra.compose")
def compose(run: Run, name: str, call: Call) -> Value:
    """The configuration that the program has stored under a name; the command line overrides it."""
    wanted = constant(call.arg(0, "config_name"))
    found = run.stored_configs.get(wanted) if isinstance(wanted, str) else None
    return call_unknown(run, Symbol(name), call) if found is None else found


@function("omegaconf.OmegaConf.to_container", "munch.unmunchify")
def to_container(run: Run, name: str, call: Call) -> Value:
    """The entries as plain dicts; those in them stay objects, which read the same."""
    config = run.settle(call.args[0]) if call.args else Unknown()
    if isinstance(config, Unknown) and isinstance(config.default, Dict):
        return replace(config, parts={**config.parts})  # the settings in a file
    held = entries_of(config)
    if held is None:
        return call_unknown(run, Symbol(name), call)
    return Dict({**held.items}, held.open)
