"""Convert `model.clip_grad_norm_(...)` to `torch.nn.utils.clip_grad_norm_(model.parameters(),
...)`, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import library_name, receiver, uses
from fsdplint.fixes.wrapper_options import forget_name
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import function_around
from fsdplint.trace.torch_versions import WHOLE_NORM_SINCE

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

CLIP = "torch.nn.utils.clip_grad_norm_"
TAKES_DTENSOR = {"item", "full_tensor", "to_local"}


def clip_with_utils(rewrite: Rewrite, program: Program, source: Source, call: cst.Call) -> bool:
    """Rewrite the method call; adds `.full_tensor()` if the result must be a plain tensor.

    Returns:
        Whether the call could be rewritten.
    """
    model = receiver(source, call)
    if model is None or not call.args:
        return False
    function = library_name(rewrite, source, CLIP, call)
    rewrite.replace(source, call.func, function)
    rewrite.insert(source, source.span(call.args[0])[0], f"{model}.parameters(), ")
    if plain_result_wanted(program, source, call):
        rewrite.insert(source, source.span(call)[1], ".full_tensor()")
    return True


def clip_with_method(rewrite: Rewrite, program: Program, source: Source, call: cst.Call) -> bool:
    """Rewrite the function's call over `model.parameters()` to a call of FSDP1's method.

    Returns:
        Whether the call could be rewritten.
    """
    from fsdplint.interpreter.values import ModuleValue

    if len(call.args) < 2 or any(arg.star for arg in call.args):
        return False
    first, *others = call.args
    keywords = [arg.keyword.value for arg in others if arg.keyword is not None]
    if len(others) > 2 or set(keywords) - {"max_norm", "norm_type"}:
        return False
    parameters = first.value
    if first.keyword is not None or not isinstance(parameters, cst.Call) or parameters.args:
        return False
    method = parameters.func
    if not isinstance(method, cst.Attribute) or method.attr.value != "parameters":
        return False
    values = program.values(method.value)
    if not values or not all(isinstance(v, ModuleValue) and v.wrapper == "fsdp1" for v in values):
        return False
    rewrite.replace(source, call.func, f"{source.code(method.value)}.clip_grad_norm_")
    rewrite.delete(source, source.span(first)[0], source.span(others[0])[0])
    forget_name(rewrite, source, call.func)
    return True


def plain_result_wanted(program: Program, source: Source, call: cst.CSTNode) -> bool:
    """Whether the result of a call has uses that a DTensor does not support.

    With torch 2.10, `.item()` of the norm is right on a DTensor; before, it returns only this
    rank's part. Formatting it raises. Uses in other code are unknown.
    """
    torch = program.options.target
    fine = TAKES_DTENSOR
    if torch is not None and torch.predates(WHOLE_NORM_SINCE):
        fine = TAKES_DTENSOR - {"item"}
    parent = source.parent(call)
    if isinstance(parent, cst.Expr):
        return False
    if isinstance(parent, cst.Attribute):
        return parent.attr.value not in fine
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        target = parent.targets[0].target
        if isinstance(target, cst.Name):
            scope = function_around(source, call)
            others = [use for use in uses(scope, target.value) if use is not target]
            return any(not _is_fine(source, use, fine) for use in others)
    return True


def _is_fine(source: Source, use: cst.Name, fine: set[str]) -> bool:
    parent = source.parent(use)
    if isinstance(parent, cst.AssignTarget):  # assigned again, e.g. in the other branch
        return True
    return isinstance(parent, cst.Attribute) and parent.attr.value in fine
