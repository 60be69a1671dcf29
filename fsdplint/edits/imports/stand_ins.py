"""What a name is bound to where its import fails: `except ImportError: FSDP = None`."""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst

from fsdplint.source.source import Source
from fsdplint.syntax import layout
from fsdplint.syntax.bindings import Imported

TRIES = cst.Try | cst.TryStar


def stand_ins(source: Source, item: Imported) -> list[cst.Assign] | None:
    """The assignments of None to an imported name in the handlers of the `try` around its import.

    None if the scope binds the name in any other way, too.
    """
    around = _try_around(source, item.statement)
    found: list[cst.Assign] = []
    for target in item.scope.others.get(item.local, []):
        outer = source.parent(target)
        assigned = source.parent(outer) if isinstance(outer, cst.AssignTarget) else None
        if not isinstance(assigned, cst.Assign) or len(assigned.targets) != 1:
            return None
        if not isinstance(assigned.value, cst.Name) or assigned.value.value != "None":
            return None
        block = source.parent(layout.line_of(source, assigned))
        handler = source.parent(block) if block is not None else None
        if around is None or handler not in around.handlers:
            return None
        found.append(assigned)
    return found


def emptied_tries(
    source: Source, imports: Collection[cst.CSTNode], assigned: Collection[cst.CSTNode]
) -> list[cst.CSTNode]:
    """The `try` statements that have nothing but some imports and the stand-ins for them."""
    tries = {_try_around(source, statement): None for statement in imports}
    return [node for node in tries if node is not None and _is_empty(node, {*imports, *assigned})]


def _is_empty(node: cst.Try | cst.TryStar, gone: Collection[cst.CSTNode]) -> bool:
    if node.orelse is not None or node.finalbody is not None:
        return False
    bodies = [node.body, *(handler.body for handler in node.handlers)]
    return all(_loses_all(body, gone) for body in bodies)


def _loses_all(body: cst.BaseSuite, gone: Collection[cst.CSTNode]) -> bool:
    """Whether the statements of a block, `pass` apart, are all gone."""
    lines = [body] if isinstance(body, cst.SimpleStatementSuite) else body.body
    smalls = [part for line in lines for part in getattr(line, "body", ())]
    whole = all(isinstance(x, cst.SimpleStatementLine | cst.SimpleStatementSuite) for x in lines)
    return whole and all(part in gone or isinstance(part, cst.Pass) for part in smalls)


def _try_around(source: Source, statement: cst.CSTNode) -> cst.Try | cst.TryStar | None:
    """The `try` in whose body a statement stands directly."""
    block = source.parent(layout.line_of(source, statement))
    holder = source.parent(block) if block is not None else None
    return holder if isinstance(holder, TRIES) and holder.body is block else None
