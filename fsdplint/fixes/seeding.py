"""Seed all ranks with the same value until a model is sharded."""

from __future__ import annotations

import libcst as cst

from fsdplint.diagnostics.finding import Finding, Fix, Safety
from fsdplint.edits.places import common_block
from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import call_at
from fsdplint.interpreter.ranks import RANK_NAMES
from fsdplint.syntax.dotted import dotted_name


def seed_after_sharding(finding: Finding) -> Fix | None:
    """Seed all ranks equally before the model is built, and differently once it is sharded."""
    seed, sharded = finding.events[0], finding.events[-1]
    target, place = call_at(finding.site), common_block(seed, sharded)
    if target is None or place is None or seed.guards != sharded.guards[: len(seed.guards)]:
        return None
    source, call = target
    args, statement = call.args, place.first
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    small = statement.body[0]
    if not isinstance(small, cst.Expr) or small.value is not call or len(args) != 1:
        return None
    value = args[0].value
    if args[0].star or not isinstance(value, cst.BinaryOperation):
        return None
    if not isinstance(value.operator, cst.Add):
        return None
    sides = [side for side in (value.left, value.right) if not _is_rank(dotted_name(_callee(side)))]
    if len(sides) != 1 or not isinstance(sides[0], cst.Name | cst.Attribute | cst.Integer):
        return None
    rewrite = Rewrite()
    text = source.code(call)
    rewrite.replace(source, value, source.code(sides[0]))
    rewrite.insert_after(source, place.second, [text])
    return rewrite.fix("Seed all ranks alike until the model is sharded", Safety.UNSAFE)


def _callee(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.func if isinstance(node, cst.Call) and not node.args else node


def _is_rank(path: str) -> bool:
    last = path.rpartition(".")[2]
    return last in RANK_NAMES or last == "get_rank"
