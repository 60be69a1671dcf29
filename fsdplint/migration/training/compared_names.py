"""Names of FSDP1's parameters and modules that code writes out and compares with those of a model.

    if use_fsdp:
        head = "_fsdp_wrapped_module.head.weight"
    else:
        head = "head.weight"
    decay = [p for name, p in model.named_parameters() if name != head]

FSDP2's names lack the prefix, so the names that they are compared with lose it too.
"""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from fsdplint.migration.context import Migration
from fsdplint.migration.training.prefix_reads import PrefixRead
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import function_around

PREFIX = "_fsdp_wrapped_module."
NOTE = "names are compared without FSDP1's prefix"
DETAIL = (
    "FSDP1 puts the prefix before the parts of each unit, and a name may lack it there: then it equals no name "
    "of FSDP1, and equals one of FSDP2."
)
METHODS = ("startswith", "endswith")
OF_MODELS = {"named_parameters", "named_modules", "named_buffers", "named_children"}
OF_FILES = {"load", "load_file", "safe_open", "state_dict", "load_state_dict"}


def is_compared(reads: Iterable[PrefixRead]) -> bool:
    """Whether all reads compare a model's names with a text that is more than the prefix."""
    return all(_rest(read.text) and _compares(read) and _has_names(read) for read in reads)


def _has_names(read: PrefixRead) -> bool:
    """Whether the code around a read asks a model for names, and no file or state."""
    around = function_around(read.source, read.node) or read.source.tree
    parts = (
        node.attr.value if isinstance(node, cst.Attribute) else node.value
        for node in read.source.descend(around)
        if isinstance(node, cst.Attribute | cst.Name)
    )
    found = {part for part in parts if isinstance(part, str)}
    return bool(found & OF_MODELS) and not found & OF_FILES


def compare_without_prefix(migration: Migration, source: Source, node: cst.SimpleString) -> None:
    """Remove the prefix from a text."""
    migration.substitute(source, node, source.code(node).replace(PREFIX, ""))
    migration.note(NOTE, source, node, detail=DETAIL, unsafe=True)
    migration.step(source, node, "Compare names without FSDP1's prefix")


def _rest(text: str) -> str:
    """What of a text remains without the prefix; "" if that is not a part of a name."""
    rest = text.replace(PREFIX, "")
    return "" if PREFIX[:-1] in rest or not rest.strip(".") or rest == text else rest


def _compares(read: PrefixRead) -> bool:
    """Whether a place only tests whether a name is, has, begins or ends with the text."""
    source = read.source
    holder = source.parent(read.node)
    if isinstance(holder, cst.Arg):
        call = source.parent(holder)
        return (
            isinstance(call, cst.Call)
            and isinstance(call.func, cst.Attribute)
            and call.func.attr.value in METHODS
            and len(call.args) == 1
        )
    is_left = isinstance(holder, cst.Comparison)
    test = holder if is_left else source.parent(holder) if holder is not None else None
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    operator = test.comparisons[0].operator
    if isinstance(operator, cst.Equal | cst.NotEqual):
        return True
    return is_left and isinstance(operator, cst.In | cst.NotIn)
