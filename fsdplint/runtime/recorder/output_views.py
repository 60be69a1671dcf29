"""Views that sharded modules return, and whether the program changes them in place afterwards.

FSDP2's hook that gathers the module for the backward hangs on the returned tensor; an operation in
place on a view takes it off. The tensors are held until the outermost forward has ended.
"""

from __future__ import annotations

from typing import Any

from fsdplint.runtime.recorder import values
from fsdplint.runtime.recorder.recorder import Entry
from fsdplint.trace import Called


class OutputViews:
    """The views that the running forward has returned, and the calls whose views were changed."""

    def __init__(self) -> None:
        self._returned: list[tuple[Entry[Called], Any, int]] = []
        self._changed: list[Entry[Called]] = []

    def returned(self, call: Entry[Called], result: Any) -> None:
        """A sharded module, in this call of it, gave back `result`."""
        for tensor in values.tensors(result, limit=20):
            if tensor.requires_grad and tensor._is_view():
                self._returned.append((call, tensor, tensor._version))

    def settle(self) -> None:
        """The outermost forward has ended."""
        for call, tensor, version in self._returned:
            if tensor._version != version:
                self._changed.append(call)
        self._returned.clear()

    def backward_failed(self, error: BaseException) -> None:
        """Where a backward found parameters that were not gathered: these calls are why."""
        text = str(error)
        if "setStorage" in text and "storage of size 0" in text:
            for call in self._changed:
                call.event.view_changed = True
                call.write()

    def backward_ended(self) -> None:
        self._changed.clear()
