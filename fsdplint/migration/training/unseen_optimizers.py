"""Optimizers that code out of sight gives before the model is wrapped.

`model, optimizer = library.build(config)` gives an optimizer over parameters in whose place FSDP2 puts
new ones, so its steps would change nothing. What has the methods `step` and `zero_grad` is an optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.edits.places import blocks_around
from fsdplint.interpreter.values import ModuleValue, OptimizerValue
from fsdplint.migration.analysis.value_uses import Uses
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.program import OPTIMIZER_GIVEN_FIRST
from fsdplint.migration.context import Migration, is_fsdp1
from fsdplint.migration.names import FSDP
from fsdplint.migration.text import on_one_line
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import OptimizerBuilt, Trace, Wrapped

METHODS = {"step", "zero_grad"}


def check(migration: Migration) -> None:
    """Add a blocker for each call that gives such an optimizer."""
    seen: set[cst.CSTNode] = set()
    for trace in migration.program.traces:
        for wrapped in trace.of(Wrapped):
            if not _has_optimizer(trace, wrapped):
                for source, call in _calls_before(migration, wrapped):
                    if call not in seen and not migration.is_blocked(call):
                        seen.add(call)
                        reason = OPTIMIZER_GIVEN_FIRST(code=on_one_line(source.code(call)))
                        migration.blockers.append(Blocked(source, call, reason))


def _has_optimizer(trace: Trace, wrapped: Wrapped) -> bool:
    """Whether a run shows an optimizer of the model."""
    return any(
        trace.related(module, wrapped.inner)
        for built in trace.of(OptimizerBuilt)
        for module in built.modules
    )


def _calls_before(migration: Migration, wrapped: Wrapped) -> Iterator[tuple[Source, cst.Call]]:
    """The calls that give an optimizer of a model before it is wrapped, in the same block."""
    site = wrapped.site
    if not isinstance(site, NodeSite) or migration.called_name(site.node) != FSDP:
        return
    for frame in (*wrapped.stack, site):
        if not isinstance(frame, NodeSite) or not isinstance(frame.node, cst.Call):
            continue
        models = _models(migration, frame, wrapped)
        for block, statement in blocks_around(frame) if models else ():
            for earlier in block.body[: list(block.body).index(statement)]:
                made = _assignment(earlier)
                if made is None:
                    continue
                targets, call = made
                kept = [one for one in targets if not _is_set_again(frame, one)]
                if _gives_optimizer(migration, frame.source, kept, call, models):
                    yield frame.source, call


def _models(migration: Migration, frame: NodeSite, wrapped: Wrapped) -> set[str]:
    """The texts by which a call gets the model that is wrapped in it."""
    assert isinstance(frame.node, cst.Call)
    return {
        frame.source.code(arg.value)
        for arg in frame.node.args
        if isinstance(arg.value, cst.Name | cst.Attribute)
        and any(
            isinstance(value, ModuleValue) and value.id == wrapped.inner
            for value in migration.values(arg.value)
        )
    }


def _assignment(statement: cst.CSTNode) -> tuple[list[cst.BaseExpression], cst.Call] | None:
    """The targets of an assignment, one by one, and the call that gives their values."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    assign = statement.body[0]
    if not isinstance(assign, cst.Assign) or not isinstance(assign.value, cst.Call):
        return None
    targets: list[cst.BaseExpression] = []
    for one in assign.targets:
        targets += _parts(one.target)
    return targets, assign.value


def _texts_of_targets(source: Source, call: cst.Call) -> set[str]:
    made = _assignment(source.statement(call))
    return {source.code(one) for one in made[0]} if made is not None else set()


def _is_set_again(frame: NodeSite, target: cst.BaseExpression) -> bool:
    """Whether code below a wrapping gives a variable or an attribute another value."""
    source, start = frame.source, frame.source.span(frame.node)[0]
    code = source.code(target)
    return any(
        isinstance(node, cst.AssignTarget)
        and source.span(node)[0] > start
        and code in map(source.code, _parts(node.target))
        for node in source.descend(source.tree)
    )


def _parts(target: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(target, cst.Tuple):
        return [element.value for element in target.elements]
    return [target]


def _gives_optimizer(
    migration: Migration,
    source: Source,
    targets: list[cst.BaseExpression],
    call: cst.Call,
    models: set[str],
) -> bool:
    """Whether a call makes a model, or gets one, and gives an optimizer that no file shows.

    targets: those of the call's assignment that keep their values.
    """
    if any(map(is_fsdp1, migration.values(call))):
        return False
    given = [arg.value for arg in call.args]
    got = {source.code(one) for one in given}
    got |= {
        source.code(one.func.value)
        for one in given
        if isinstance(one, cst.Call) and isinstance(one.func, cst.Attribute)
    }
    if not models & (got | _texts_of_targets(source, call)):
        return False
    return any(
        source.code(one) not in models and _is_optimizer(migration, source, one) for one in targets
    )


def _is_optimizer(migration: Migration, source: Source, target: cst.BaseExpression) -> bool:
    """Whether the program calls the methods of an optimizer on what a target gets."""
    if not isinstance(target, cst.Name | cst.Attribute):
        return False
    called = set()
    for use in Uses(migration).of_target(source, target):
        if any(isinstance(v, OptimizerValue | ModuleValue) for v in migration.values(use.node)):
            return False
        place = use.place
        if isinstance(place, cst.Attribute) and isinstance(use.source.parent(place), cst.Call):
            called.add(place.attr.value)
    return called >= METHODS
