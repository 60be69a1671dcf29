"""Lists that a loop fills with one element in each turn.

    chunks = []
    for i in range(count):
        chunks.append(part(batch, i, count))

The list has as many elements as the loop makes turns, of which one stands for all: see
`list_lengths`.
"""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from fsdplint.interpreter.list_lengths import length_of
from fsdplint.interpreter.merging import matters
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Sequence, Value
from fsdplint.syntax.dotted import leaves

_APPEND = m.Expr(m.Call(func=m.Attribute(value=m.Name(), attr=m.Name("append")), args=[m.Arg()]))


def lists_to_fill(run: Run, body: cst.BaseSuite, iterable: Value) -> list[Sequence]:
    """The empty lists to which each turn of a loop adds one element."""
    if length_of(run, iterable) is None or leaves(body):
        return []
    names = [_filled_by(one) for one in body.body if isinstance(one, cst.SimpleStatementLine)]
    held = [run.scope.lookup(name) for name in names if name and _uses(body, name) == 1]
    return [
        one
        for one in held
        if isinstance(one, Sequence) and one.kind == "list" and not (one.items or one.open)
    ]


def note_filled(run: Run, lists: list[Sequence], iterable: Value) -> None:
    """Note the length of lists that a loop has filled."""
    length = length_of(run, iterable)
    for one in lists:
        if one.items and not matters(one):
            one.items, one.open, one.length = one.items[-1:], True, length


def _filled_by(line: cst.SimpleStatementLine) -> str:
    """The name of the list to which a statement appends one element; "" for other statements."""
    if len(line.body) != 1 or not m.matches(line.body[0], _APPEND):
        return ""
    call = cst.ensure_type(cst.ensure_type(line.body[0], cst.Expr).value, cst.Call)
    return cst.ensure_type(cst.ensure_type(call.func, cst.Attribute).value, cst.Name).value


def _uses(body: cst.BaseSuite, name: str) -> int:
    return len(m.findall(body, m.Name(name)))
