"""Replace `fully_shard(container)` by a loop that shards the container's elements."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.edits.places import ShardStatement, module_argument, options_text, shard_statement
from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import free_name
from fsdplint.interpreter import Program
from fsdplint.interpreter.values import ModuleValue
from fsdplint.source.source import Source
from fsdplint.trace import Sharded, Site, Trace


def shard_elements(rewrite: Rewrite, program: Program, site: Site) -> str | None:
    """Rewrite the statement at a `fully_shard` call of a container; returns the fix's title.

    Returns:
        None, without changes, if the statement does more, if there are several containers, or if
            the elements cannot be sharded separately.
    """
    shard = shard_statement(site)
    if shard is None:
        return None
    argument = module_argument(shard.call)
    if argument is None or shard.source.code(argument) != shard.module:
        return None
    containers = [value for value in program.values(argument) if isinstance(value, ModuleValue)]
    if not containers or len(containers) != len(program.values(argument)):
        return None
    ids = {container.id for container in containers}
    states = {
        _elements(trace, event.module, event) if event.module in ids else ""
        for trace in program.traces
        for event in trace.of(Sharded)
        if event.site == site
    }
    if states == {"sharded"}:
        rewrite.delete_statement(shard.source, shard.statement)
        return "Leave the container out: its elements are sharded"
    if states != {"plain"}:
        return None
    dict_kinds = {(value.library_class or "").endswith("ModuleDict") for value in containers}
    if len(dict_kinds) != 1:
        return None
    _loop(rewrite, shard, dict_kinds.pop())
    return "Shard the elements of the container"


def _elements(trace: Trace, container: str, event: Sharded) -> str:
    """Whether the elements are all "sharded" at this event, all "plain", or mixed ("")."""
    info = trace.modules[container]
    elements = list(info.children.values())
    if not elements or not info.children_known or len(set(elements)) != len(elements):
        return ""
    if any(trace.modules[element].container for element in elements):
        return ""
    sharded = set(trace.shardings(event))
    if set(elements) <= sharded:
        return "sharded"
    return "" if sharded & set(elements) else "plain"


def _loop(rewrite: Rewrite, shard: ShardStatement, is_dict: bool) -> None:
    source, call = shard.source, shard.call
    name = free_name(source, shard.statement, _singular(shard.module))
    options = _on_one_line(source, call)
    items = f"{shard.module}.values()" if is_dict else shard.module
    function = source.code(call.func)
    rewrite.replace_statement(
        source,
        shard.statement,
        [f"for {name} in {items}:", f"\t{function}({name}{options})"],
    )


def _on_one_line(source: Source, call: cst.Call) -> str:
    return re.sub(r"\s*\n\s*", " ", options_text(source, call))


_PLURALS = (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("xes", "x"), ("s", ""))


def _singular(path: str) -> str:
    """The name of one element of `model.layers`: "layer"."""
    last = path.rpartition(".")[2]
    if not last.isidentifier():
        return "module"
    for plural, one in _PLURALS:
        if last.endswith(plural) and len(last) > len(plural) + 1:
            return last[: -len(plural)] + one
    return "module"
