"""Modules that are put into a list or dict of modules by their key."""

from __future__ import annotations

from fsdplint.interpreter.attached_parts import attach_module
from fsdplint.interpreter.module_tree import add_child
from fsdplint.interpreter.modules import put_element
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Dict, ModuleValue, Sequence, Value
from fsdplint.trace import GuardKind


def set_element(run: Run, module: ModuleValue, key: Value, value: Value) -> None:
    """`module[key] = value`. With an unknown key, the value replaces the element it wraps."""
    value = run.settle(value)
    if not isinstance(value, ModuleValue):
        return
    if isinstance(key, Const) and isinstance(key.value, str):
        put_element(run, module, key.value, value)
        return
    attach_module(run, module, value)
    several = _several(run, module)
    number = key.value if isinstance(key, Const) else None
    if several is None or value.inner is not None:
        _replace(run, module, key, value)
    elif isinstance(number, int):
        _set_beside(run, module, number, value, several)
    elif run.loop_depth and not any(one.guard.kind is GuardKind.VARYING for one in run.guards):
        _replace_each(run, module, value, several)
    else:
        _replace(run, module, key, value)


def _several(run: Run, module: ModuleValue) -> int | None:
    """The position of the element that stands for several; None if there is none."""
    items = module.elements.items if module.elements is not None else []
    for number, item in enumerate(items):
        if isinstance(item, ModuleValue) and run.trace.modules[item.id].repeated:
            return number
    return None


def _set_beside(run: Run, module: ModuleValue, key: int, value: ModuleValue, several: int) -> None:
    """Put a module beside the element that stands for several: before it at its own number."""
    assert module.elements is not None
    children = run.trace.modules[module.id].children
    module.elements.items.insert(several + (key != several), value)
    held = children.get(str(key))
    if held is not None:
        children[str(key + 1)] = held
    children[str(key)] = value.id


def _replace_each(run: Run, module: ModuleValue, value: ModuleValue, several: int) -> None:
    """Put a module that a loop makes in the place of the element that stands for several."""
    assert module.elements is not None
    children, item = run.trace.modules[module.id].children, module.elements.items[several]
    for name, child in list(children.items()):
        if isinstance(item, ModuleValue) and child == item.id:
            children[name] = value.id
    module.elements.items[several] = value
    run.trace.modules[value.id].repeated = True


def _replace(run: Run, module: ModuleValue, key: Value, value: ModuleValue) -> None:
    """Put a module in the place of the element at a number, or of the one that it wraps."""
    children = run.trace.modules[module.id].children
    replaced = value.inner
    items = module.elements.items if module.elements is not None else []
    for number, item in enumerate(items):
        known = isinstance(key, Const) and key.value in {number, number - len(items)}
        if known or (not isinstance(key, Const) and (item is replaced or len(items) == 1)):
            items[number] = value
            if known and str(number) in children:
                children[str(number)] = value.id
    for name, child in list(children.items()):
        if replaced is not None and child == replaced.id:
            children[name] = value.id
    if value.id not in children.values() and not items:
        add_child(run, module, "*", value)


def stands_for_several(run: Run, value: Sequence | Dict) -> bool:
    """Whether an element of a list stands for several modules."""
    items = value.items if isinstance(value, Sequence) else value.items.values()
    return any(isinstance(i, ModuleValue) and run.trace.modules[i.id].repeated for i in items)
