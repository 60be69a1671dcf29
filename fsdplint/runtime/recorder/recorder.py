"""The recorder of one rank: writes events, modules and measures as JSON lines.

Every line is an object with a key "t":
    head     rank, world, pid, argv, versions
    event    n (its number), kind, where it happened (see `Place`), and the fields of its class
    update   n and fields that were known only after the call
    module   one module of the program, written again when it changes
    layout   which part of each parameter this rank holds, from an optimizer step on; see `layouts`
    measure  what one optimizer step measured
    end      how the program ended on this rank
A line is written with one system call as soon as it is known, so that a crash loses nothing. If it
cannot be written (the disk is full), the record ends, the heartbeat gets the reason, and the
program goes on.

An event is an object of its class in `fsdplint.trace`. `event` takes the class, a frame for the
site, and the other arguments of the constructor: `recorder.event(StateLoaded, frame, into=name)`.
Its type lets mypy check the names and types of the fields and find missing ones. A later update
sets an attribute. The fields in `trace` define how the records of several ranks become one event.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import FrameType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from fsdplint.runtime.recorder.heartbeat import Heartbeat
from fsdplint.runtime.recorder.sites import RecordedSite, Span, span_of, stack_of, user_frame
from fsdplint.trace import Event, Site

E = TypeVar("E", bound=Event)
P = ParamSpec("P")


class OwnerNames(tuple[str, ...]):
    """The modules that own some parameters.

    `merge` replaces them by the largest modules that consist of them, which requires the full tree.
    """

    __slots__ = ()


def of_this_rank(value: object) -> Any:
    """This rank's value for a field that is computed from the values of all ranks."""
    return value


def _json_value(value: object) -> object:
    """A field's value for JSON, with `OwnerNames` distinguished from other tuples."""
    return {"owners": list(value)} if isinstance(value, OwnerNames) else value


def _json_default(value: object) -> object:
    return value.value if isinstance(value, Enum) else str(value)


@dataclass(frozen=True)
class Place:
    """The place of the program when an event happens.

    Attributes:
        span: the span of the user's code; None if no user code is running.
        stack: the spans of the calls that led there, outermost first.
        functions: the first lines of the functions of `stack` and of `span`.
        handling: whether an exception is being handled.
    """

    span: Span | None
    stack: list[Span]
    functions: list[int]
    handling: bool

    @classmethod
    def of(cls, frame: FrameType | None) -> Place:
        where = user_frame(frame)
        span = span_of(where) if where is not None else None
        return cls(span, *stack_of(where), sys.exc_info()[0] is not None)

    @property
    def site(self) -> Site:
        return RecordedSite(self.span or ["", 1, 1, 1, 1])


class Entry(Generic[E]):
    """An event of this rank's record.

    Fields that become known later are set on `event` and then written:

        copied.event.copy = name
        copied.write()
    """

    __slots__ = ("_fields", "_recorder", "_values", "event", "number", "place")

    def __init__(
        self, recorder: Recorder, number: int, place: Place, event: E, fields: tuple[str, ...]
    ) -> None:
        self._recorder = recorder
        self.number = number
        self.place = place
        self.event = event
        self._fields: tuple[str, ...] | None = fields  # None once they are written
        self._values = dict(vars(event))

    def write(self) -> None:
        """Write the event, or the fields that have changed since the last call."""
        now = vars(self.event)
        changed = {name: value for name, value in now.items() if self._values[name] != value}
        self._values.update(changed)
        if self._fields is not None:
            fields = {name: _json_value(now[name]) for name in (*self._fields, *changed)}
            self._fields = None
            self._recorder.write({**self._head(), **fields})
        elif changed:
            self._recorder.write({"t": "update", "n": self.number, **changed})

    def _head(self) -> dict[str, Any]:
        place = self.place
        line = {
            "t": "event",
            "n": self.number,
            "kind": self.event.kind,
            "at": place.span,
            "stack": place.stack,
            "functions": place.functions,
        }
        return {**line, "handling": True} if place.handling else line


class Recorder:
    """Writes the record; `on` is false outside of the user's program and in the recorder's work."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self.on = False
        self.folder: str | None = None
        self.rank = 0
        self.world = 1
        self.main_thread = 0
        self.number = 0
        self.in_backward = 0
        self.troubles = 0
        self._file = -1

    # Life -----------------------------------------------------------------------------------

    def open(self, folder: str, rank: int, world: int, emulated: bool = False) -> None:
        """Start a record in `folder`, replacing an earlier one of this rank.

        emulated: whether the CPU emulates the devices of the program.
        """
        os.makedirs(folder, exist_ok=True)
        self.folder, self.rank, self.world = folder, rank, world
        path = os.path.join(folder, f"rank{rank}.jsonl")
        self._heartbeat.open(folder, rank)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self.main_thread = threading.get_ident()
        self.number = 0
        self.in_backward = 0
        self.write(
            {
                "t": "head",
                "rank": rank,
                "world": world,
                "pid": os.getpid(),
                "argv": list(sys.argv),
                "python": sys.version.split()[0],
                "torch": getattr(sys.modules.get("torch"), "__version__", None),
                "emulated": emulated,
            }
        )
        self.on = True

    def close(self, status: str, **more: Any) -> None:
        """Write how the program ended, and end the record."""
        self.on = False
        self.write({"t": "end", "status": status, "time": time.time(), **more})
        self._close()

    def listening(self) -> bool:
        """Whether to record calls: the recorder is on, and this is the main thread."""
        return self.on and threading.get_ident() == self.main_thread

    def listening_to_forward(self) -> bool:
        """Whether to record calls of modules: `listening`, and no backward is running."""
        return not self.in_backward and self.listening()

    # Writing --------------------------------------------------------------------------------

    def write(self, line: dict[str, Any]) -> None:
        if self._file < 0:
            return
        data = (json.dumps(line, default=_json_default) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.end_with_error(error)

    def end_with_error(self, error: BaseException) -> None:
        """End the record after a write error, without ending the program."""
        self._heartbeat.note_end(
            str(error) if isinstance(error, OSError) else f"the disk is full ({error})"
        )
        self._close()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def event(
        self,
        kind: Callable[Concatenate[Site, P], E],
        frame: FrameType | None,
        *args: P.args,
        **fields: P.kwargs,
    ) -> Entry[E]:
        """Write an event with the place of `frame`, the caller of torch's function."""
        entry = self.prepare(kind, frame, *args, **fields)
        entry.write()
        return entry

    def prepare(
        self,
        kind: Callable[Concatenate[Site, P], E],
        frame: FrameType | None,
        *args: P.args,
        **fields: P.kwargs,
    ) -> Entry[E]:
        """Create an event that happens now and may be written later."""
        self.number += 1
        place = Place.of(frame)
        event = kind(place.site, *args, **fields)
        return Entry(self, self.number, place, event, tuple(fields))

    def record_error(self) -> None:
        """Record an error of the recorder itself; the user's program goes on."""
        self.troubles += 1
        if self.troubles <= 20:
            self.write({"t": "trouble", "text": traceback.format_exc()})

    def forget(self) -> None:
        """Stop recording in a process that the program forked, such as a data loader's worker."""
        self.on = False
        self._file = -1  # not closed: it belongs to the rank
