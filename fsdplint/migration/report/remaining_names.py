"""Names of FSDP1 that remain in a file without a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdplint.report.remarks import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fsdplint.diagnostics.finding import Finding
    from fsdplint.source.source import Source


def remaining_places(sources: Iterable[Source], findings: Iterable[Finding]) -> Iterator[Place]:
    """The places where files name FSDP1 outside of the findings."""
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
