"""Sets of the identities of parameters: `{id(p) for p in model.head.parameters()}`."""

from __future__ import annotations

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParameterId, ParametersOf
from fsdplint.interpreter.values import Sequence, Value
from fsdplint.trace import KnownParameter, ParametersTied, Sharded


def is_among(run: Run, parameter: KnownParameter, identities: Value | None) -> bool | None:
    """Whether the identity of a parameter is in a set or list; None if that is not known."""
    held = run.settle(identities) if identities is not None else None
    if not isinstance(held, Sequence) or any(True for _ in run.trace.of(ParametersTied)):
        return None
    found: bool | None = False
    for item in map(run.settle, held.items):
        parameters = item.parameters if isinstance(item, ParameterId) else None
        if parameters is None or not _has_all(parameters):
            return None
        if parameter.owner in run.trace.submodules(*(one.id for one in parameters.modules)):
            found = None if _may_be_replaced(run, parameters, parameter.owner) else True
    return found


def _has_all(parameters: ParametersOf) -> bool:
    """Whether a turn of a loop stands for all parameters of its modules."""
    chosen = parameters.filtered_by or parameters.by_name or parameters.left_out
    return parameters.complete and parameters.every and not (chosen or parameters.name)


def _may_be_replaced(run: Run, parameters: ParametersOf, owner: str) -> bool:
    """Whether a sharding may have replaced a parameter since the program has read it."""
    taken = parameters.taken_at
    if taken is None:
        return True
    for shard in run.trace.of(Sharded):
        family = set(run.trace.submodules(*shard.group, shard.module))
        ignored = set(run.trace.submodules(*shard.ignored))
        if shard.index >= taken and owner in family and owner not in ignored:
            return True
    return False
