"""`FSDP.apply(function)`, which runs a function on modules whose parameters are whole."""

from __future__ import annotations

import libcst as cst

from fsdplint.fixes.summon import writes
from fsdplint.interpreter.values import Function
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import APPLY_ON_WHOLE, APPLY_UNSEEN, APPLY_USE
from fsdplint.migration.context import Migration
from fsdplint.migration.rewriters import rewrites_member
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend
from fsdplint.trace import Called, Fsdp1Used

CONSTANTS = {"constant_", "zeros_", "ones_", "fill_", "zero_"}


@rewrites_member("apply")
def rewrite_apply(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Keep `model.apply(fn)`, which gathers the parameters in FSDP1, if `fn` does not need that.

    Raises:
        Blocked: `fn` may need whole parameters.
    """
    call = source.parent(node)
    if not isinstance(call, cst.Call) or call.func is not node or len(call.args) != 1:
        raise Blocked(source, node, APPLY_USE())
    functions = _functions(migration, call)
    if not functions:
        raise Blocked(source, node, APPLY_UNSEEN())
    if migration.blocks.replaced.intersection(ancestors(source, node)):
        migration.step(source, node, "Apply to whole parameters")
        return
    for function in functions:
        if not writes(function.body) and not _reads_parameters(function):
            continue
        if _constant(function) and not _is_called_before(migration, call):
            continue
        raise Blocked(
            source,
            node,
            APPLY_ON_WHOLE(),
        )
    migration.step(source, node, "Apply to the sharded model")


def sees_only_whole_parameters(migration: Migration, node: cst.CSTNode) -> bool:
    """Whether a node is a call of `apply` that does the same where modules have whole parameters.

    FSDP2 changes the class of a sharded module to a subclass, which a function must not tell apart.
    A function must not run the modules, either: they would gather their parameters once more.
    """
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    if node.func.attr.value != "apply" or not migration.wrapping_of(node.func.value):
        return False
    functions = _functions(migration, node) if len(node.args) == 1 else []
    return bool(functions) and not any(_asks_for_exact_class(f) or _runs(f) for f in functions)


def _functions(migration: Migration, call: cst.Call) -> list[cst.FunctionDef | cst.Lambda]:
    """The functions that `apply` gets; none if some of them cannot be seen."""
    values = migration.values(call.args[0].value)
    functions = [v.node for v in values if isinstance(v, Function)]
    return functions if len(functions) == len(values) else []


def _asks_for_exact_class(function: cst.CSTNode) -> bool:
    return any(
        (isinstance(part, cst.Call) and is_constant(part.func, "type"))
        or (isinstance(part, cst.Attribute) and part.attr.value == "__class__")
        for part in descend(function)
    )


def _runs(function: cst.FunctionDef | cst.Lambda) -> bool:
    """Whether a function calls its module, or a part of it."""
    names = {parameter.name.value for parameter in function.params.params}
    return any(
        isinstance(part, cst.Call)
        and (
            (isinstance(part.func, cst.Name) and part.func.value in names)
            or (isinstance(part.func, cst.Attribute) and part.func.attr.value == "forward")
        )
        for part in descend(function)
    )


def _reads_parameters(function: cst.CSTNode) -> bool:
    return any(
        isinstance(part, cst.Attribute)
        and part.attr.value in ("weight", "bias", "parameters", "named_parameters", "data", "grad")
        for part in descend(function)
    )


def _constant(function: cst.FunctionDef | cst.Lambda) -> bool:
    """Whether a function writes only constants into parameters."""
    for part in descend(function):
        if isinstance(part, cst.Call) and isinstance(part.func, cst.Attribute):
            name = part.func.attr.value
            if name.endswith("_") and not name.endswith("__") and name not in CONSTANTS:
                return False
        if isinstance(part, cst.AugAssign | cst.Subscript):
            return False
        if isinstance(part, cst.AssignTarget) and isinstance(part.target, cst.Attribute):
            return False
    names = {p.attr.value for p in descend(function) if isinstance(p, cst.Attribute)}
    return bool(names & CONSTANTS) and not names & {"copy_", "normal_", "uniform_"}


def _is_called_before(migration: Migration, call: cst.Call) -> bool:
    """Whether the model may have been called before, so that its root may be gathered."""
    for trace in migration.program.traces:
        for event in trace.of(Fsdp1Used):
            if isinstance(event.site, NodeSite) and event.site.node is call:
                if any(True for _ in trace.before(event, Called)):
                    return True
    return False
