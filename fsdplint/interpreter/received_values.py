"""What a rank computes from a tensor that another rank sent it.

    if rank != 0:
        name = pickle.loads(buffer.numpy().tobytes())

After `dist.broadcast(buffer, src=0)`, the name may be the same on all ranks.
"""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.merging import join_by_rank
from fsdplint.interpreter.rank_agreement import forget_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import RankChoice, RankTest
from fsdplint.interpreter.values import Bound, Function, Method, Unknown, Value


def note_call(run: Run, function: Value, call: Call, result: Value) -> None:
    """Note what code out of sight makes of a received value."""
    if isinstance(function, Function | Bound):
        return
    used: list[Value | None] = list(call.values)
    if isinstance(function, Method):
        used.append(function.receiver)
    if isinstance(function, Unknown):
        used.append(function.owner)
    if any(one is not None and _is_received(run, one) for one in used):
        run.received.add(result)


def join_sides(run: Run, test: RankTest, one: Value, other: Value) -> Value:
    """Join the values of two sides of a test of the rank; a received value may be the other one."""
    joined = join_by_rank(test, one, other)
    if isinstance(joined, RankChoice) and (one in run.received or other in run.received):
        forget_rank(joined)
    return joined


def _is_received(run: Run, value: Value) -> bool:
    return value in run.received or (isinstance(value, RankChoice) and value.agreed)
