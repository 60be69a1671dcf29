"""Counters that `state_dict` of a class saves and its `load_state_dict` does not read."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.source.positions import descend
from fsdplint.source.source import Source, once
from fsdplint.syntax.enclosing import ancestors, function_around

_NUMBERS = frozenset({"int", "float", "tensor", "as_tensor"})


def dropped_counters(save: cst.FunctionDef, load: cst.FunctionDef) -> Iterator[str]:
    """The attributes that one method saves under a key of their own that the other does not read.

    Nothing if the other method uses the state otherwise than by constant keys, or reads none.
    """
    receiver, state = parameter(load, 0), parameter(load, 1)
    read = _keys_read(load, state)
    if not read:
        return
    written = {
        node.attr.value
        for node in descend(load.body)
        if isinstance(node, cst.Attribute) and is_name(node.value, receiver)
    }
    for key, attribute in _saved_attributes(save):
        if key not in read and attribute not in written:
            yield attribute


def restored_attributes(save: cst.FunctionDef, load: cst.FunctionDef) -> Iterator[str]:
    """The attributes that one method saves under a key and the other sets from this key."""
    receiver, state = parameter(load, 0), parameter(load, 1)
    set_from = {
        (key_read(part, state), target.target.attr.value)
        for node in descend(load.body)
        if isinstance(node, cst.Assign)
        for target in node.targets
        if isinstance(target.target, cst.Attribute) and is_name(target.target.value, receiver)
        for part in descend(node.value)
    }
    for key, attribute in _saved_attributes(save):
        if (key, attribute) in set_from:
            yield attribute


# The name of an attribute, and the class if a method of it names the attribute of its own object.
AttributeKey = tuple[str, cst.ClassDef | None]


@once
def counters(source: Source) -> frozenset[AttributeKey]:
    """The attributes in a file that some code adds to: `trainer.step += 1`."""
    return frozenset(
        _attribute_key(source, node.target)
        for node in descend(source.tree)
        if isinstance(node, cst.AugAssign)
        and isinstance(node.operator, cst.AddAssign)
        and isinstance(node.target, cst.Attribute)
    )


@once
def bounds(source: Source) -> frozenset[AttributeKey]:
    """The attributes in a file that decide how long a loop goes on: `while trainer.step < 10`."""
    found: set[AttributeKey] = set()
    for node in descend(source.tree):
        parts: list[cst.CSTNode] = []
        if isinstance(node, cst.While):
            parts = [node.test]
        elif isinstance(node, cst.For) and isinstance(node.iter, cst.Call):
            called = node.iter.func
            parts = [*node.iter.args] if is_name(called, "range") else []
        for part in parts:
            read = (one for one in descend(part) if isinstance(one, cst.Attribute))
            found.update(_attribute_key(source, one) for one in read)
    return frozenset(found)


def _attribute_key(source: Source, attribute: cst.Attribute) -> AttributeKey:
    method = function_around(source, attribute)
    if not isinstance(method, cst.FunctionDef):
        return attribute.attr.value, None
    owner = next((one for one in ancestors(source, method) if isinstance(one, cst.ClassDef)), None)
    own = is_name(attribute.value, parameter(method, 0))
    return attribute.attr.value, owner if own else None


def parameter(function: cst.FunctionDef, position: int) -> str:
    given = (*function.params.posonly_params, *function.params.params)
    return given[position].name.value if position < len(given) else ""


def _keys_read(function: cst.FunctionDef, state: str) -> set[str]:
    """The constant keys of a parameter that a function reads; empty if it is used otherwise."""
    keys: set[str] = set()
    uses = reads = 0
    for node in descend(function.body):
        uses += is_name(node, state)
        key = key_read(node, state)
        if key is not None:
            reads += 1
            keys.add(key)
    return keys if uses == reads else set()


def key_read(node: cst.CSTNode, state: str) -> str | None:
    """The key of `state["key"]` or `state.get("key")`."""
    text: cst.CSTNode | None = None
    if isinstance(node, cst.Subscript) and is_name(node.value, state) and len(node.slice) == 1:
        index = node.slice[0].slice
        text = index.value if isinstance(index, cst.Index) else None
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.args:
        if node.func.attr.value in ("get", "pop") and is_name(node.func.value, state):
            text = node.args[0].value
    value = text.evaluated_value if isinstance(text, cst.SimpleString) else None
    return value if isinstance(value, str) else None


def _saved_attributes(function: cst.FunctionDef) -> Iterator[tuple[str, str]]:
    """The keys of dicts in a function, each with the attribute of the object that it gets."""
    receiver = parameter(function, 0)
    for node in descend(function.body):
        if not isinstance(node, cst.DictElement) or not isinstance(node.key, cst.SimpleString):
            continue
        value, key = node.value, node.key.evaluated_value
        if isinstance(value, cst.Call) and len(value.args) == 1:
            called = value.func.attr if isinstance(value.func, cst.Attribute) else value.func
            if isinstance(called, cst.Name) and called.value in _NUMBERS:
                value = value.args[0].value
        if isinstance(value, cst.Attribute) and is_name(value.value, receiver):
            if isinstance(key, str):
                yield key, value.attr.value


def is_name(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name
