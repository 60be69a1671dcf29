"""Objects whose states a distributed checkpoint gets from their own methods.

DCP calls `state_dict` of each value of the dict that it gets if the value has the methods of
`Stateful`, whatever its class derives from. When it loads, it calls `load_state_dict` afterwards.
"""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.early_reads import note_early_reads
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ScalerValue, SchedulerValue
from fsdplint.interpreter.values import Bound, Dict, Function, Instance, Method, Value
from fsdplint.source.source import NodeSite
from fsdplint.syntax.dropped_counters import (
    bounds,
    counters,
    dropped_counters,
    restored_attributes,
)
from fsdplint.syntax.unsaved_entries import restores, texts_in
from fsdplint.trace import CounterDropped, EntryNeverSaved

_METHODS = ("state_dict", "load_state_dict")


def with_states(run: Run, state: Value, call: Call) -> Value:
    """The dict that DCP gets, with the states of its objects instead of these."""
    if not isinstance(state, Dict):
        return state
    held = {key: run.settle(value) for key, value in state.items.items()}
    if not any(map(_is_stateful, held.values())):
        return state
    items = {
        key: run.settle(_call(run, value, "state_dict", Call(call.node)))
        if _is_stateful(value)
        else value
        for key, value in held.items()
    }
    return replace(state, items=items)


def load_states(run: Run, state: Value, states: Value, call: Call, path: str) -> None:
    """Give the objects in a dict their loaded states. path: that of the checkpoint."""
    if not isinstance(state, Dict) or not isinstance(states, Dict):
        return
    for key, value in state.items.items():
        value = run.settle(value)
        if _is_stateful(value):
            _call(run, value, "load_state_dict", Call(call.node, [states.items[key]]))
            _note_counters(run, value, call, path)
            _note_entries(run, value, states.items[key], call)


def _note_counters(run: Run, value: Value, call: Call, path: str) -> None:
    """Record counters that an object saves and does not restore, and early reads of others."""
    if not isinstance(value, Instance):
        return
    save, load = (_code(value, name) for name in _METHODS)
    if save is not None and load is not None:
        note_early_reads(run, value, set(restored_attributes(save, load)), call.node)
    sources = run.project.sources.values()
    classes = (None, *(one.node for one in value.cls.mro()))
    for name in dropped_counters(save, load) if save is not None and load is not None else ():
        keys = {(name, one) for one in classes}
        counts = any(keys & counters(one) for one in sources)
        if counts and any(keys & bounds(one) for one in sources):
            run.emit(CounterDropped, call.node, name=name, path=path)


def _note_entries(run: Run, value: Value, state: Value, call: Call) -> None:
    """Record entries that an object would restore, and that are not in the state that it gives."""
    state = run.settle(state)
    if not isinstance(value, Instance) or not isinstance(state, Dict) or state.doubtful:
        return
    save, load = (value.cls.lookup(name) for name in _METHODS)
    code = _code(value, "load_state_dict")
    if code is None or not isinstance(save, Function) or not isinstance(load, Function):
        return
    known = _texts_of(run, code)
    for key, call_of_entry in restores(code):
        if state.has(key) is False and key not in known:
            run.emit(
                EntryNeverSaved,
                call.node,
                name=value.cls.name,
                key=key,
                restored_at=NodeSite(load.site.source, call_of_entry),
                saved_by=save.site,
            )


def _texts_of(run: Run, load: cst.FunctionDef) -> set[str]:
    """The texts in the program, without those in a method that restores an object.

    Any other function may save an entry in another configuration.
    """
    sources = {scope.source.path: scope.source for scope in run.module_scopes.values()}
    return texts_in((source.tree for source in sources.values()), load)


def _code(value: Instance, name: str) -> cst.FunctionDef | None:
    method = value.cls.lookup(name)
    node = method.node if isinstance(method, Function) else None
    return node if isinstance(node, cst.FunctionDef) else None


def _is_stateful(value: Value) -> bool:
    if isinstance(value, SchedulerValue | ScalerValue):
        return True
    return isinstance(value, Instance) and all(
        isinstance(value.cls.lookup(name), Function) for name in _METHODS
    )


def _call(run: Run, value: Value, name: str, call: Call) -> Value:
    if isinstance(value, SchedulerValue | ScalerValue):
        return run.call(Method(value, name), call)
    assert isinstance(value, Instance)
    method = value.cls.lookup(name)
    assert isinstance(method, Function)
    return run.call(Bound(method, value), call)
