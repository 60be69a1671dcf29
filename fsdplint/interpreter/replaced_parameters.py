"""Tests whether a parameter is among others that sharding has replaced."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.optimizers import stale_modules
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParameterId, ParametersOf
from fsdplint.interpreter.values import Sequence, Value
from fsdplint.trace import ReplacedParametersTested


def note_membership(run: Run, node: cst.Comparison, left: Value, right: Value) -> None:
    """`id(p) in ids`, or `p in parameters` with a set, of a parameter of a sharded model."""
    tested = _parameters(run, left)
    held = run.settle(right)
    if tested is None or not isinstance(held, Sequence) or held.open or not held.items:
        return
    if not isinstance(run.settle(left), ParameterId) and held.kind not in ("set", "frozenset"):
        return  # a list compares the values of tensors
    others = [_parameters(run, one) for one in held.items]
    stale = [stale_modules(run, one) if one is not None else () for one in others]
    if not all(stale) or stale_modules(run, tested):
        return
    modules = tuple(dict.fromkeys(one for found in stale for one in found))
    if any(run.trace.related(one.id, other) for one in tested.modules for other in modules):
        run.emit(ReplacedParametersTested, node, modules=modules)


def _parameters(run: Run, value: Value) -> ParametersOf | None:
    value = run.settle(value)
    if isinstance(value, ParameterId):
        return value.parameters
    return value if isinstance(value, ParametersOf) and value.element else None
