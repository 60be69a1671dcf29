"""Choose where to register a forward method: only models that have the method may reach the place.

`register_fsdp_forward_method` raises for a module without the method. Therefore, code is unsuitable
if it shards several models, or if unknown callers may pass other models.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from fsdplint.edits.places import shard_statement
from fsdplint.interpreter import Program
from fsdplint.interpreter.values import ModuleValue
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.trace import Called, ModuleBuilt, Sharded, Site, Trace


@dataclass(frozen=True)
class Spot:
    """A statement after which `module` refers to the sharded model.

    depth: the number of calls of the project's functions that lead there.
    """

    source: Source
    statement: cst.SimpleStatementLine
    module: str
    depth: int


def spot_for(program: Program, called: Called, shard: Sharded) -> Spot | None:
    """Where to register the method that was called on the module that `shard` shards."""
    trace = next((t for t in program.traces if _holds(t, called)), None)
    if trace is None or shard.group or shard.module != called.module:
        return None
    built = next((e for e in trace.before(shard, ModuleBuilt) if e.module == shard.module), None)
    if built is None or not _surely_of_its_class(program, trace, built, shard):
        return None
    for spot in _spots(program, shard):
        call = shard.stack[spot.depth : spot.depth + 1]
        if call and call[0] in called.stack:
            continue  # the method is called before that call returns
        if _only_for(program, trace, built, shard, spot):
            return spot
    return None


def _holds(trace: Trace, event: Called) -> bool:
    return event.index < len(trace.events) and trace.events[event.index] is event


def _surely_of_its_class(
    program: Program, trace: Trace, built: ModuleBuilt, shard: Sharded
) -> bool:
    """Whether the code names the model's class and builds it whenever it shards it.

    No other class may have this name.
    """
    name = trace.module(shard.module).class_name
    site = built.site
    if not isinstance(site, NodeSite) or not isinstance(site.node, cst.Call):
        return False
    function = site.node.func
    last = function.attr if isinstance(function, cst.Attribute) else function
    if not isinstance(last, cst.Name) or last.value != name:
        return False
    if len(_mentions(program, rf"^[ \t]*class[ \t]+{re.escape(name)}\b")) != 1:
        return False
    return all(guard in shard.guards for guard in built.guards)


def _spots(program: Program, shard: Sharded) -> Iterator[Spot]:
    """The sharding statement, then the calls that lead to it, innermost first."""
    place = shard_statement(shard.site)
    if place is not None:
        yield Spot(place.source, place.statement, place.module, len(shard.stack))
    for depth in reversed(range(len(shard.stack))):
        site = shard.stack[depth]
        if isinstance(site, NodeSite) and isinstance(site.node, cst.Call):
            spot = _after_call(program, site.source, site.node, depth)
            if spot is not None:
                yield spot


def _after_call(program: Program, source: Source, call: cst.Call, depth: int) -> Spot | None:
    """The statement that consists of this call, if a name refers to the sharded model after it."""
    statement = source.statement(call)
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    small = statement.body[0]
    named: list[cst.BaseExpression] = []
    if isinstance(small, cst.Assign) and small.value is call and len(small.targets) == 1:
        if _is_sharded(program, call):
            named = [small.targets[0].target]
    elif isinstance(small, cst.Expr) and small.value is call:
        named = [arg.value for arg in call.args if _is_sharded(program, arg.value)]
    if len(named) != 1 or not isinstance(named[0], cst.Name | cst.Attribute):
        return None
    return Spot(source, statement, source.code(named[0]), depth)


def _is_sharded(program: Program, node: cst.BaseExpression) -> bool:
    values = program.values(node)
    return bool(values) and all(
        isinstance(value, ModuleValue) and value.sharded and not value.wrapper for value in values
    )


def _only_for(
    program: Program, trace: Trace, built: ModuleBuilt, shard: Sharded, spot: Spot
) -> bool:
    """Whether only models of this class reach the spot, and no other caller is possible."""
    name = trace.module(shard.module).class_name
    through = shard.stack[spot.depth : spot.depth + 1]
    passing: list[Sharded] = []
    for other in program.traces:
        for event in other.of(Sharded):
            if event.site != shard.site or not all(call in event.stack for call in through):
                continue
            if event.group or other.module(event.module).class_name != name:
                return False
            passing.append(event)
    common = 0
    for one, two in zip(built.stack, shard.stack, strict=False):
        if one != two:
            break
        common += 1
    sites: tuple[Site, ...] = (*shard.stack, shard.site)
    return all(
        _all_calls_known(program, sites[number + 1], passing)
        for number in range(common, spot.depth)
    )


def _all_calls_known(program: Program, inside: Site, passing: list[Sharded]) -> bool:
    """Whether the shardings that were seen cover every call of the function around this place."""
    if not isinstance(inside, NodeSite):
        return False
    function = function_around(inside.source, inside.node)
    name = _called_as(inside.source, function)
    if name is None or _mentions(program, rf"\b{name}[ \t]+as\b"):
        return False
    calls = {
        id(site.node)
        for event in passing
        for site in event.stack
        if isinstance(site, NodeSite) and _calls(site.node, name)
    }
    imports = _mentions(program, rf"^[ \t]*(from|import)\b[^\n]*\b{name}\b")
    where = _mentions(program, rf"\b{name}\b")
    if len(where) != 1 + len(imports) + len(calls):
        return False
    return not _imported_unseen(program, inside.source, {inside.source.path, *where}, name)


def _called_as(source: Source, function: cst.CSTNode) -> str | None:
    """The name by which a function is called; for an `__init__` the name of its class."""
    if not isinstance(function, cst.FunctionDef):
        return None
    if function.name.value != "__init__":
        return None if function.name.value.startswith("__") else function.name.value
    around = next((n for n in ancestors(source, function) if isinstance(n, cst.ClassDef)), None)
    return around.name.value if around is not None else None


def _calls(node: cst.CSTNode, name: str) -> bool:
    if not isinstance(node, cst.Call):
        return False
    function = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    return isinstance(function, cst.Name) and function.value == name


def _mentions(program: Program, pattern: str) -> list[str]:
    """The paths of the files that match a pattern, once for each match."""
    compiled = re.compile(pattern, re.MULTILINE)
    return [
        source.path for source in program.sources.values() for _ in compiled.findall(source.text)
    ]


def _imported_unseen(program: Program, source: Source, paths: set[str], name: str) -> bool:
    """Whether a file of the project that was not read imports the name from one of these."""
    read = {os.path.realpath(path) for path in program.sources}
    projects = program.projects
    others = [
        path
        for path in projects.files(Path(source.path), excluded=False)
        if os.path.realpath(path) not in read
    ]
    targets = [Path(path) for path in sorted(paths)]
    return any(
        not names or any(name == one for one, _ in names)
        for _, _, names, _ in projects.importing(others, targets)
    )
