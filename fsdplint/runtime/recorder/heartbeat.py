"""The heartbeat of a rank: its step, its last collective, and an error of its record.

It is stored in a small file that is mapped into the memory of the rank. An update needs no system
call, needs no space on the disk and cannot block. The file can be read at any time, also if the
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
    """The last heartbeat of a rank.

    Attributes:
        step: the number of its optimizer steps.
        collectives: the number of collectives that it has begun, including FSDP's own.
        kind: the kind of the last collective.
        write_error: why its record could not be written; empty if it could.
    """

    step: int = 0
    collectives: int = 0
    kind: str = ""
    write_error: str = ""

    @property
    def last(self) -> str:
        """The last collective as text; its number shows which rank is behind."""
        return f"{self.kind} (number {self.collectives})" if self.collectives else ""


class Heartbeat:
    """Writes the heartbeat of this rank."""

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
            os.write(file, bytes(_SIZE))  # reserve the space before the disk may be full
            self._map = mmap.mmap(file, _SIZE)
        finally:
            os.close(file)

    def set_step(self, step: int) -> None:
        self._step = step
        self._write()

    def collective(self, kind: str) -> None:
        self._collectives += 1
        self._kind = kind.encode()
        self._write()

    def note_end(self, reason: str) -> None:
        """Set the reason why the record ends here."""
        if self._map is not None:
            text = reason.encode()[: _SIZE - _COUNTS.size]
            self._map[_COUNTS.size : _COUNTS.size + len(text)] = text

    def _write(self) -> None:
        if self._map is not None:
            _COUNTS.pack_into(self._map, 0, self._step, self._collectives, self._kind)


def read_beats(folder: Path) -> dict[int, Beat]:
    """The heartbeats in a folder of records, by rank."""
    found: dict[int, Beat] = {}
    for path in folder.glob("pulse*"):
        number = path.name[len("pulse") :]
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            if number.isdigit() and len(data) >= _COUNTS.size:
                step, collectives, kind = _COUNTS.unpack_from(data)
                write_error = data[_COUNTS.size :].rstrip(b"\0").decode(errors="replace")
                found[int(number)] = Beat(
                    step, collectives, kind.rstrip(b"\0").decode(), write_error
                )
    return dict(sorted(found.items()))
