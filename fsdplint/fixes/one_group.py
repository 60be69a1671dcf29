"""Shard two modules as one group: `fully_shard([one, other])`."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.edits.places import (
    Meeting,
    ShardStatement,
    common_block,
    module_argument,
    options_text,
    shard_statement,
)
from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.optimizer_model import trace_of
from fsdplint.interpreter import Program
from fsdplint.syntax.dotted import bound_by, part_of
from fsdplint.trace import ParametersTied, Sharded, Trace


def shard_together(
    rewrite: Rewrite, program: Program, one: Sharded, other: Sharded, tie: ParametersTied
) -> bool:
    """Rewrite the first of two `fully_shard` statements to shard both modules of a tie.

    The second statement is deleted if it shards only the other module; otherwise it stays.

    Returns:
        False, without changes, for statements of another form.
    """
    trace = trace_of(program, tie)
    first, second = shard_statement(one.site), shard_statement(other.site)
    pair = [tie.module, tie.other]
    if trace is None or first is None or second is None or tie.other is None:
        return False
    if one.module not in pair or one.group or other.group or first.source is not second.source:
        return False
    place = common_block(one, other)
    if place is None or place.first is not first.statement or place.second is not second.statement:
        return False
    if not _shards_one_module(program, one) or not _shards_one_module(program, other):
        return False
    rest = tie.other if one.module == tie.module else tie.module
    path = _path(trace, other.module, rest)
    if path is None:
        return False
    module, owner = _argument(first), _argument(second)
    if module is None or owner is None or _bound_between(place, owner):
        return False
    options = options_text(first.source, first.call)
    if not path:
        if options != options_text(second.source, second.call):
            return False
        rewrite.delete_statement(second.source, second.statement)
    value = module_argument(first.call)
    assert value is not None
    rewrite.replace(first.source, value, f"[{module}, {'.'.join([owner, *path])}]")
    return True


def _bound_between(place: Meeting, path: str) -> bool:
    """Whether a dotted name is bound between the first and the second statement."""
    body = list(place.block.body)
    between = body[body.index(place.first) : body.index(place.second)]
    return any(part_of(path, name) for statement in between for name in bound_by(statement))


def _argument(shard: ShardStatement) -> str | None:
    """The text of the module, unless the statement assigns its result to another name."""
    value = module_argument(shard.call)
    text = shard.source.code(value) if value is not None else None
    return text if text == shard.module and shard.call.args[0].keyword is None else None


def _shards_one_module(program: Program, event: Sharded) -> bool:
    """Whether the call shards exactly this module in every configuration."""
    modules = {
        other.module
        for trace in program.traces
        for other in trace.of(Sharded)
        if other.site == event.site
    }
    return modules == {event.module} and not event.in_loop


def _path(trace: Trace, root: str, module: str) -> list[str] | None:
    """The attributes that lead from a module to a module inside it."""
    return next(_paths(trace, root, module, []), None)


def _paths(trace: Trace, root: str, module: str, names: list[str]) -> Iterator[list[str]]:
    if root == module:
        yield names
        return
    for name, child in trace.modules[root].children.items():
        if name.isidentifier() and len(names) < 8:
            yield from _paths(trace, child, module, [*names, name])
