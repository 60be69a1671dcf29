"""Values that the program gives to its own copies of sharded parameters, such as an average."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.sharded_parameters import must_be_sharded
from fsdplint.interpreter.torch_values import ParametersOf, StateValue
from fsdplint.interpreter.unit_parameters import rests_flat
from fsdplint.interpreter.values import ModuleValue, Value
from fsdplint.source.positions import descend
from fsdplint.trace import BackwardRun, Layout, ShardCopySet, StateTaken

_KEEPING_VALUES = {"requires_grad_", "share_memory_", "detach_"}


def note_copies_written(
    run: Run, node: cst.CSTNode, written: list[Value], operands: list[Value]
) -> None:
    """Record an operation in place on copies of sharded parameters: `average.lerp_(p, 0.1)`.

    A copy from before the sharding is a whole tensor, which refuses a sharded operand. So one
    sharded operand is enough.
    """
    copies = [one for one in written if _is_copy(one)]
    if not copies or len(copies) != len(written):
        return
    if all(_is_sharded(run, one) for one in copies) or any(
        isinstance(one, ParametersOf) and one.element and _is_sharded(run, one)
        for one in map(run.settle, operands)
    ):
        _record(run, node, copies)


def note_copy_replaced(
    run: Run, target: cst.CSTNode, expression: cst.CSTNode, value: Value
) -> None:
    """Record `average[name] = 0.9 * average[name] + 0.1 * p`."""
    made = run.settle(value)
    if not isinstance(made, ParametersOf) or not made.derived or not _is_sharded(run, made):
        return
    if not any(one.deep_equals(target) for one in descend(expression)):
        return
    kept = run.settle(run.eval(target))
    if _is_copy(kept):
        _record(run, target, [kept])


def note_state_written(run: Run, node: cst.CSTNode, state: StateValue, method: str) -> None:
    """Record `state[name].mul_(0.9)` of a sharded state dict, or of a dict of its tensors."""
    sharded = state.tensor and state.layout is Layout.SHARDED
    if not sharded or not isinstance(state.of, ModuleValue) or method in _KEEPING_VALUES:
        return
    taken = next((one for one in run.trace.of(StateTaken) if one.state == state.id), None)
    if state.of_some_ranks or taken is None or not _is_kept(run, taken.index):
        return
    if method.endswith("_") and not method.endswith("__"):
        run.emit(ShardCopySet, node, modules=(state.of.id,))


def _is_copy(value: Value) -> bool:
    """Whether a value is a result of operations on a parameter that all ranks have, and no view."""
    if not isinstance(value, ParametersOf) or value.of_some_ranks:
        return False
    return value.derived and not value.unsharded_copy


def _is_sharded(run: Run, value: Value) -> bool:
    if not isinstance(value, ParametersOf) or value.unsharded_copy:
        return False
    return must_be_sharded(run, value) or rests_flat(run, value)


def _is_kept(run: Run, made_at: int | None) -> bool:
    """Whether the program has kept a copy over a backward. Others may be for a print only.

    made_at: the number of events when it was made; None if unknown.
    """
    trained = next(reversed(list(run.trace.of(BackwardRun))), None)
    return made_at is not None and trained is not None and trained.index >= made_at


def _record(run: Run, node: cst.CSTNode, copies: list[Value]) -> None:
    found = [one for one in copies if isinstance(one, ParametersOf)]
    if not all(_is_kept(run, one.taken_at) for one in found):
        return
    modules = tuple(module.id for one in found for module in one.modules)
    run.emit(ShardCopySet, node, modules=modules)
