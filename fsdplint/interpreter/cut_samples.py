"""Parts of the samples of a batch that the rank chooses: `tokens[:, rank * n : (rank + 1) * n]`.

The ranks then hold parts of the same samples, if they have the same batch.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.method_names import attribute_name
from fsdplint.interpreter.rank_local import own_of_each_rank
from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import TensorValue
from fsdplint.interpreter.values import Unknown, Value
from fsdplint.trace import CutSamples

_KEEPS = frozenset("clone contiguous cuda int long pin_memory to".split())


def note_slice(
    run: Run, node: cst.Subscript, value: Value, part: Value, bounds: list[Value]
) -> None:
    """Note the part of each sample of a batch that each rank got for itself."""
    whole = node.slice[0].slice
    every = isinstance(whole, cst.Slice) and whole.lower is None and whole.upper is None
    if len(node.slice) < 2 or not every or len(bounds) < 2 or part is value:
        return
    given = own_of_each_rank(run, value)
    if given is not None and all(map(depends_on_rank, bounds[:2])):
        run.cut_samples[part] = CutSamples(given, run.site(node))


def note_call(run: Run, function: Value, result: Value) -> None:
    """A method that keeps the elements of such a part: `part.contiguous()`."""
    if not run.cut_samples or not isinstance(function, Unknown):
        return
    known = run.cut_samples.get(function.owner) if function.owner is not None else None
    if known is not None and isinstance(result, Unknown | TensorValue):
        if attribute_name(function) in _KEEPS:
            run.cut_samples[result] = known


def cut_in(run: Run, values: list[Value]) -> CutSamples | None:
    """How the samples in the arguments of a call were cut; None if they were not."""
    settled = (run.settle(value) for value in values)
    return next((run.cut_samples[one] for one in settled if one in run.cut_samples), None)
