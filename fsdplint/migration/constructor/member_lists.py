"""Policies that pick the modules of a list: `lambda module: module in model.blocks`.

Where the units are certainly all modules of the list, a loop over the list shards them.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import ModuleValue, Sequence, Value
from fsdplint.migration.context import Migration
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import NodeSite
from fsdplint.syntax.layout import descend
from fsdplint.trace import Trace, Wrapped


def list_of_units(
    migration: Migration, call: cst.CSTNode, test: cst.BaseExpression, variable: str
) -> cst.BaseExpression | None:
    """The list whose modules are the units of a constructor call; None if that is not certain.

    Args:
        migration: the migration.
        call: the call.
        test: the body of the policy's function.
        variable: its parameter.
    """
    modules = _tested_list(test, variable)
    if modules is None:
        return None
    lists = [_modules_of(value) for value in migration.values(modules)]
    wraps = [
        (trace, event)
        for trace in migration.program.traces
        for event in trace.of(Wrapped)
        if isinstance(event.site, NodeSite) and event.site.node is call
    ]
    certain = all(
        event.units and sorted(event.units) in lists and _are_apart(trace, event.units)
        for trace, event in wraps
    )
    return modules if wraps and certain else None


def _tested_list(test: cst.BaseExpression, variable: str) -> cst.BaseExpression | None:
    """`modules` in `variable in modules`, where it is a plain name or a method without arguments."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    (comparison,) = test.comparisons
    if not isinstance(comparison.operator, cst.In) or not isinstance(test.left, cst.Name):
        return None
    modules = comparison.comparator
    named = modules.func if isinstance(modules, cst.Call) and not modules.args else modules
    names = {part.value for part in descend(modules) if isinstance(part, cst.Name)}
    plain = is_repeatable(named) and variable not in names
    return modules if plain and test.left.value == variable else None


def _modules_of(value: Value) -> list[str] | None:
    """The sorted modules of a list; None if they are not known."""
    found = value.elements if isinstance(value, ModuleValue) else value
    if not isinstance(found, Sequence) or found.open:
        return None
    modules = [one.id for one in found.items if isinstance(one, ModuleValue)]
    return sorted(modules) if len(modules) == len(found.items) == len(set(modules)) else None


def _are_apart(trace: Trace, units: tuple[str, ...]) -> bool:
    """Whether no unit holds another one, so that they can be sharded in any order."""
    return not any(one != other and trace.contains(one, other) for one in units for other in units)
