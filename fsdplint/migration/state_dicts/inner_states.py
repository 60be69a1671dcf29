"""States of the module inside of FSDP1's wrapper, outside of blocks that set their type.

`model.module.state_dict()` gives this rank's flat part of the root's parameters in FSDP1. The whole
state of the model is what such code means, as with DDP. All ranks have to gather it, so that the
call moves out of a test that lets only some ranks come to it. A variable may hold the module:
FSDP2 wraps nothing, so that it then holds the model.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.fixes.guarded_statements import GuardedStatement, guarded_statement, liftable
from fsdplint.fixes.syntax import free_name
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.state_dicts.in_ddp import may_be_ddp
from fsdplint.migration.state_dicts.kinds import MODULE
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.dotted import bound_by, mentions
from fsdplint.syntax.layout import descend
from fsdplint.trace import Guard, GuardKind, StateLoaded, StateTaken, Wrapped

INNER_NOTE = "the state of the module inside of the wrapper becomes the whole state of the model"
INNER_DETAIL = "FSDP1 gives this rank's flat part of the root's parameters, or raises."
LOAD_NOTE = (
    "the state for the module inside of the wrapper is taken for the whole state of the model"
)
LOAD_DETAIL = (
    "FSDP1 expects this rank's flat part of the root's parameters. A file that the program saved "
    "with FSDP1 may have only this part."
)
TITLE = "Take the whole state on all ranks"
LOAD_TITLE = "Load the whole state"
_INNER = ("module", "_fsdp_wrapped_module")
_LOAD = {"state_dict", "strict"}
_TRAINS = {"step", "backward", "load_state_dict", "load"}  # methods that a state may not overtake


def rewrite(migration: Migration, source: Source, call: cst.Call) -> bool:
    """Rewrite `model.module.state_dict()`. Returns whether it was possible."""
    model = _model(migration, source, call)
    taken = _taken(migration, call)
    if model is None or call.args or not taken:
        return False
    guards = {_rank_guard(one) for one in taken}
    if len(guards) > 1:
        return False
    guard = guards.pop()
    place = None if guard is None else guarded_statement(source, call, guard, migration.program)
    if guard is not None and (place is None or not _may_move(source, call, model, place)):
        return False
    getter = migration.need(source, MODULE, "get_model_state_dict", call)
    options = migration.need(source, MODULE, "StateDictOptions", call)
    parts = ["full_state_dict=True", *(["cpu_offload=True"] if guard and guard.rank == 0 else [])]
    given = expression(migration, source, model)
    text = f"{getter}({given}, options={options}({', '.join(parts)}))"
    if place is None:
        migration.substitute(source, call, text)
    else:
        name = free_name(source, call, "model_state")
        migration.rewrite.insert_before(source, place.test, place.lines([f"{name} = {text}"]))
        migration.substitute(source, call, name)
    migration.states.typed_calls.add(call)
    migration.step(source, call, TITLE)
    migration.note(INNER_NOTE, source, call, detail=INNER_DETAIL, unsafe=True)
    return True


def rewrite_load(migration: Migration, source: Source, call: cst.Call) -> bool:
    """Rewrite `model.module.load_state_dict(state)`. Returns whether it was possible."""
    model = _model(migration, source, call)
    loaded = _loaded(migration, call)
    given, rest = arguments(call, ("state_dict", "strict"))
    if model is None or not loaded or rest or not {"state_dict"} <= set(given) <= _LOAD:
        return False
    if any(one.ranks.partial for one in loaded):
        return False
    setter = migration.need(source, MODULE, "set_model_state_dict", call)
    options = migration.need(source, MODULE, "StateDictOptions", call)
    parts = ["full_state_dict=True"]
    if "strict" in given:
        parts.append(f"strict={expression(migration, source, given['strict'].value)}")
    values = [expression(migration, source, one) for one in (model, given["state_dict"].value)]
    text = f"{setter}({', '.join(values)}, options={options}({', '.join(parts)}))"
    migration.substitute(source, call, text)
    migration.states.typed_calls.add(call)
    migration.step(source, call, LOAD_TITLE)
    migration.note(LOAD_NOTE, source, call, detail=LOAD_DETAIL, unsafe=True)
    return True


def _model(migration: Migration, source: Source, call: cst.Call) -> cst.BaseExpression | None:
    """What is the model after the migration: that in `model.module.state_dict()`, or the variable of
    the module. None if it may be another one."""
    receiver = call.func.value if isinstance(call.func, cst.Attribute) else None
    if isinstance(receiver, cst.Attribute) and receiver.attr.value in _INNER:
        model = receiver.value
        if migration.wrapping_of(model) != "always" or may_be_ddp(migration, source, model):
            return None
    elif isinstance(receiver, cst.Name | cst.Attribute):
        model = receiver
    else:
        return None
    return model if is_repeatable(model) else None


def _taken(migration: Migration, call: cst.Call) -> list[StateTaken]:
    """What the runs take at a call, if each time it is the state of a module in FSDP1's wrapper."""
    found = []
    for trace in migration.program.traces:
        for event in trace.of(StateTaken):
            if isinstance(event.site, NodeSite) and event.site.node is call:
                if all(other.inner != event.of for other in trace.before(event, Wrapped)):
                    return []
                found.append(event)
    return found


def _loaded(migration: Migration, call: cst.Call) -> list[StateLoaded]:
    """What the runs load at a call, if each time it is into a module in FSDP1's wrapper."""
    found = []
    for trace in migration.program.traces:
        for event in trace.of(StateLoaded):
            if isinstance(event.site, NodeSite) and event.site.node is call:
                if all(other.inner != event.into for other in trace.before(event, Wrapped)):
                    return []
                found.append(event)
    return found


def _rank_guard(event: StateTaken) -> Guard | None:
    """The innermost test of the rank that keeps some ranks from a state."""
    partial = [one for one in event.guards if one.kind is GuardKind.RANK and one.ranks.partial]
    return partial[-1] if partial else None


def _may_move(
    source: Source, call: cst.Call, model: cst.BaseExpression, place: GuardedStatement
) -> bool:
    """Whether a state may be taken before a test of the rank, and means the same there."""
    name = source.code(model)
    if not liftable(source, call, place.statement) or mentions(place.test.test, {name}):
        return False
    return not any(
        name in bound_by(other) or mentions(other, {name}) or _trains(other)
        for other in place.before
    )


def _trains(statement: cst.CSTNode) -> bool:
    """Whether a statement may change the weights of a model that it does not name."""
    return any(
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in _TRAINS
        for node in descend(statement)
    )
