"""Code that sets fields of a `MixedPrecision`, or reads those that FSDP2's policy does not have."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import LibraryObject
from fsdplint.migration import symbols
from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import PRECISION_FIELD_READ, PRECISION_FIELD_SET
from fsdplint.migration.context import Migration, attributes
from fsdplint.migration.facts import Precision
from fsdplint.source.source import NodeSite, Source

FIELDS = (
    "param_dtype",
    "reduce_dtype",
    "buffer_dtype",
    "keep_low_precision_grads",
    "cast_forward_inputs",
    "cast_root_forward_inputs",
)
REMOVED_FIELDS = ("buffer_dtype", "keep_low_precision_grads", "cast_root_forward_inputs")


def rewrite(migration: Migration, source: Source, known: Precision) -> None:
    """Replace the field by one of FSDP2's policy that always has the same value.

    Raises:
        Blocked: no field has, or the program sets a field.
    """
    for node in attributes(source):
        if node.attr.value not in FIELDS or node in migration.symbols:
            continue
        is_set = isinstance(source.parent(node), cst.AssignTarget | cst.AugAssign | cst.AnnAssign)
        if not is_set and node.attr.value not in REMOVED_FIELDS:
            continue
        calls = _precision_calls(migration, source, node.value)
        if not calls:
            continue
        if is_set:
            raise Blocked(source, node, PRECISION_FIELD_SET(field=node.attr.value))
        same = set.intersection(*(set(known.equal_fields.get(call, ())) for call in calls))
        if node.attr.value != "buffer_dtype" or not same:
            reason = PRECISION_FIELD_READ(
                field=node.attr.value, advice=symbols.advice_on(f"MixedPrecision.{node.attr.value}")
            )
            raise Blocked(source, node, reason)
        field = "reduce_dtype" if "reduce_dtype" in same else "param_dtype"
        migration.substitute(source, node.attr, field)


def _precision_calls(
    migration: Migration, source: Source, node: cst.BaseExpression
) -> list[cst.Call]:
    """The calls of `MixedPrecision` that make an object."""
    found: list[cst.CSTNode] = []
    if isinstance(node, cst.Name):
        found += [item.value for item in definitions(source, node) or ()]
    for value in migration.values(node):
        if isinstance(value, LibraryObject) and isinstance(value.created_at, NodeSite):
            found.append(value.created_at.node)
    calls = (one for one in found if migration.called_name(one) == "MixedPrecision")
    return list(dict.fromkeys(one for one in calls if isinstance(one, cst.Call)))
