"""Values of each rank's own that all ranks write under one name.

A distributed checkpoint keeps the value of one rank for each key, unless it is a DTensor. A file
that all ranks write has the values of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.interpreter.mesh_positions import position_of
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import TensorValue
from fsdplint.interpreter.values import Dict, Sequence, Value

MAX_DEPTH = 3


def own_entries(run: Run, state: Value) -> tuple[str, ...]:
    """The keys of values that certainly differ between ranks, in a dict and the dicts in it."""
    state = run.settle(state)
    return tuple(_keys(run, state, "", 0)) if isinstance(state, Dict) else ()


def holds_own_values(run: Run, content: Value, depth: int = 0) -> bool:
    """Whether what is written to a file has values that certainly differ between ranks."""
    content = run.settle(content)
    if isinstance(content, Dict):
        held = content.items.values()
        return depth < MAX_DEPTH and any(holds_own_values(run, one, depth + 1) for one in held)
    return _is_own(run, content, tensors=True)


def _keys(run: Run, state: Dict, path: str, depth: int) -> Iterator[str]:
    for key, value in state.items.items():
        if isinstance(key, str) and key.startswith("<"):
            continue  # the key is not known, and may have the rank in it
        value = run.settle(value)
        name = f"{path}.{key}".strip(".")
        if isinstance(value, Dict):
            if depth < MAX_DEPTH:
                yield from _keys(run, value, name, depth + 1)
        elif _is_own(run, value):
            yield name


def _is_own(run: Run, value: Value, *, tensors: bool = False) -> bool:
    """Whether a number or text, or a tensor that is no DTensor, is another one on each rank.

    One number for all elements of a tensor, such as a loss, is a report, and no state to go on
    with. tensors: whether outputs of a model count.
    """
    if isinstance(value, Sequence):
        return any(_is_own(run, run.settle(one), tensors=tensors) for one in value.items)
    if depends_on_rank(value) or position_of(run, value) is not None:
        return True
    local = local_of(value)
    if local is None or local.number or (isinstance(value, TensorValue) and not tensors):
        return False
    return local.source not in run.clocks
