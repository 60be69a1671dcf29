"""The dtypes in which the units of FSDP2 compute, as their mixed precision says.

A unit casts its own parameters to `param_dtype`, and the floating-point tensors that its forward
gets, unless `cast_forward_inputs=False`. It casts what its forward returns to `output_dtype`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.precisions import dtype_name
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, LibraryObject, ModuleValue, Value
from fsdplint.trace import GuardKind, Prepared, Sharded, Wrapped
from fsdplint.trace.groups import Groups, sharded_by


@dataclass(frozen=True)
class Precision:
    """The mixed precision of a unit. A dtype is "" where the unit casts nothing."""

    param_dtype: str = ""
    output_dtype: str = ""
    casts_inputs: bool = True


def note_precision(run: Run, event: Sharded, policy: Value | None) -> None:
    """Note the mixed precision that `fully_shard` gets, if all of it is known."""
    if "**" in event.options:
        return
    policy = run.settle(policy) if policy is not None else LibraryObject("")
    if not isinstance(policy, LibraryObject) or policy.open:
        return
    flag = policy.get("cast_forward_inputs", "3") or Const(True)
    dtypes = [policy.get(*names) for names in (("param_dtype", "0"), ("output_dtype", "2"))]
    settled = [run.settle(one) if one is not None else Const(None) for one in dtypes]
    names = [dtype_name(one) for one in settled]
    known = all(name or _is_none(one) for name, one in zip(names, settled, strict=True))
    casts = run.settle(flag)
    if known and isinstance(casts, Const) and isinstance(casts.value, bool):
        precision = Precision(names[0], names[1], casts.value)
        for module in sharded_by(event):
            run.precisions[module] = precision


def _is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


def dtype_of_layer(run: Run, layer: ModuleValue) -> str:
    """The dtype in which a layer of torch has its parameters in its forward; "" if unknown."""
    if not layer.dtype or run.hooked or any(run.trace.of(Wrapped, Prepared)):
        return ""
    if any(map(_may_leave_out, run.trace.of(Sharded))):
        return ""
    unit = _unit_of(run, layer)
    if unit is None:
        return layer.dtype
    precision = run.precisions.get(unit)
    return (precision.param_dtype or layer.dtype) if precision is not None else ""


def _may_leave_out(event: Sharded) -> bool:
    """Whether a sharding leaves parameters out, which it does not cast, or may not happen."""
    doubtful = any(guard.kind is GuardKind.VARYING for guard in event.guards)
    return doubtful or "ignored_params" in event.options


def _unit_of(run: Run, layer: ModuleValue) -> str | None:
    """The unit that has the parameters of a layer."""
    key = layer.id, run.structure, len(run.trace.shardings())
    if key not in run.units:
        run.units[key] = Groups(run.trace).owner(layer.id)
    return run.units[key]


@contextmanager
def inputs_of_unit(run: Run, module: ModuleValue, call: Call) -> Iterator[None]:
    """Give the tensors that a forward gets the dtype to which its unit casts them."""
    if not _is_unit(run, module):
        yield
        return
    precision = run.precisions.get(module.id)
    given = list(map(run.settle, call.values))
    before = [(value, run.dtypes.pop(value, None)) for value in given]
    if precision is not None:
        casts = precision.param_dtype if precision.casts_inputs else ""
        for value, dtype in before:
            if casts or dtype:
                run.dtypes[value] = casts or dtype or ""
    try:
        yield
    finally:
        for value, dtype in before:
            run.dtypes.pop(value, None)
            if dtype:
                run.dtypes[value] = dtype


def dtype_of_output(run: Run, module: ModuleValue, returned: str) -> str:
    """The dtype of the output of a module whose forward returns a tensor of a dtype."""
    if not _is_unit(run, module):
        return returned
    precision = run.precisions.get(module.id)
    return (precision.output_dtype or returned) if precision is not None else ""


def _is_unit(run: Run, module: ModuleValue) -> bool:
    return module.id in run.trace.shardings()
