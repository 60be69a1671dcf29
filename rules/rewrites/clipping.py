"""`model.clip_grad_norm_(...)` to `torch.nn.utils.clip_grad_norm_(model.parameters(), ...)`."""

from __future__ import annotations

import libcst as cst

from fsdplint.program.source import Source
from fsdplint.rewrite import Rewrite
from fsdplint.rules.rewrites.syntax import function_around, library_name, receiver, uses

CLIP = "torch.nn.utils.clip_grad_norm_"
TAKES_DTENSOR = {"item", "full_tensor", "to_local"}


def clip_with_utils(rewrite: Rewrite, source: Source, call: cst.Call) -> bool:
    """Rewrite the method call; `.full_tensor()` is added where a plain tensor is wanted.

    Returns whether it could be done.
    """
    model = receiver(source, call)
    if model is None or not call.args:
        return False
    function = library_name(rewrite, source, CLIP, call)
    rewrite.replace(source, call.func, function)
    rewrite.insert(source, source.span(call.args[0])[0], f"{model}.parameters(), ")
    if plain_result_wanted(source, call):
        rewrite.insert(source, source.span(call)[1], ".full_tensor()")
    return True


def plain_result_wanted(source: Source, call: cst.CSTNode) -> bool:
    """Whether the result of a call is used for more than what a DTensor does as well.

    `.item()` of the norm is right on a DTensor; formatting it raises, and what other code makes of
    it is not known.
    """
    parent = source.parent(call)
    if isinstance(parent, cst.Expr):
        return False
    if isinstance(parent, cst.Attribute):
        return parent.attr.value not in TAKES_DTENSOR
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        target = parent.targets[0].target
        if isinstance(target, cst.Name):
            scope = function_around(source, call)
            others = [use for use in uses(scope, target.value) if use is not target]
            return any(_more_than_item(source, use) for use in others)
    return True


def _more_than_item(source: Source, use: cst.Name) -> bool:
    parent = source.parent(use)
    if isinstance(parent, cst.AssignTarget):  # bound again, e.g. in the other branch
        return False
    return not (isinstance(parent, cst.Attribute) and parent.attr.value in TAKES_DTENSOR)
