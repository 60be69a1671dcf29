"""State dicts that the program edits in place."""

from __future__ import annotations

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import StateValue

_EDITS = frozenset({"clear", "setdefault", "update"})


def note_state_edit(run: Run, state: StateValue, method: str) -> None:
    """Note that a method may change a state or a tensor of it."""
    if method in _EDITS or (method.endswith("_") and not method.endswith("__")):
        run.edited_states.add(state.id)
