"""Finds views that sharded modules return and that the program then changes in place.

FSDP2 gathers a module for the backward in a hook of the returned tensor. An in-place operation on a
view removes the hook. The tensors are held until the outermost forward has ended.
"""

from __future__ import annotations

from typing import Any

from fsdplint.runtime.recorder import values
from fsdplint.runtime.recorder.recorder import Entry
from fsdplint.trace import Called


class OutputViews:
    """The views returned in the current forward, and the calls whose views were changed."""

    def __init__(self) -> None:
        self._views: list[tuple[Entry[Called], Any, int]] = []
        self._changed: list[Entry[Called]] = []

    def add_result(self, call: Entry[Called], result: Any) -> None:
        """Store the views in the result of a sharded module's call."""
        for tensor in values.tensors(result, limit=20):
            if tensor.requires_grad and tensor._is_view():
                self._views.append((call, tensor, tensor._version))

    def settle(self) -> None:
        """Compare the views at the end of the outermost forward."""
        for call, tensor, version in self._views:
            if tensor._version != version:
                self._changed.append(call)
        self._views.clear()

    def note_backward_error(self, error: BaseException) -> None:
        """Record the calls that explain a backward's error about ungathered parameters."""
        text = str(error)
        if "setStorage" in text and "storage of size 0" in text:
            for call in self._changed:
                call.event.view_changed = True
                call.write()

    def clear(self) -> None:
        self._changed.clear()
