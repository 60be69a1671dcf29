"""Names of FSDP1 that stay in a file and that no finding speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdplint.report.migration import Obstacle, Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fsdplint.program.source import Source
    from fsdplint.rule import Finding

REASON = "`{name}` is imported here from FSDP1, and not used here"
ADVICE = "Take the import away; where another file imports the name from here, name that file too."


def unused_imports(source: Source, code: str) -> Iterator[Obstacle]:
    """The imports of FSDP1 in a file that uses nothing of it."""
    from fsdplint.editing.bindings import bindings_of
    from fsdplint.program.names import canonical
    from fsdplint.rules.migration.context import uses_of_fsdp1
    from fsdplint.rules.migration.names import fsdp1_name

    if "fsdp" not in source.text or uses_of_fsdp1(source):
        return
    for item in bindings_of(source).imports():
        name = fsdp1_name(canonical(item.full))
        if name is not None:
            line = source.location(item.alias).line
            excerpt = [(line, source.line(line))]
            yield Obstacle(
                Place(source.path, line), code, excerpt, REASON.format(name=name), ADVICE
            )


def others(sources: Iterable[Source], findings: Iterable[Finding]) -> Iterator[Place]:
    """Where files name FSDP1 outside of what was found."""
    from fsdplint.program.names import references
    from fsdplint.rules.migration.names import PREFIX, fsdp1_name

    spans = []
    for finding in findings:
        at = finding.site.location()
        spans.append((at.path, at.line, max(at.line, at.end_line)))
    for source in sources:
        for _, node, full in references(source, PREFIX):
            line = source.location(node).line
            inside = any(p == source.path and a <= line <= b for p, a, b in spans)
            if fsdp1_name(full) is not None and not inside:
                yield Place(source.path, line)
