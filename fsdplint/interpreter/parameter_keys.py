"""Dicts with an entry for each parameter of a model: `{name: p.clone() for name, p in ...}`.

A test such as `name in shadow` holds there for each name that the model gives. As in other tests,
all parameters count as trainable.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.parameter_filters import tested_in_loop
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParameterName
from fsdplint.interpreter.values import Dict, Value
from fsdplint.source.positions import code_children
from fsdplint.trace import ModuleAttached, Wrapped


def note_key(run: Run, held: Dict, key: Value) -> None:
    """Note that a dict has got an entry under a key that is not known."""
    turns = run.own_turns[-1] if run.own_turns else None
    if not (isinstance(key, ParameterName) and key.each) or turns is None or turns.body is None:
        return
    if not (turns.left or tested_in_loop(run) or _may_end(turns.body)):
        note_each_key(run, held, key)


def _may_end(body: cst.CSTNode) -> bool:
    """Whether a turn of a loop may end the loop."""
    if isinstance(body, cst.Break | cst.Return | cst.Raise):
        return True
    return any(map(_may_end, code_children(body)))


def note_each_key(run: Run, made: Dict, key: Value | None) -> None:
    """Note that a dict has got an entry for each name that a key stands for."""
    if isinstance(key, ParameterName) and key.of:
        made.names_of = (key.of, len(run.trace.events))


def has_name(run: Run, held: Dict, name: ParameterName) -> bool:
    """Whether a dict certainly has an entry under the name of a parameter."""
    if held.names_of is None or held.doubtful or not name.of:
        return False
    modules, made = held.names_of
    if [one.id for one in modules] != [one.id for one in name.of]:
        return False
    renames = (ModuleAttached, Wrapped)
    return not any(isinstance(event, renames) for event in run.trace.events[made:])
