"""State dicts, and the objects that have one beside models and optimizers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fsdplint.interpreter.values import (
    Const,
    LibraryObject,
    Unknown,
    Value,
)
from fsdplint.trace import (
    Layout,
    ParameterMarked,
)


@dataclass(eq=False, repr=False)
class ScalerValue(LibraryObject):
    """A gradient scaler. `id` is its name in the trace."""

    id: str = ""


@dataclass(eq=False, repr=False)
class SchedulerValue(LibraryObject):
    """A scheduler of torch. `id` is its name in the trace."""

    id: str = ""


@dataclass(eq=False, repr=False)
class HelperState(Unknown):
    """The state of a scheduler or gradient scaler. `id` is its name in the trace."""

    id: str = ""


@dataclass(eq=False, repr=False)
class HookHandle(Unknown):
    """The handle of a hook on parameters; `mark` is the event of its registration."""

    mark: ParameterMarked | None = None


# Entries of a sharded state that are sharded tensors, or hold them.
_SHARDED_ENTRIES = {
    "weight", "bias", "state", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer",
}  # fmt: skip


@dataclass(eq=False, repr=False)
class StateValue(Value):
    """A state dict of a module or optimizer, or an object loaded from disk."""

    id: str
    layout: Layout
    of: Value | None = None
    api: str = "state_dict"
    on_one_rank: bool = False  # only rank 0 has its content
    tensor: bool = False  # one tensor of it, not the dict
    view: str = ""  # "items", "values" or "keys" of it
    itself: bool = False  # its tensors certainly have the memory of the parameters
    of_some_ranks: bool = False  # only some ranks have made its tensors

    def element(self) -> StateValue:
        """One tensor of it."""
        return replace(self, tensor=True, view="", created_at=None)

    def entry(self, key: Value) -> Value:
        """What it has under a key."""
        text = key.value if isinstance(key, Const) else None
        if text == "param_groups":
            return Unknown()  # settings of an optimizer, not tensors
        if self.layout is Layout.SHARDED and isinstance(text, str):
            if text.rpartition(".")[2] not in _SHARDED_ENTRIES:
                return self.as_layout(Layout.UNKNOWN, text)  # it may be a buffer
        return self.element()

    def as_layout(self, layout: Layout, suffix: str) -> StateValue:
        """One tensor of a state that was derived from this one and has another layout."""
        return StateValue(f"{self.id}:{suffix}", layout, self.of, self.api, tensor=True)
