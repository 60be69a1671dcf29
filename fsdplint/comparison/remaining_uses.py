"""What a program still has of FSDP1, found by syntax: also in code that no run reaches."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.names import FSDP, fsdp1_name
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import references, symbols_in, walk
from fsdplint.trace import Location

# Other libraries, and activation checkpointing, take policies of the same functions.
_POLICIES = (
    "transformer_auto_wrap_policy", "size_based_auto_wrap_policy", "lambda_auto_wrap_policy",
    "always_wrap_policy", "_module_wrap_policy", "_or_policy", "ModuleWrapPolicy", "CustomPolicy",
)  # fmt: skip
_PREFIX = "torch.distributed.fsdp"
_PART = "FullySharded"  # the shortest part of the name of the class that code looks for
_CLASS = re.compile(r"__(?:qual)?name__|__class__|\btype\(")  # code that gives a class or its name


def fsdp1_uses(source: Source) -> Iterator[tuple[str, Location]]:
    """The names of FSDP1 that a file uses, in code that no run reaches too."""
    seen = set()
    for _, node, name in references(source, _PREFIX):
        use = fsdp1_name(name)
        at = source.location(node)
        if (
            use is not None
            and not use.startswith(_POLICIES)
            and (at.line, use.partition(".")[0]) not in seen
        ):
            seen.add((at.line, use.partition(".")[0]))
            yield use, at


def class_by_name(source: Source) -> Iterator[tuple[str, Location]]:
    """Code that asks for FSDP1's class by its name, which no model of FSDP2 has.

    `type(model).__name__ == "FullyShardedDataParallel"`, `getattr(module, ...)`, and the attribute
    of a module that is imported while the program runs.
    """
    if _PART not in source.text:
        return
    for node in walk(source, skip_imports=True):
        if isinstance(node, cst.Attribute):
            found = node.attr.value == FSDP and node not in symbols_in(source)
        elif isinstance(node, cst.Comparison):
            found = _names_class(node) and _CLASS.search(source.code(node)) is not None
        else:
            found = isinstance(node, cst.Call) and _asks_by_name(source, node)
        if found:
            yield source.code(node), source.location(node)


def _asks_by_name(source: Source, call: cst.Call) -> bool:
    """`getattr(module, "FullyShardedDataParallel")`, or a method of the name of a class."""
    if not any(_names_class(arg.value) for arg in call.args):
        return False
    if isinstance(call.func, cst.Name):
        return call.func.value in ("getattr", "hasattr")
    return (
        isinstance(call.func, cst.Attribute) and _CLASS.search(source.code(call.func)) is not None
    )


def _names_class(node: cst.CSTNode) -> bool:
    """Whether an expression has the name of FSDP1's class as a string, or a part of it."""
    if isinstance(node, cst.Comparison):
        parts = [node.left, *(one.comparator for one in node.comparisons)]
        return any(map(_names_class, parts))
    if isinstance(node, cst.Tuple | cst.List | cst.Set):
        return any(_names_class(one.value) for one in node.elements)
    text = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return isinstance(text, str) and text.startswith(_PART) and FSDP.startswith(text)
