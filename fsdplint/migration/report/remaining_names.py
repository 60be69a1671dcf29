"""Names of FSDP1 that stay in a file and that no finding speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdplint.report.remarks import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fsdplint.diagnostics.finding import Finding
    from fsdplint.source.source import Source


def others(sources: Iterable[Source], findings: Iterable[Finding]) -> Iterator[Place]:
    """Where files name FSDP1 outside of what was found."""
    from fsdplint.migration.names import PREFIX, fsdp1_name
    from fsdplint.syntax.qualified_names import references

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
