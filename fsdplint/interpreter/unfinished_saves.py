"""Asynchronous saves whose result the program keeps, and does not use in time.

Code that is out of sight waits for a save only if it gets the result, or if it may have it from
elsewhere: the method of an object may be one of the result, if its name says that it waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Dict, Instance, Method, Sequence, Symbol, Unknown, Value
from fsdplint.trace import Saved

_ASYNC = "async_save"
_WAITS = re.compile(
    r"await|complete|done|drain|exception|finali|finish|flush|future|join|result|shutdown|sync|wait"
)
_MAX_DEPTH = 3  # of objects in others


def note_save(run: Run, name: str, result: Value) -> None:
    """A call saves a checkpoint."""
    if name.endswith(_ASYNC):
        run.saving.add(result)


def note_wait(run: Run) -> None:
    """The program may wait for all that it has begun."""
    run.save_waited_at = len(run.trace.events)


def note_stored(run: Run, value: Value) -> None:
    """A value becomes a part of an object of which nothing is known."""
    if value in run.saving:
        run.saves_out_of_sight = True


def note_call(run: Run, function: Value, name: str, call: Call) -> None:
    """Code that is out of sight is called."""
    if not run.saving:
        return
    if run.saves_out_of_sight or not isinstance(function, Symbol) and _WAITS.search(name.lower()):
        note_wait(run)
    elif any(_holds(run, value, 0) for value in (*_owners(function), *call.values, *call.spread)):
        note_wait(run)


def _owners(function: Value) -> Iterator[Value]:
    """The objects of which a function is a method, or a method of a part."""
    if isinstance(function, Method):
        yield function.receiver
    owner = function.owner if isinstance(function, Unknown) else None
    while owner is not None:
        yield owner
        owner = owner.owner if isinstance(owner, Unknown) else None


def _holds(run: Run, value: Value, depth: int) -> bool:
    """Whether a value is the result of a save, or has one in it."""
    value = run.settle(value)
    if value in run.saving:
        return True
    held: Iterable[Value] = ()
    if isinstance(value, Sequence):
        held = value.items
    elif isinstance(value, Dict):
        held = value.items.values()
    elif isinstance(value, Instance):
        held = value.attributes.values()
    elif isinstance(value, Unknown):
        held = value.parts.values()
    return depth < _MAX_DEPTH and any(_holds(run, one, depth + 1) for one in held)


def note_use(run: Run) -> None:
    """Note that the program comes to something that needs the last save to be done."""
    saves = (event for event in reversed(run.trace.events) if isinstance(event, Saved))
    last = next((event for event in saves if event.api.endswith(_ASYNC)), None)
    if last is not None and not last.dropped and not _is_other_way(run, last):
        last.unawaited |= run.save_waited_at <= last.index


def _is_other_way(run: Run, event: Saved) -> bool:
    """Whether the program comes here only if a test went another way than for an event."""
    here = [entry.guard for entry in run.guards]
    return any(one.text == g.text and one.holds != g.holds for one in here for g in event.guards)
