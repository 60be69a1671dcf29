"""Code that the interpreter does not follow: unseen functions and branches that are never taken."""

from __future__ import annotations

from pathlib import Path
from typing import TypeGuard

import libcst as cst

from fsdplint.interpreter.values import (
    Bound,
    Class,
    Function,
    Method,
    OptimizerValue,
    Partial,
    Value,
)
from fsdplint.migration.analysis.error_fallbacks import is_fallback
from fsdplint.migration.analysis.unreached_code import UnreachedNames
from fsdplint.migration.analysis.variables import arm_of_wrapping
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.program import CALL_NOT_REACHED, CODE_NOT_REACHED, MODEL_HANDED_OUT
from fsdplint.migration.context import Migration, attributes, is_fsdp1, nodes
from fsdplint.migration.symbols import CHANGED
from fsdplint.source.fsdp_words import has_fsdp
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import symbols_in

FOLLOWED = (Function, Class, Bound, Partial, Method)
Known = dict[tuple[cst.CSTNode, str], int]
FALLBACK = "after an error, this is still the state of one rank's part of the optimizer"
FALLBACK_DETAIL = (
    "FSDP1 and FSDP2 cut the parts differently, so that neither loads those of the other."
)


def check_passed_models(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Block where an unseen function that mentions FSDP gets a model that FSDP1 wraps."""
    for source in migration.program.sources.values():
        if not has_fsdp(source.text):
            continue  # computing the positions of names is the most expensive part of a file
        symbols = {**symbols_in(source), **migration.symbols}  # with aliases, that is
        wrapped = _wrapped_names(migration, source)
        for node in nodes(source):
            if isinstance(node, cst.Call) and _speaks_of_fsdp(source, node, symbols):
                if any(isinstance(value, FOLLOWED) for value in migration.values(node.func)):
                    continue
                if not migration.values(node.func) and _is_defined_here(migration, node.func):
                    continue
                if _import_fails(migration, source, node.func):
                    continue
                if any(
                    migration.wrapping_of(arg.value)
                    or _is_unreached(migration, source, arg.value, wrapped)
                    for arg in node.args
                ):
                    name = f"`{source.code(node.func)}`"
                    home = symbols.get(node.func, "").rpartition(".")[0]
                    if home and home not in name:
                        name += f" of `{home}`"
                    reason = MODEL_HANDED_OUT(function=name)
                    migration.blockers.append(Blocked(source, node, reason))


def _is_defined_here(migration: Migration, func: cst.BaseExpression) -> bool:
    """Whether the program defines a function of this name, or a class that gets a wrapped model."""
    name = func.attr if isinstance(func, cst.Attribute) else func
    if not isinstance(name, cst.Name):
        return False
    found = [
        part
        for source in migration.program.sources.values()
        for part in source.tree.body
        if isinstance(part, cst.FunctionDef | cst.ClassDef) and part.name.value == name.value
    ]
    if any(isinstance(part, cst.FunctionDef) for part in found):
        return True
    made = [inner for part in found for inner in part.body.body if _is_init(inner)]
    return len(found) == len(made) == 1 and _gets_wrapped_model(migration, made[0])


def _is_init(node: cst.CSTNode) -> TypeGuard[cst.FunctionDef]:
    return isinstance(node, cst.FunctionDef) and node.name.value == "__init__"


def _import_fails(migration: Migration, source: Source, func: cst.BaseExpression) -> bool:
    """Whether a function is imported from a file that does not define it: the import fails."""
    bindings = bindings_of(source)
    if not isinstance(func, cst.Name):
        return False
    scope = bindings.owner(bindings.scope_at(func), func.value)
    items = [item for item in scope.imports if item.local == func.value] if scope else []
    if len(items) != 1 or scope is None or scope.node is not source.tree or not items[0].name:
        return False
    path = Path(source.path).with_name(items[0].module.lstrip(".") + ".py")
    home = next((s for s in migration.program.sources.values() if Path(s.path) == path), None)
    if home is None or any(isinstance(part, cst.Try) for part in source.tree.body):
        return False
    top = bindings_of(home).scope_at(home.tree)
    names = {*top.others, *(item.local for item in top.imports)}
    return not top.star and not names & {items[0].name, "__getattr__"}


def _speaks_of_fsdp(source: Source, node: cst.Call, symbols: dict[cst.CSTNode, str]) -> bool:
    name = symbols.get(node.func, "")
    if name.startswith("torch."):
        return False
    words = [name or dotted_name(node.func) or source.code(node.func)]
    words += [arg.keyword.value for arg in node.args if arg.keyword is not None]
    return any(has_fsdp(word) for word in words)


def check_branches(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Block on uses of the model in branches that the program never takes by default.

    For example `if save:` with a setting that is False unless the command line sets it.
    """
    for source in migration.sources:
        wrapped = _wrapped_names(migration, source)
        if not wrapped:
            continue
        for node in attributes(source):
            if migration.in_other_arm(node) or node in migration.uncalled_nodes:
                continue
            if migration.is_excluded(node):
                continue
            if node.attr.value in CHANGED and _is_unreached(migration, source, node.value, wrapped):
                text = source.code(node)
                reason = CODE_NOT_REACHED(code=text)
                migration.blockers.append(Blocked(source, node, reason))
        for call in nodes(source):
            if isinstance(call, cst.Call) and isinstance(call.func, cst.Name):
                given = any(_is_unreached(migration, source, a.value, wrapped) for a in call.args)
                if given and _changes(migration, call.func.value):
                    arm = arm_of_wrapping(
                        source, call, [node for at, node in calls if at is source]
                    )
                    if arm is False or (
                        arm and _gets_wrapped_everywhere(migration, call.func.value)
                    ):
                        continue
                    reason = CALL_NOT_REACHED(function=call.func.value)
                    migration.blockers.append(Blocked(source, call, reason))


def check_optimizers(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Block on optimizer states of wrapped models in code that is not reached."""
    found = UnreachedNames(migration.sources, migration.values, _is_optimizer).found
    for source in migration.sources:
        for node in attributes(source):
            if node.attr.value not in ("state_dict", "load_state_dict") or node.value not in found:
                continue
            if migration.is_changed(source, node) or migration.in_other_arm(node):
                continue
            if migration.is_excluded(node):
                continue
            if is_fallback(migration, source, node):
                migration.note(FALLBACK, source, node, detail=FALLBACK_DETAIL)
                continue
            text = source.code(node)
            reason = CODE_NOT_REACHED(code=text)
            migration.blockers.append(Blocked(source, node, reason))


def _is_optimizer(value: Value) -> bool:
    return isinstance(value, OptimizerValue) and any(
        is_fsdp1(module) or (module.inner is not None and is_fsdp1(module.inner))
        for module in value.modules
    )


def _wrapped_names(migration: Migration, source: Source) -> Known:
    """The names of wrapped models in each function, with the offset of their first use."""
    known: Known = {}
    for node in [*attributes(source), *nodes(source)]:
        if isinstance(node, cst.Name | cst.Attribute) and migration.wrapping_of(node):
            key = function_around(source, node), source.code(node)
            start = source.span(node)[0]
            known[key] = min(start, known.get(key, start))
    return known


def _is_unreached(
    migration: Migration, source: Source, node: cst.BaseExpression, wrapped: Known
) -> bool:
    """Whether a name of a wrapped model has no value at a node because no run reaches it."""
    if not isinstance(node, cst.Name | cst.Attribute) or migration.values(node):
        return False
    if migration.wrapping_of(node):
        return False
    first = wrapped.get((function_around(source, node), source.code(node)))
    return first is not None and first < source.span(node)[0]


def _gets_wrapped_everywhere(migration: Migration, name: str) -> bool:
    """Whether a function gets a wrapped model in every call that a run reaches."""
    found = [
        node
        for source in migration.sources
        for node in nodes(source)
        if isinstance(node, cst.FunctionDef) and node.name.value == name
    ]
    if len(found) != 1:
        return False
    return _gets_wrapped_model(migration, found[0])


def _gets_wrapped_model(migration: Migration, function: cst.FunctionDef) -> bool:
    """Whether a parameter of a function is a wrapped model in every call that a run reaches."""
    names = {param.name.value for param in function.params.params}
    uses = [
        migration.wrapping_of(node)
        for node in descend(function.body)
        if isinstance(node, cst.Name) and node.value in names and migration.values(node)
    ]
    return any(uses) and "sometimes" not in uses


def _changes(migration: Migration, name: str) -> bool:
    """Whether a function of these files uses an attribute that differs in FSDP2."""
    return any(
        isinstance(node, cst.FunctionDef)
        and node.name.value == name
        and any(isinstance(x, cst.Attribute) and x.attr.value in CHANGED for x in descend(node))
        for source in migration.sources
        for node in nodes(source)
    )
