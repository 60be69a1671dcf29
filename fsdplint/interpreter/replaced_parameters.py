"""Tests whether a parameter is among others that sharding has replaced."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.optimizers import stale_modules
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParameterId, ParametersOf
from fsdplint.interpreter.values import Dict, Sequence, Value
from fsdplint.trace import ReplacedParametersTested


def note_membership(run: Run, node: cst.CSTNode, left: Value, right: Value) -> None:
    """`id(p) in ids`, or `p in parameters` with a set, of a parameter of a sharded model.

    The ids may be the keys of a dict, of which `names.get(id(p))` asks the same.
    """
    tested = _parameters(run, left)
    held = run.settle(right)
    is_identity = isinstance(run.settle(left), ParameterId)
    if isinstance(held, Dict) and is_identity:
        known = held.identities if not held.doubtful else None
    elif isinstance(held, Sequence) and (is_identity or held.kind in ("set", "frozenset")):
        known = tuple(held.items) if not held.open else None
    else:
        return  # a list compares the values of tensors
    if tested is None or not known:
        return
    others = [_parameters(run, one) for one in known]
    stale = [stale_modules(run, one) if one is not None else () for one in others]
    if not all(stale) or stale_modules(run, tested):
        return
    modules = tuple(dict.fromkeys(one for found in stale for one in found))
    if any(run.trace.related(one.id, other) for one in tested.modules for other in modules):
        run.emit(ReplacedParametersTested, node, modules=modules)


def with_identity(run: Run, held: Dict, key: Value) -> tuple[Value, ...] | None:
    """See `Dict.identities`, after a dict has got an entry under a key that is not known."""
    key = run.settle(key)
    if held.identities is None or not isinstance(key, ParameterId):
        return None
    return (*held.identities, key)


def _parameters(run: Run, value: Value) -> ParametersOf | None:
    value = run.settle(value)
    if isinstance(value, ParameterId):
        return value.parameters
    return value if isinstance(value, ParametersOf) and value.element else None
