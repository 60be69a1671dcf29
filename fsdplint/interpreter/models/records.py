"""`SimpleNamespace`, `argparse.Namespace`, `collections.namedtuple`, methods of named tuples."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.records import class_from_fields, is_named_tuple, namespace, tuple_fields
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import (
    Dict,
    Instance,
    Method,
    Sequence,
    Unknown,
    Value,
    constant,
)


@function("types.SimpleNamespace", "argparse.Namespace")
def simple_namespace(run: Run, name: str, call: Call) -> Value:
    if call.open or call.args:  # some attributes are unknown
        by_rank = any(map(depends_on_rank, [*call.args, *call.spread]))
        return Unknown(f"{name}()", by_rank=by_rank, parts=dict(call.kwargs))
    return namespace(run, call.node, dict(call.kwargs))


@function("collections.namedtuple")
def named_tuple(run: Run, name: str, call: Call) -> Value:
    made, given = constant(call.arg(0, "typename")), call.arg(1, "field_names")
    names: list[object] = []
    if isinstance(text := constant(given), str):
        names = list(text.replace(",", " ").split())
    elif isinstance(given, Sequence) and not given.open:
        names = [constant(run.settle(item)) for item in given.items]
    fields = [one for one in names if isinstance(one, str) and one.isidentifier()]
    known = isinstance(made, str) and made.isidentifier() and fields and len(fields) == len(names)
    if not known or set(call.kwargs) - {"typename", "field_names", "defaults"} or call.open:
        return unknown_result(call)
    klass = class_from_fields(run, call.node, str(made), fields)
    defaults = call.kwargs.get("defaults")
    if isinstance(defaults, Sequence) and not defaults.open:
        late = fields[len(fields) - len(defaults.items) :]
        klass.attributes.update(zip(late, defaults.items, strict=False))
    return klass


@method("Instance", "_replace", "_asdict")
def of_named_tuple(run: Run, receiver: Instance, name: str, call: Call) -> Value:
    if not is_named_tuple(receiver.cls):
        return call_unknown(run, Method(receiver, name), call)
    fields = {one: receiver.attributes[one] for one in tuple_fields(receiver.cls)}
    if name == "_asdict":
        return Dict(dict(fields))
    if call.open:
        return Instance(receiver.cls, {one: Unknown() for one in fields})
    return Instance(receiver.cls, fields | call.kwargs)
