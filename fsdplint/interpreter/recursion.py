"""Recursive calls that show nothing new: those that know no more than the calls around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fsdplint.interpreter.frames import Frame
from fsdplint.interpreter.values import Const, Dict, ModuleValue, Unknown, Value

Knowledge = tuple[object, ...]

# Calls around a call that know the same. Both outcomes of a test of a varying value are followed in
# one call; other tests have the same outcome in all of it.
MAX_VARYING = 1
MAX_EQUAL = 2


def knowledge_of(values: Iterable[Value]) -> Knowledge | None:
    """What is known of the arguments of a call, without the names of unknown values; None if they
    are modules, whose trees are walked down."""
    known: list[object] = []
    for value in values:
        if isinstance(value, ModuleValue):
            return None
        if isinstance(value, Unknown):
            if value.refined is not None or value.part_of is not None:
                return None
            entries = id(value.default) if isinstance(value.default, Dict) else None
            differs = value.varying, value.by_rank, value.by_process, value.rank_local
            known.append((*differs, entries))
        elif isinstance(value, Const):
            known.append((type(value.value), value.value))
        else:
            known.append(id(value))
    return tuple(known)


def shows_nothing_new(known: Knowledge | None, active: Sequence[Frame]) -> bool:
    """Whether a call is nested in others of its function that know the same.

    active: the calls of the function that are being executed.
    """
    if known is None or not active:
        return False
    varying = any(isinstance(one, tuple) and one[0] is True for one in known)
    equal = sum(frame.knowledge == known for frame in active)
    return equal >= (MAX_VARYING if varying else MAX_EQUAL)
