"""Elements of a list that each rank takes by a number of its own: `rows[start]`."""

from __future__ import annotations

from dataclasses import replace

from fsdplint.interpreter.rank_local import local_of, own_data
from fsdplint.interpreter.rank_local_calls import computes, draws
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Dict, RankLocal, Sequence, Symbol, Unknown, Value

_DRAWN = "torch.Generator"  # the library of what is drawn from a generator
_MAX_DEPTH = 2


def element_at_own_index(run: Run, value: Value, index: RankLocal) -> Value | None:
    """The element of a list at an index that differs between ranks.

    None if the elements are no data, or all of them may be the same.
    """
    if not isinstance(value, Sequence) or len(value.items) < 2:
        return None
    items = [run.settle(one) for one in value.items]
    if not all(_has_data(run, one, 0) for one in items):
        return None
    return _as_own_data(run, items[-1], own_data(run, index.source), 0)


def _has_data(run: Run, value: Value, depth: int) -> bool:
    """Whether a value is, or holds, a tensor that was computed or drawn at random."""
    if isinstance(value, Sequence | Dict):
        items = value.items if isinstance(value, Sequence) else value.items.values()
        found = (_has_data(run, run.settle(one), depth + 1) for one in items)
        return depth < _MAX_DEPTH and any(found)
    return _is_data(value)


def _is_data(value: Value) -> bool:
    plain = isinstance(value, Unknown) and not value.origin and value.part_of is None
    if not plain or not isinstance(value, Unknown) or local_of(value) is not None:
        return False
    name = value.library
    return name == _DRAWN or draws(Symbol(name)) or (name.startswith("torch.") and computes(name))


def _as_own_data(run: Run, value: Value, own: RankLocal, depth: int) -> Value:
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, Sequence):
        items = [_as_own_data(run, run.settle(one), own, depth + 1) for one in value.items]
        return replace(value, items=items)
    if isinstance(value, Dict):
        entries = value.items.items()
        held = {key: _as_own_data(run, run.settle(one), own, depth + 1) for key, one in entries}
        return replace(value, items=held)
    if isinstance(value, Unknown) and _is_data(value):
        return replace(value, parts={}, varying=True, rank_local=own)
    return value
