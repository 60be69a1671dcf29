"""Buffers that `to_empty` made and that nothing has written to when the first forward has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fsdplint.runtime.recorder.digests import digest
from fsdplint.runtime.recorder.recorder import Entry
from fsdplint.trace import ModuleMoved


@dataclass
class _Buffer:
    """One buffer as `to_empty` left it."""

    module: Any
    key: str
    name: str
    tensor: int
    version: int
    values: int

    def now(self) -> Any | None:
        """The buffer, None where another one has taken its place."""
        tensor = self.module._buffers.get(self.key)
        return tensor if tensor is not None and id(tensor) == self.tensor else None

    @property
    def untouched_buffers(self) -> bool:
        tensor = self.now()
        if tensor is None or tensor._version != self.version:
            return False
        return digest(tensor) == self.values


class UntouchedBuffers:
    """The buffers that wait for their first forward, with the event of their `to_empty`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Entry[ModuleMoved], Any, list[_Buffer]]] = []

    def emptied(self, moved: Entry[ModuleMoved], module: Any, before: list[Any]) -> None:
        """`module.to_empty()` has returned; before: the buffers that it replaced."""
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

    def entered(self, module: Any) -> list[tuple[Entry[ModuleMoved], _Buffer]]:
        """The outermost call of a module begins: its buffers that nobody has written to so far."""
        parts = {id(part) for part in module.modules()}
        found = []
        for waiting in list(self.waiting):
            moved, root, buffers = waiting
            if id(root) in parts or any(id(buffer.module) in parts for buffer in buffers):
                self.waiting.remove(waiting)
                found += [(moved, buffer) for buffer in buffers if buffer.untouched_buffers]
        return found

    def exited(self, found: list[tuple[Entry[ModuleMoved], _Buffer]]) -> None:
        """That call has ended. It may have made the buffers itself, or updated what was in them."""
        for moved, buffer in found:
            if buffer.untouched_buffers or (
                buffer.now() is not None and _accumulates(buffer.module)
            ):
                moved.event.untouched_buffers = (*moved.event.untouched_buffers, buffer.name)
        for moved, _ in found:
            moved.write()


def _accumulates(module: Any) -> bool:
    """Whether a forward of the module adds to its buffers, so that what they held stays in them."""
    from torch.nn.modules.batchnorm import _NormBase

    return isinstance(module, _NormBase)
