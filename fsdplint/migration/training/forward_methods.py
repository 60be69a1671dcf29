"""Methods of a wrapped model that run its parts outside of its forward.

FSDP1 gathers the model's own parameters for its forward only: such a method is right if it uses no
parameters but those of inner units, and raises otherwise. FSDP2 gathers them for every method that
`register_fsdp_forward_method` registers, so both come out right.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.values import Function, ModuleValue, Unknown
from fsdplint.migration.analysis import external_wrapping
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.summon import SUMMON_CALLS_IN_FULL_PRECISION
from fsdplint.migration.blockers.training import (
    GENERATE_OUTSIDE_FORWARD,
    METHOD_ON_SOME_RANKS,
    PARTS_OUTSIDE_FORWARD,
)
from fsdplint.migration.context import Migration, expression, is_fsdp1
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.enclosing import Function as FunctionNode
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend, statement_of
from fsdplint.trace import BackwardRun, Called, Event, GradMode, Trace, Wrapped
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.common import RANK_WORDS, perhaps_one_rank

GENERATES = ("generate", "sample")
# Methods that compute with the parameters, by the library of the model's class.
COMPUTES = {
    "diffusers": ("encode", "decode", "tiled_encode", "tiled_decode"),
    "transformers": ("get_audio_features", "get_image_features", "get_text_features"),
}
TITLE = "Register the method, so that it gathers the parameters"
NOTE = (
    "methods that run outside of the forward gather the model's own parameters (FSDP1 raises if "
    "they use them)"
)
LOST = (
    "gradients of a loss from such a method count (FSDP1 does not finish a backward that no forward of "
    "the root began, so they are lost or come late)"
)
DETAIL = (
    "All ranks have to call such a method, and equally often. `reshard()` after it frees the "
    "parameters, so that an optimizer step in between is not missed."
)


def rewrite(
    migration: Migration, source: Source, node: cst.Attribute, model: cst.BaseExpression
) -> None:
    """Register the method of the call `node(...)` where the model is sharded, if it needs that.

    model: the wrapped model in `node`.

    Raises:
        Blocked: the place is not known, or only some ranks call the method.
    """
    name = node.attr.value
    if any(around in migration.blocks.gathered for around in ancestors(source, node)):
        return
    if name not in GENERATES and not _runs_parts(migration, source, node):
        return
    if any(around in migration.blocks.replaced for around in ancestors(source, node)):
        # The modules have whole parameters there, and a registered method would gather them again.
        migration.methods.plain_uses.append((source, node))
        return
    calls = _constructors(migration, model)
    if not calls:
        raise _not_registered(source, node)
    if _on_some_ranks(migration, source, node):
        raise Blocked(source, node, METHOD_ON_SOME_RANKS(name=name))
    for call in calls:
        methods = migration.methods.by_call.setdefault(call, {})
        certain = _all_have_it(migration, call, node)
        methods[name] = methods.get(name, True) and certain
    migration.methods.uses.append((source, node, calls))
    _reshard_after(migration, source, node, model)
    migration.step(source, node, TITLE)
    migration.note(NOTE, source, node, detail=DETAIL)
    if _has_gradients(migration, source, node):
        migration.note(
            LOST, source, node, detail="Do not compare with a run of FSDP1.", unsafe=True
        )


def check_registered(migration: Migration) -> None:
    """Block on a method that the rewrite of its model's constructor calls did not register."""
    registered = {name for found in migration.methods.by_call.values() for name in found}
    for source, node in migration.methods.plain_uses:
        if node.attr.value in registered:
            blocker = Blocked(source, node, SUMMON_CALLS_IN_FULL_PRECISION())
            migration.blockers.append(blocker)
    for source, node, calls in migration.methods.uses:
        if not migration.methods.registered.issuperset(calls):
            migration.blockers.append(_not_registered(source, node))


def _not_registered(source: Source, node: cst.Attribute) -> Blocked:
    name = node.attr.value
    reason = GENERATE_OUTSIDE_FORWARD if name in GENERATES else PARTS_OUTSIDE_FORWARD
    return Blocked(source, node, reason(name=name))


# What the method does -----------------------------------------------------------------------------


def _runs_parts(migration: Migration, source: Source, node: cst.Attribute) -> bool:
    """Whether a method of the program's class calls submodules of its object."""
    for value in migration.values(node.value):
        inner = _unwrap(value) if isinstance(value, ModuleValue) else None
        if inner is None:
            continue
        if _calls_parts(inner, node.attr.value, set()):
            return True
        if node.attr.value in COMPUTES.get((inner.library_class or "").partition(".")[0], ()):
            return True
    call = source.parent(node)
    return any(_enters_parts(trace, event) for trace, event in _events(migration, call))


def _unwrap(value: ModuleValue) -> ModuleValue:
    """The module in the wrappers around it."""
    while value.wrapper and value.inner is not None:
        value = value.inner
    return value


def _calls_parts(module: ModuleValue, name: str, seen: set[str]) -> bool:
    """Whether a method, or a method that it calls on `self`, calls `self.<submodule>(...)`."""
    method = module.cls.lookup(name) if module.cls is not None else None
    if name in seen or not isinstance(method, Function):
        return False
    seen.add(name)
    for part in descend(method.node):
        func = part.func if isinstance(part, cst.Call) else None
        if not isinstance(func, cst.Attribute) or not isinstance(func.value, cst.Name):
            continue
        if func.value.value != "self" or module.cls is None:
            continue
        called = func.attr.value
        if module.cls.lookup(called) is None:
            if isinstance(module.attributes.get(called), ModuleValue | Unknown):
                return True
        elif called != "forward" and _calls_parts(module, called, seen):
            return True
    return False


