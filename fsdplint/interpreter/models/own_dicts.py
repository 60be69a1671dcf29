"""Methods of `dict` that a class of the program calls or inherits: `super().__setitem__(k, v)`."""

from __future__ import annotations

from fsdplint.interpreter.assignment import assign_element
from fsdplint.interpreter.elements import subscript
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import find_method, function, method
from fsdplint.interpreter.own_dicts import as_dict, entries_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import Const, Dict, Symbol, Unknown, Value


@function("builtins.dict.", "collections.OrderedDict.", "collections.UserDict.")
def call_of_class(run: Run, name: str, call: Call) -> Value:
    """`dict.update(self, ...)`."""
    held = entries_of(run.settle(call.args[0])) if call.args else None
    last = name.rpartition(".")[2]
    model = find_method(held, last) if held is not None else None
    if held is None or model is None:
        return call_unknown(run, Symbol(name), call)
    return model(run, held, last, Call(call.node, call.args[1:], call.kwargs, call.open))


@method("Dict", "__init__")
def fill(run: Run, receiver: Dict, name: str, call: Call) -> Value:
    made = as_dict(run.call(Symbol("builtins.dict"), call))
    if isinstance(made, Dict):
        receiver.take(made)
    else:
        receiver.may_have_more()
    return Const(None)


@method("Dict", "__setitem__")
def set_entry(run: Run, receiver: Dict, name: str, call: Call) -> Value:
    if len(call.args) == 2:
        key, value = call.args
        assign_element(run, receiver, key, value, run.text(call.node))
    return Const(None)


@method("Dict", "__getitem__", "__missing__")
def read_entry(run: Run, receiver: Dict, name: str, call: Call) -> Value:
    return subscript(run, receiver, call.args[0], call.node) if call.args else Unknown()
