"""Finds buffers of `to_empty` that nothing has written to by the end of the first forward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fsdplint.runtime.recorder.digests import digest
from fsdplint.runtime.recorder.recorder import Entry
from fsdplint.trace import ModuleMoved


@dataclass
class _Buffer:
    """A buffer right after `to_empty`."""

    module: Any
    key: str
    name: str
    tensor: int
    version: int
    values: int

    def now(self) -> Any | None:
        """The buffer; None if it was replaced."""
        tensor = self.module._buffers.get(self.key)
        return tensor if tensor is not None and id(tensor) == self.tensor else None

    @property
    def is_untouched(self) -> bool:
        tensor = self.now()
        if tensor is None or tensor._version != self.version:
            return False
        return digest(tensor) == self.values


class UntouchedBuffers:
    """The buffers before their first forward, with the event of their `to_empty`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Entry[ModuleMoved], Any, list[_Buffer]]] = []

    def add(self, moved: Entry[ModuleMoved], module: Any, before: list[Any]) -> None:
        """Add the buffers of a module after `to_empty`; before: the buffers that it replaced."""
        old = {id(tensor) for tensor in before}
        found = []
        for prefix, part in module.named_modules():
            for key, tensor in part._buffers.items():
                if tensor is None or id(tensor) in old or tensor.is_meta or not tensor.numel():
                    continue
                name = f"{prefix}.{key}" if prefix else key
                found.append(_Buffer(part, key, name, id(tensor), tensor._version, digest(tensor)))
        if found:
            self.waiting.append((moved, module, found))

    def before_call(self, module: Any) -> list[tuple[Entry[ModuleMoved], _Buffer]]:
        """The unwritten buffers of a module at the beginning of its outermost call."""
        parts = {id(part) for part in module.modules()}
        found = []
        for waiting in list(self.waiting):
            moved, root, buffers = waiting
            if id(root) in parts or any(id(buffer.module) in parts for buffer in buffers):
                self.waiting.remove(waiting)
                found += [(moved, buffer) for buffer in buffers if buffer.is_untouched]
        return found

    def after_call(self, found: list[tuple[Entry[ModuleMoved], _Buffer]]) -> None:
        """Record the buffers that this call has not written either, or only updated."""
        for moved, buffer in found:
            if buffer.is_untouched or (buffer.now() is not None and _accumulates(buffer.module)):
                moved.event.untouched_buffers = (*moved.event.untouched_buffers, buffer.name)
        for moved, _ in found:
            moved.write()


def _accumulates(module: Any) -> bool:
    """Whether a forward of the module only updates its buffers, so that old values remain."""
    from torch.nn.modules.batchnorm import _NormBase

    return isinstance(module, _NormBase)
