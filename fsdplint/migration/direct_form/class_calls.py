"""Methods of a model that are called on FSDP1's class: `FSDP.load_state_dict(model, state)`."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.context import is_fsdp1
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.names import FSDP, STATIC_METHODS
from fsdplint.migration.text import atom


def rewrite_call(inlining: Inlining, node: cst.Call) -> bool:
    """`FSDP.method(model, x)` becomes `model.method(x)`; whether a call has this form."""
    migration = inlining.migration
    owner, _, method = migration.fsdp1(node.func).partition(".")
    if owner != FSDP or not method or method in STATIC_METHODS or method.startswith("_"):
        return False
    if not node.args or node.args[0].star or node.args[0].keyword is not None:
        return False
    model = node.args[0].value
    values = migration.values(model)
    if not values or not all(map(is_fsdp1, values)):
        return False
    given = []
    for arg in node.args[1:]:
        name = f"{arg.keyword.value}=" if arg.keyword is not None else arg.star
        given.append(name + inlining.text(arg.value))
    inlining.put_call(node, f"{atom(inlining.text(model))}.{method}", given)
    return True