def _events(migration: Migration, call: cst.CSTNode | None) -> Iterator[tuple[Trace, Called]]:
    for trace in migration.program.traces:
        for event in trace.of(Called):
            if _is_at(event, call):
                yield trace, event


def _has_gradients(migration: Migration, source: Source, node: cst.Attribute) -> bool:
    """Whether the program runs a backward directly after the method, which records gradients."""
    for trace, event in _events(migration, source.parent(node)):
        following = next(
            (x for x in trace.after(event, Called, BackwardRun) if not _runs_inside(event, x)), None
        )
        if (
            event.inside is None
            and event.grad is GradMode.ON
            and isinstance(following, BackwardRun)
        ):
            return True
    return False


def _runs_inside(event: Called, other: Event) -> bool:
    return isinstance(other, Called) and other.inside is not None and other.inside >= event.index


def _enters_parts(trace: Trace, event: Called) -> bool:
    """Whether a method enters a part other than by a call of the model itself."""
    groups = Groups(trace)
    return any(
        inner.module != event.module
        and not any(
            outer.module == event.module and outer.via == "call"
            for outer in groups.enclosing_calls(inner)
            if outer.index > event.index
        )
        for inner in groups.nested_calls(event)
    )


# Who calls it -------------------------------------------------------------------------------------


def _on_some_ranks(migration: Migration, source: Source, node: cst.Attribute) -> bool:
    """Whether only some ranks call the method, which has no result with FSDP1 either."""
    events = [event for _, event in _events(migration, source.parent(node))]
    if events:
        return any(perhaps_one_rank(event) for event in events)
    for around in ancestors(source, node):
        if isinstance(around, FunctionNode):
            break
        if isinstance(around, cst.If | cst.IfExp) and RANK_WORDS.search(source.code(around.test)):
            return True
    inside = set(descend(function_around(source, node)))
    reached = [
        event
        for trace in migration.program.traces
        for event in trace.events
        if isinstance(event.site, NodeSite) and event.site.node in inside
    ]
    return bool(reached) and all(perhaps_one_rank(event) for event in reached)


def _reshard_after(
    migration: Migration, source: Source, node: cst.Attribute, model: cst.BaseExpression
) -> None:
    """Free the root's parameters after the statement: FSDP2 keeps those of the root gathered.

    An optimizer step before the next backward would not reach the gathered values.
    """
    small = statement_of(source, node)
    line = source.parent(small)
    if not isinstance(small, cst.Assign | cst.AugAssign | cst.Expr) or not is_repeatable(model):
        return
    scopes = (cst.Lambda, cst.BaseComp)  # their variables are gone after the statement
    if not isinstance(line, cst.SimpleStatementLine) or _is_in(source, node, line, scopes):
        return
    assigned = [t.target for t in small.targets] if isinstance(small, cst.Assign) else []
    if any(source.code(target) == source.code(model) for target in assigned):
        return
    text = expression(migration, source, model)
    lines = [f"{text}.reshard()"]
    if migration.wrapping_of(model) != "always":
        kind = migration.need(source, "torch.distributed.fsdp", "FSDPModule", node)
        lines = [f"if isinstance({text}, {kind}):", f"\t{lines[0]}"]
    migration.rewrite.insert_after(source, line, lines)


def _is_in(
    source: Source, node: cst.CSTNode, line: cst.CSTNode, kinds: tuple[type[cst.CSTNode], ...]
) -> bool:
    """Whether a node is inside of a node of some kinds in its line."""
    for around in ancestors(source, node):
        if around is line:
            break
        if isinstance(around, kinds):
            return True
    return False


# Where the model is sharded -----------------------------------------------------------------------


def _constructors(migration: Migration, model: cst.BaseExpression) -> list[cst.Call]:
    """The constructor calls that may have wrapped a model."""
    ids = {id_ for value in migration.values(model) if (id_ := _wrapped_id(value))}
    sites = [
        event.site.node
        for trace in migration.program.traces
        for event in trace.of(Wrapped)
        if event.module in ids and isinstance(event.site, NodeSite)
    ]
    found = [site for site in dict.fromkeys(sites) if isinstance(site, cst.Call)]
    if not found and not ids:
        known = [call for _, call in external_wrapping.constructors(migration)]
        return known if len(known) == 1 else []
    return found


def _wraps_one(migration: Migration, call: cst.Call) -> bool:
    """Whether a constructor call wraps one model at most in each run."""
    return all(
        len({event.module for event in trace.of(Wrapped) if _is_at(event, call)}) <= 1
        for trace in migration.program.traces
    )


def _is_at(event: Event, call: cst.CSTNode | None) -> bool:
    return isinstance(event.site, NodeSite) and event.site.node is call


def _wrapped_id(value: object) -> str:
    while is_fsdp1(value) and isinstance(value, ModuleValue):  # type: ignore[arg-type]
        if value.wrapper == "fsdp1":
            return value.id
        value = value.inner
    return ""


def _all_have_it(migration: Migration, call: cst.Call, node: cst.Attribute) -> bool:
    """Whether every model that a constructor call wraps certainly has the method `node`."""
    name = node.attr.value
    module = call.args[0].value if call.args else None
    values = (
        [_unwrap(v) if isinstance(v, ModuleValue) else v for v in migration.values(module)]
        if module is not None
        else []
    )
    calls = migration.values(node.value) if _wraps_one(migration, call) else []
    having = {_unwrap(value).library_class for value in calls if isinstance(value, ModuleValue)}
    having.discard(None)
    return bool(values) and all(
        isinstance(value, ModuleValue)
        and (
            (value.cls is not None and value.cls.lookup(name) is not None)
            or value.library_class in having
            or (name == "generate" and (value.library_class or "").startswith("transformers."))
        )
        for value in values
    )
