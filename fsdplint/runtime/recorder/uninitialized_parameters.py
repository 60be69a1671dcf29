"""Finds parameters of `to_empty` that nothing has written to before the first training call."""

from __future__ import annotations

from typing import Any

from fsdplint.runtime.recorder.digests import digest


class UninitializedParameters:
    """The parameters that got memory by `to_empty`, with their digests at that time."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Any, str, int]] = []

    def add(self, module: Any, names: set[str]) -> None:
        """Add parameters of a module after `to_empty`; names: those that were on meta before."""
        for prefix, part in module.named_modules():
            for key, parameter in part._parameters.items():
                name = f"{prefix}.{key}" if prefix else key
                if parameter is not None and name in names and not parameter.is_meta:
                    self._waiting.append((part, key, digest(parameter)))

    def are_used(self, module: Any) -> bool:
        """Whether a training call of a module uses one; they are compared in this call only."""
        if not self._waiting:
            return False
        parts = {id(part) for part in module.modules()}
        waiting, self._waiting = self._waiting, []
        return any(
            id(part) in parts
            and (parameter := part._parameters.get(key)) is not None
            and parameter.numel() > 0
            and digest(parameter) == before != 0
            for part, key, before in waiting
        )
