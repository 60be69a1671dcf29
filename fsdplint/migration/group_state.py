"""Differences between FSDP2's groups and FSDP1's units: shared weights, and attributes of gathered
parameters.
"""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis import tied_weights
from fsdplint.migration.analysis.gathered import computes, left_gathered
from fsdplint.migration.analysis.units import Units
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import (
    REQUIRES_GRAD_WHILE_GATHERED,
    WEIGHTS_PERHAPS_TIED_IN_UNITS,
)
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.reshard_loop import has_place, reshard_loop
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend, statement_of
from fsdplint.trace import Called, RequiresGradSet, Site

TITLE = "Reshard before `requires_grad` is set"


def check_tied_weights(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Block on weights that modules of different units share or may share: FSDP2 rejects them."""
    for blocker in tied_weights.obstacles(migration.program):
        perhaps = blocker.blocker is WEIGHTS_PERHAPS_TIED_IN_UNITS
        if perhaps and blocker.node in migration.policies.keep_ties:
            continue  # another policy of this call may certainly put them into two units
        if not migration.is_blocked(blocker.node):
            migration.blockers.append(blocker)


# `requires_grad` of parameters that a forward under no_grad has left gathered ---------------------


def check_requires_grad(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Reshard before `requires_grad` is set on parameters that may be gathered.

    After a forward, FSDP2 keeps the root's group gathered, and every group that does not reshard. A
    backward reshards them; an evaluation has no backward. Attributes that are set on gathered
    parameters are lost when these are freed.
    """
    done: set[cst.CSTNode] = set()
    for trace in migration.program.traces:
        units = Units(trace)
        for event in trace.of(RequiresGradSet):
            site = event.site
            if not isinstance(site, NodeSite) or site.node in done:
                continue
            if site.source not in migration.program.sources.values():
                continue
            parts = _gathered_parts(units, event)
            if not parts or not left_gathered(units, event, event.modules[0]):
                continue
            if _reshard(migration, units, site, parts):
                done.add(site.node)
            elif not _reshard_in_caller(migration, units, event, parts):
                done.add(site.node)
                reason = REQUIRES_GRAD_WHILE_GATHERED()
                migration.blockers.append(Blocked(site.source, site.node, reason))


def _gathered_parts(units: Units, event: RequiresGradSet) -> list[str]:
    """The modules whose own parameters an event sets, in wrapped units that may stay gathered."""
    trace = units.trace
    found = []
    for module in event.modules:
        for part in trace.submodules(module):
            wrap = units.outermost_wrap(part)
            info = trace.modules.get(part)
            if wrap is None or wrap.index > event.index or info is None or info.wrapper:
                continue
            if info.own_parameters is not False and units.may_stay_gathered(part):
                found.append(part)
    return found


def _reshard(migration: Migration, units: Units, site: NodeSite, parts: list[str]) -> bool:
    """Insert a loop that reshards the units of the parts. Returns False if they are not known."""
    source = site.source
    if source not in migration.sources:
        return False
    statement: cst.CSTNode = statement_of(source, site.node)
    target = _base(site.node)
    for outer in ancestors(source, site.node):
        if isinstance(outer, cst.For):
            statement, target = outer, _base(outer.iter)
            break
        if isinstance(outer, cst.FunctionDef | cst.ClassDef | cst.While):
            break
    while target is not None:
        if _holds(migration, units, target, parts):
            _insert(migration, source, statement, target)
            migration.step(source, site.node, TITLE)
            return True
        target = target.value if isinstance(target, cst.Attribute) else None
    return False


def _reshard_in_caller(
    migration: Migration, units: Units, event: RequiresGradSet, parts: list[str]
) -> bool:
    """Insert the loop before the innermost call on the way to an event that has the model at hand.

    The model must not run in that call, which might gather the parameters again.
    """
    called = [one for one in units.trace.of(Called) if computes(units.trace, one)]
    for site in reversed(event.stack):
        if not isinstance(site, NodeSite) or site.source not in migration.sources:
            continue
        source, statement = site.source, statement_of(site.source, site.node)
        if any(site.node in _nodes(one.stack) for one in called) or not has_place(
            source, site.node
        ):
            return False
        for target in descend(site.node):
            if isinstance(target, cst.Name | cst.Attribute):
                if _holds(migration, units, target, parts):
                    if migration.add_helper(f"reshard {source.path}", str(source.span(statement))):
                        _insert(migration, source, statement, target)
                        migration.step(source, site.node, TITLE)
                    return True
    return False


def _nodes(stack: Iterable[Site]) -> list[cst.CSTNode]:
    return [one.node for one in stack if isinstance(one, NodeSite)]


def _holds(
    migration: Migration, units: Units, target: cst.BaseExpression, parts: list[str]
) -> bool:
    """Whether an expression has modules that certainly hold the units of some parts.

    The wrapped model holds all of its units, also those that are not known.
    """
    wraps = [units.outermost_wrap(part) for part in parts]
    owners = {
        units.unit(part) or (wrap.inner if wrap is not None else None)
        for part, wrap in zip(parts, wraps, strict=True)
    }
    held = {
        part
        for value in migration.values(target)
        if isinstance(value, ModuleValue)
        for part in units.trace.submodules(value.id)
    }
    return None not in owners and owners <= held and is_repeatable(target)


def _insert(
    migration: Migration, source: Source, statement: cst.CSTNode, target: cst.BaseExpression
) -> None:
    text = expression(migration, source, target)
    lines = reshard_loop(migration, source, statement, text)
    migration.rewrite.insert_before(source, statement, lines)


def _base(node: cst.CSTNode) -> cst.BaseExpression | None:
    """The object whose parameters an expression reads or an assignment sets."""
    if isinstance(node, cst.Assign):
        node = node.targets[0].target
    if isinstance(node, cst.Expr):
        node = node.value
    while isinstance(node, cst.Call):
        if not isinstance(node.func, cst.Attribute):
            if not node.args:
                return None
            node = node.args[0].value  # list(model.parameters())
        else:
            node = node.func.value
    return node if isinstance(node, cst.Name | cst.Attribute) else None
