"""Trained parameters outside of the wrapped parts of a model.

If FSDP1 wraps only parts of a model, the parameters of the rest are plain tensors beside the DTensors of
FSDP2. Clipping, gradient scalers and the functions of optimizers for lists of tensors refuse to mix the
two (seen with torch 2.13). On accelerators, optimizers of torch take these functions by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.migration.blockers import Blocked, Reason
from fsdplint.migration.blockers.training import MIXED_CLIPPING, MIXED_LISTS, MIXED_SCALER
from fsdplint.migration.constructor.ignored_training import add_foreach, runs_on_cpu
from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, elements, is_constant
from fsdplint.trace import Clipped, Event, OptimizerBuilt, ScalerStepped, Trace, Wrapped
from fsdplint.trace.queries.optimizers import STEPPING_SINGLY

NOTE = "parameters outside of the wrapped parts stay plain tensors beside sharded ones"
DETAIL = (
    "The optimizer updates them one by one (`foreach=False`), because its functions for lists of "
    "tensors do not take both together. Neither version reduces the gradients of these parameters. "
    "`fully_shard(model)` after its parts would shard and reduce them, too."
)


def check(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Let optimizers step singly, and block on what cannot take plain and sharded tensors."""
    blocked: set[cst.CSTNode] = set()
    for event, reason in _mixing(migration):
        site = event.site
        if isinstance(site, NodeSite) and site.node not in blocked:
            blocked.add(site.node)
            migration.blockers.append(Blocked(site.source, site.node, reason))


def _mixing(migration: Migration) -> Iterator[tuple[Event, Reason]]:
    """The events that take plain and sharded parameters together, each with the reason of its blocker."""
    for trace in migration.program.traces:
        sharded = {
            part
            for event in trace.of(Wrapped)
            for part in trace.submodules(event.inner, event.module)
        }
        if not sharded:
            continue
        for clip in trace.of(Clipped):
            if clip.api == "utils" and _mix(trace, clip.modules, sharded):
                yield clip, MIXED_CLIPPING()
        scaled = {event.optimizer for event in trace.of(ScalerStepped)}
        for built in trace.of(OptimizerBuilt):
            if not _mix(trace, built.modules, sharded):
                continue
            if built.optimizer in scaled:
                yield built, MIXED_SCALER()
            elif not _steps_singly(migration, trace, built, sharded):
                yield built, MIXED_LISTS()


def _mix(trace: Trace, modules: Sequence[str], sharded: set[str]) -> bool:
    """Whether modules certainly have trained parameters inside and outside of the wrapped ones."""
    held = trace.submodules(*modules)
    infos = [trace.modules[one] for one in held if one not in sharded]
    plain = any(one.own_parameters and not one.frozen and not one.wrapper for one in infos)
    return plain and any(
        trace.modules[one].own_parameters and not trace.modules[one].frozen
        for one in held
        if one in sharded
    )


def _steps_singly(
    migration: Migration, trace: Trace, built: OptimizerBuilt, sharded: set[str]
) -> bool:
    """Whether an optimizer updates its parameters one by one, at least after the rewrite."""
    call = built.site.node if isinstance(built.site, NodeSite) else None
    if built.library != "torch" or not isinstance(call, cst.Call):
        return True  # a class of the program, or one whose kernels are not known
    assert isinstance(built.site, NodeSite)
    given = {arg.keyword.value: arg.value for arg in call.args if arg.keyword is not None}
    lists = [given[name] for name in ("foreach", "fused") if name in given]
    if any(not is_constant(value, "False", "None") for value in lists):
        return False
    if "foreach" in given and is_constant(given["foreach"], "False"):
        return True
    if runs_on_cpu(trace) or not _groups_mix(migration, trace, call, sharded):
        return True
    if (
        "foreach" in given
        or built.class_name not in STEPPING_SINGLY
        or any(x.star for x in call.args)
    ):
        return False
    add_foreach(migration, built.site.source, call)
    migration.note(NOTE, built.site.source, call, detail=DETAIL)
    return True


def _groups_mix(migration: Migration, trace: Trace, call: cst.Call, sharded: set[str]) -> bool:
    """Whether one group of an optimizer may have both kinds of parameters.

    An optimizer updates each group by itself.
    """
    params = arguments(call, ("params",))[0].get("params")
    groups = elements(params.value) if params is not None else None
    if not groups or not all(isinstance(group, cst.Dict) for group in groups):
        return True
    for group in groups:
        assert isinstance(group, cst.Dict)
        values = [
            value
            for item in group.elements
            if isinstance(item, cst.DictElement) and _is_params(item.key)
            for value in migration.values(item.value)
        ]
        if not values or not all(isinstance(one, ParametersOf) and one.complete for one in values):
            return True
        modules = [m.id for one in values if isinstance(one, ParametersOf) for m in one.modules]
        if _mix(trace, modules, sharded):
            return True
    return False


def _is_params(key: cst.BaseExpression) -> bool:
    return isinstance(key, cst.SimpleString) and key.evaluated_value == "params"
