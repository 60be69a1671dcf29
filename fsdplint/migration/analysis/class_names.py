"""Questions that compare the name of a class with that of FSDP1's.

type(module).__name__ == "FullyShardedDataParallel"
"FullyShardedDataParallel" in module.__class__.__name__
type(module).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel")
type(module).__name__ == FSDP.__name__
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.names import FSDP, fsdp1_name
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import elements, is_constant
from fsdplint.syntax.qualified_names import symbol_of


@dataclass(frozen=True)
class Question:
    """A comparison of the name of a class.

    Attributes:
        module: the object whose class it is.
        name: the expression that gives the name.
        others: the other names that would do.
        negated: whether the answer is the opposite.
    """

    module: cst.BaseExpression
    name: cst.BaseExpression
    others: tuple[cst.BaseExpression, ...] = ()
    negated: bool = False


def class_questions(source: Source) -> Iterator[tuple[cst.Comparison, Question]]:
    """The questions of a file."""
    for node in source.descend(source.tree) if FSDP in source.text else ():
        question = class_question(source, node) if isinstance(node, cst.Comparison) else None
        if question is not None and isinstance(node, cst.Comparison):
            yield node, question


def class_question(source: Source, node: cst.Comparison) -> Question | None:
    """The question that a comparison asks, None if it is another one."""
    if len(node.comparisons) != 1:
        return None
    left, (only,) = node.left, node.comparisons
    right, negated = only.comparator, isinstance(only.operator, cst.NotEqual | cst.NotIn)
    if isinstance(only.operator, cst.Equal | cst.NotEqual):
        for name, text in ((left, right), (right, left)):
            module = _module_of(name)
            if module is not None and _is_name(source, text):
                return Question(module, name, negated=negated)
    if not isinstance(only.operator, cst.In | cst.NotIn):
        return None
    module = _module_of(right)
    if module is not None and _is_name(source, left):
        return Question(module, right, negated=negated)
    module, parts = _module_of(left), elements(right)
    others = tuple(part for part in parts or () if not _is_name(source, part))
    if module is None or not parts or len(others) == len(parts):
        return None
    return Question(module, left, others, negated)


def _module_of(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The object in `type(x).__name__` and `x.__class__.__name__`."""
    if not isinstance(node, cst.Attribute) or node.attr.value not in ("__name__", "__qualname__"):
        return None
    held = node.value
    if isinstance(held, cst.Attribute):
        return held.value if held.attr.value == "__class__" else None
    if not isinstance(held, cst.Call) or not is_constant(held.func, "type"):
        return None
    return held.args[0].value if len(held.args) == 1 and not held.args[0].star else None


def _is_name(source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression is the name of FSDP1's class: the text, or `FSDP.__name__`."""
    if isinstance(node, cst.SimpleString):
        return node.evaluated_value == FSDP
    owner, _, attribute = (fsdp1_name(symbol_of(source, node)) or "").partition(".")
    return owner == FSDP and attribute in ("__name__", "__qualname__")
