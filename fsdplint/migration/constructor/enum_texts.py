"""Code that reads `str(member)`, such as "ShardingStrategy.FULL_SHARD".

The member becomes its name. A comparison with constants is made with names. Other code gets the text
that it had, but for messages.
"""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration.context import Migration
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant

# They give the same for the name alone, if they are asked for the end of the text.
_AT_THE_END = {"split", "rsplit", "rpartition", "endswith", "removeprefix", "replace"}
_MESSAGES = re.compile(r"print|tqdm\.write|.*\b(debug|info|warn|warning|error|critical|log)")


def rewrite(migration: Migration, source: Source, call: cst.Call, enum: str) -> None:
    """Rewrite what a program does with `str(member)`, where it has the name of the enum."""
    place = source.parent(call)
    if isinstance(place, cst.ComparisonTarget):
        place = source.parent(place)
    if isinstance(place, cst.Comparison):
        others = [place.left, *(one.comparator for one in place.comparisons)]
        others.remove(call)
        if all(_is_text(part) for other in others for part in _parts(other)):
            for part in (part for other in others for part in _parts(other)):
                _drop_enum(migration, source, part, enum)
            return
    elif isinstance(place, cst.Attribute) and place.attr.value in _AT_THE_END:
        _drop_split(migration, source, call, source.parent(place))
        return
    elif _is_message(source, place):
        return
    _keep_text(migration, source, call, enum)


def _parts(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The elements of a display, or the expression itself."""
    if isinstance(node, cst.Tuple | cst.List | cst.Set):
        return [one.value for one in node.elements]
    return [node]


def _is_text(node: cst.BaseExpression) -> bool:
    """Whether a comparison has the same result for the names: with a constant, or another `str(...)`."""
    is_call = isinstance(node, cst.Call) and is_constant(node.func, "str")
    return isinstance(node, cst.SimpleString) or is_call


def _is_message(source: Source, place: cst.CSTNode | None) -> bool:
    """Whether a text is only shown: printed, logged or raised."""
    if isinstance(place, cst.FormattedStringExpression | cst.Expr):
        return True
    called = source.parent(place) if isinstance(place, cst.Arg) else None
    if not isinstance(called, cst.Call):
        return False
    is_raised = isinstance(source.parent(called), cst.Raise)
    return is_raised or _MESSAGES.fullmatch(source.code(called.func)) is not None


def _drop_enum(migration: Migration, source: Source, part: cst.BaseExpression, enum: str) -> None:
    """Leave the name of a member in a constant string."""
    if isinstance(part, cst.SimpleString):
        text = str(part.evaluated_value)
        if text.startswith(f"{enum}."):
            name = string_literal(source, text.removeprefix(f"{enum}."))
            migration.substitute(source, part, name)


def _drop_split(
    migration: Migration, source: Source, call: cst.Call, split: cst.CSTNode | None
) -> None:
    """Replace `str(member).split(".")[1]` by the member."""
    item = source.parent(split) if isinstance(split, cst.Call) else None
    if not isinstance(item, cst.Subscript) or item.value is not split or len(item.slice) != 1:
        return
    index = item.slice[0].slice
    if isinstance(index, cst.Index) and source.code(index.value) in ("1", "-1"):
        migration.substitute(source, item, migration.text(source, call.args[0].value))


def _keep_text(migration: Migration, source: Source, call: cst.Call, enum: str) -> None:
    """Write the text of a member, which has the name of the enum."""
    member = call.args[0].value
    text = migration.text(source, member)
    if not is_repeatable(member) or '"' in text or "'" in text:
        text = string_literal(source, f"{enum}.") + f" + {text}"
        parenthesized = isinstance(source.parent(call), cst.Arg | cst.Assign | cst.Return)
        migration.substitute(source, call, text if parenthesized else f"({text})")
    else:
        migration.substitute(source, call, f"f{string_literal(source, f'{enum}.{{{text}}}')}")
