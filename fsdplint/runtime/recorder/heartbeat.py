"""What a rank shows of itself while it runs: its step, its last collective, and a lost record.

It stands in a small file that is mapped into the memory of the rank: to renew it takes no system
call, no space on the disk, and nothing that could block; it can be read at any time, also when the
rank is blocked or was killed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

_COUNTS = struct.Struct("<qq32s")
_SIZE = 1024


@dataclass(frozen=True)
class Beat:
    """What one rank has shown.

    Attributes:
        step: the optimizer steps that it has made.
        collectives: how many it has begun in all, FSDP's own included.
        kind: what the last of them was.
        lost: why its record could not be written on, empty where it could.
    """

    step: int = 0
    collectives: int = 0
    kind: str = ""
    lost: str = ""

    @property
    def last(self) -> str:
        """The last collective in words: comparing the numbers shows which rank is behind."""
        return f"{self.kind} (number {self.collectives})" if self.collectives else ""


class Heartbeat:
    """This rank's side."""

    def __init__(self) -> None:
        self._map: mmap.mmap | None = None
        self._step = self._collectives = 0
        self._kind = b""

    def open(self, folder: str, rank: int) -> None:
        self._step = self._collectives = 0
        self._kind = b""
        path = os.path.join(folder, f"pulse{rank}")
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, bytes(_SIZE))  # takes the space now, when it is still there
            self._map = mmap.mmap(file, _SIZE)
        finally:
            os.close(file)

    def stepped(self, step: int) -> None:
        self._step = step
        self._write()

    def collective(self, kind: str) -> None:
        self._collectives += 1
        self._kind = kind.encode()
        self._write()

    def lose(self, reason: str) -> None:
        """Say why the record ends here."""
        if self._map is not None:
            text = reason.encode()[: _SIZE - _COUNTS.size]
            self._map[_COUNTS.size : _COUNTS.size + len(text)] = text

    def _write(self) -> None:
        if self._map is not None:
            _COUNTS.pack_into(self._map, 0, self._step, self._collectives, self._kind)


def read_beats(folder: Path) -> dict[int, Beat]:
    """What the ranks show in a folder of records, by rank."""
    found: dict[int, Beat] = {}
    for path in folder.glob("pulse*"):
        number = path.name[len("pulse") :]
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            if number.isdigit() and len(data) >= _COUNTS.size:
                step, collectives, kind = _COUNTS.unpack_from(data)
                lost = data[_COUNTS.size :].rstrip(b"\0").decode(errors="replace")
                found[int(number)] = Beat(step, collectives, kind.rstrip(b"\0").decode(), lost)
    return dict(sorted(found.items()))
