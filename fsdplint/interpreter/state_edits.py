"""State dicts that the program edits in place, and entries that it reads."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.error_handling import catches_errors
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import StateValue
from fsdplint.interpreter.values import Value, constant
from fsdplint.trace import StateIndexed

_EDITS = frozenset({"clear", "setdefault", "update"})


def note_state_edit(run: Run, state: StateValue, method: str) -> None:
    """Note that a method may change a state or a tensor of it."""
    if method in _EDITS or (method.endswith("_") and not method.endswith("__")):
        run.edited_states.add(state.id)


def note_entry_read(run: Run, state: StateValue, key: Value, node: cst.CSTNode) -> None:
    """Note that the ranks at this point read an entry that the state has to have."""
    name = constant(key)
    whole = state.on_one_rank and not (state.tensor or state.view)
    if whole and isinstance(name, str) and state.id not in run.edited_states:
        if not catches_errors(run, node):
            run.emit(StateIndexed, node, state=state.id, key=name)
