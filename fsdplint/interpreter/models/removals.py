"""Methods of lists, sets and dicts that remove, insert or reorder elements."""

from __future__ import annotations

from fsdplint.interpreter import set_orders
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import method
from fsdplint.interpreter.removals import forget_items, remove_item
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Dict, Sequence, Unknown, Value


@method("Sequence", "pop")
def pop(run: Run, receiver: Sequence, name: str, call: Call) -> Value:
    first_of_set = Unknown() if receiver.kind == "set" else Const(-1)
    found = remove_item(receiver, call.args[0] if call.args else first_of_set)
    receiver.open = receiver.open or run.loop_depth > 0
    return found if found is not None else Unknown(origin=run.text(call.node))


@method("Sequence", "popleft")
def pop_left(run: Run, receiver: Sequence, name: str, call: Call) -> Value:
    return pop(run, receiver, name, Call(call.node, [Const(0)]))


@method("Sequence", "remove", "discard")
def remove(run: Run, receiver: Sequence, name: str, call: Call) -> Value:
    value = run.settle(call.args[0]) if call.args else None
    number = next((n for n, item in enumerate(receiver.items) if run.settle(item) is value), None)
    remove_item(receiver, Unknown() if number is None else Const(number))
    return Const(None)


@method("Sequence", "insert")
def insert(run: Run, receiver: Sequence, name: str, call: Call) -> Value:
    where, value = call.arg(0, "index"), call.arg(1, "object")
    if value is not None:
        index = where.value if isinstance(where, Const) else None
        receiver.length = None
        receiver.items.insert(index if isinstance(index, int) else len(receiver.items), value)
        receiver.open = receiver.open or run.loop_depth > 0
    return Const(None)


@method("Sequence", "appendleft")
def append_left(run: Run, receiver: Sequence, name: str, call: Call) -> Value:
    return insert(run, receiver, name, Call(call.node, [Const(0), *call.args]))


@method("Sequence", "reverse")
def reverse(run: Run, receiver: Sequence, name: str, call: Call) -> Value:
    receiver.items.reverse()
    return Const(None)


@method("Sequence", "sort")
def sort(run: Run, receiver: Sequence, name: str, call: Call) -> Value:
    set_orders.forget_order(run, receiver)
    return Const(None)


@method("Sequence", "clear")
def clear_sequence(run: Run, receiver: Sequence, name: str, call: Call) -> Value:
    receiver.items.clear()
    receiver.open = False
    return Const(None)


@method("Dict", "clear")
def clear_dict(run: Run, receiver: Dict, name: str, call: Call) -> Value:
    receiver.items.clear()
    receiver.tensors.clear()
    receiver.names_of = None
    receiver.open = False
    return Const(None)


@method("Dict", "popitem")
def pop_item(run: Run, receiver: Dict, name: str, call: Call) -> Value:
    forget_items(receiver)
    return Unknown(origin=run.text(call.node))
