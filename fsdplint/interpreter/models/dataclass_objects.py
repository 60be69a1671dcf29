"""Functions on objects of dataclasses: copies with other fields, and fields as a dict."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.fsdp2 import replaced_configuration
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.own_dicts import entries_of
from fsdplint.interpreter.records import (
    ATTRS,
    MAKERS,
    UNKNOWN_MAKER,
    dataclass_fields,
    is_record,
)
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Class,
    Const,
    Dict,
    Instance,
    LibraryObject,
    ModuleValue,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
)

MAX_DEPTH = 4  # of objects in objects


@function(*sorted(MAKERS))
def make_dataclass(run: Run, name: str, call: Call) -> Value:
    """A decorator of a class, or what makes one: `@dataclass(frozen=True)`."""
    decorated = run.settle(call.args[0]) if call.args else None
    if isinstance(decorated, Class):
        decorated.maker = name
        return decorated
    return Partial(Symbol(name), [], call.kwargs)


@function("dataclasses.replace", "copy.replace", "attr.evolve", "attrs.evolve")
def replace_fields(run: Run, name: str, call: Call) -> Value:
    value = run.settle(call.args[0]) if call.args else Unknown()
    if isinstance(value, LibraryObject):
        config = replaced_configuration(run, value, call)
        return call_unknown(run, Symbol(name), call) if config is None else config
    if not isinstance(value, Instance) or call.open:
        return call_unknown(run, Symbol(name), call)
    return Instance(value.cls, {**value.attributes, **call.kwargs}, value.attributes_unknown)


@function("dataclasses.fields", "attr.fields", "attrs.fields")
def fields_of(run: Run, name: str, call: Call) -> Value:
    value = run.settle(call.args[0]) if call.args else Unknown()
    klass = value.cls if isinstance(value, Instance) else value
    if not isinstance(klass, Class) or not klass.dataclass or klass.has_unknown_base():
        return call_unknown(run, Symbol(name), call)
    fields: list[Value] = [
        LibraryObject("dataclasses.Field", {"name": Const(one)})
        for one in dataclass_fields(run, klass)
    ]
    return Sequence(fields, "tuple")


@function("dataclasses.is_dataclass", "attr.has", "attrs.has")
def has_fields(run: Run, name: str, call: Call) -> Value:
    """Whether a decorator has given a class its constructor, that of dataclasses or of attrs."""
    value = run.settle(call.args[0]) if call.args else Unknown()
    klass = value.cls if isinstance(value, Instance | ModuleValue) else value
    if not isinstance(klass, Class) or klass.has_unknown_base():
        return call_unknown(run, Symbol(name), call)
    if klass.field_maker == UNKNOWN_MAKER:
        return call_unknown(run, Symbol(name), call)
    makers = MAKERS - ATTRS if name.startswith("dataclasses.") else ATTRS
    return Const(klass.field_maker in makers)


@method("Class", "model_validate", "model_validate_json", "parse_obj", "parse_raw", "parse_file")
def from_data(run: Run, receiver: Class, name: str, call: Call) -> Value:
    """A record with the values that are read from a file or from other data."""
    if not is_record(receiver):
        return call_unknown(run, Unknown(origin=f"{receiver.name}.{name}"), call)
    return run.call(receiver, Call(call.node, open=True))


@function("dataclasses.asdict", "attr.asdict", "attrs.asdict")
def fields_as_dict(run: Run, name: str, call: Call) -> Value:
    value = run.settle(call.args[0]) if call.args else Unknown()
    if not isinstance(value, Instance) or not value.cls.dataclass:
        return call_unknown(run, Symbol(name), call)
    return _as_dict(run, value, call, 0)


def _as_dict(run: Run, value: Instance, call: Call, depth: int) -> Dict:
    items: dict[str, Value] = {}
    for key, item in value.attributes.items():
        item = run.settle(item)
        if isinstance(item, Instance) and entries_of(item) is None and depth < MAX_DEPTH:
            item = _as_dict(run, item, call, depth + 1)
        items[key] = item
    is_open = value.attributes_unknown or value.cls.has_unknown_base()
    return Dict(items, is_open, created_at=run.site(call.node))
