"""Numbers that say where a rank is in one dimension of a mesh.

`mesh["dp"].get_local_rank()` is such a number, and so are a seed and an index that a program
computes of it. Ranks at other positions have other numbers. Those at the same position, along the
other dimensions, have the same.
"""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import MeshPosition
from fsdplint.interpreter.values import Value, constant

# Functions and methods that divide a tensor into a list of parts.
_DIVIDE = frozenset({"chunk", "split", "tensor_split", "unbind"})


def note_chunks(run: Run, function: str, call: Call, result: Value) -> None:
    """Note the list that a call has made of a tensor along another dimension than the first, which
    is that of the samples."""
    if function.rpartition(".")[2] not in _DIVIDE:
        return
    given = call.arg(2 if function.startswith("torch.") else 1, "dim")
    dimension = constant(run.settle(given)) if given is not None else None
    if isinstance(dimension, int) and dimension != 0:
        run.chunks.add(result)


def position_of(run: Run, value: Value | None) -> MeshPosition | None:
    """The position that a number certainly depends on, another number at each position."""
    value = run.settle(value) if value is not None else None
    if isinstance(value, MeshPosition):
        return value if value.mesh and value.dimension else None
    return run.positions.get(value) if value is not None else None
