"""Constants in the place of settings that have the same value everywhere."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.direct_form.attributes import attribute_of
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.direct_form.relevance import Depth
from fsdplint.migration.training.inner_names import INNER
from fsdplint.syntax.arguments import is_constant


def rewrite_argument(inlining: Inlining, node: cst.Arg) -> bool:
    """Put a constant in the place of an argument that stands for it.

    That is a flag of a call of FSDP1, and a string with the name of FSDP1's inner module.
    """
    value = node.value
    if node.star or not isinstance(value, cst.Name | cst.Attribute | cst.Subscript):
        return False
    attribute = attribute_of(inlining, value) if isinstance(value, cst.Attribute) else None
    meaning = inlining.meanings.of(value)
    constant = meaning.node if attribute is None else attribute.value
    if constant is value or not (_is_flag(inlining, node, constant) or _is_inner_name(constant)):
        return False
    if not _is_inner_name(constant):
        pass  # a setting stays: a command line or a file may set it by its name
    elif attribute is None:
        inlining.use(meaning)
    elif isinstance(value, cst.Attribute):
        inlining.use_attribute(attribute.klass, attribute.assignment, value)
    inlining.put(value, inlining.text(constant))
    return True


def _is_flag(inlining: Inlining, node: cst.Arg, constant: cst.BaseExpression) -> bool:
    """Whether an argument of a call of FSDP1 is a constant flag."""
    call = inlining.source.parent(node)
    if inlining.depth.value < Depth.CONSTANTS.value or not is_constant(constant, "True", "False"):
        return False
    return bool(inlining.migration.called_name(call))


def _is_inner_name(constant: cst.BaseExpression) -> bool:
    """Whether a constant is a string with the name of FSDP1's inner module."""
    return isinstance(constant, cst.SimpleString) and INNER in constant.value
