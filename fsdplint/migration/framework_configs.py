"""Policies and configs of FSDP1 that the program also passes to a framework.

The framework would reject their replacements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import libcst as cst

from fsdplint.diagnostics.finding import Edit
from fsdplint.interpreter import Program
from fsdplint.interpreter.values import Function, Partial, Value
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import CONFIG_GIVEN_TO_FRAMEWORK
from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite
from fsdplint.trace import FrameworkConfigured


def check(migration: Migration, edits: Iterable[Edit]) -> list[Blocked]:
    """The blockers of arguments of a framework's FSDP1 support that the migration would rewrite."""
    program = full_program(migration.program)
    changed: dict[str, list[Edit]] = {}
    for edit in edits:
        changed.setdefault(edit.path, []).append(edit)
    found: dict[cst.CSTNode, Blocked] = {}
    for event, call in _calls(program):
        for argument in call.args:
            for site in _creation_sites(program.values(argument.value)):
                if not _is_edited(site, changed.get(site.path, ())) or site.node in found:
                    continue
                at = event.site.location()
                place = f"{Path(at.path).name}:{at.line}"
                found[site.node] = Blocked(
                    site.source,
                    site.node,
                    CONFIG_GIVEN_TO_FRAMEWORK(
                        api=event.api, framework=event.framework.capitalize(), place=place
                    ),
                )
    return list(found.values())


def _calls(program: Program) -> Iterator[tuple[FrameworkConfigured, cst.Call]]:
    for trace in program.traces:
        for event in trace.of(FrameworkConfigured):
            if isinstance(event.site, NodeSite) and isinstance(event.site.node, cst.Call):
                yield event, event.site.node


def _creation_sites(values: Iterable[Value]) -> Iterator[NodeSite]:
    """The places that create values or define functions, including the functions of partials."""
    for value in values:
        if value.created_at is not None:
            yield value.created_at
        if isinstance(value, Function):
            yield value.site
        if isinstance(value, Partial):
            yield from _creation_sites([value.function])


def _is_edited(site: NodeSite, edits: Iterable[Edit]) -> bool:
    start, end = site.source.span(site.node)
    return any(edit.start < end and start < edit.end for edit in edits)
