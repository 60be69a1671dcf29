"""The report of the coverage: how many sites of each file a check reached, and the other sites."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from fsdplint.diagnostics.coverage import CoveredSite
from fsdplint.report import schema
from fsdplint.report.result import Result, covered_line


def coverage(result: Result, output_format: str) -> list[str]:
    """The lines of the report: an object for the formats json and json-full, else text."""
    if output_format in ("json", "json-full"):
        data: schema.Coverage = {"schema_version": 1, **as_data(result.coverage)}
        return [json.dumps(data, indent=2)]
    return list(_as_text(result))


def _by_file(sites: Sequence[CoveredSite]) -> Iterator[tuple[str, list[CoveredSite]]]:
    for path, group in groupby(sites, key=lambda site: site.at.path):
        yield path, list(group)


def _as_text(result: Result) -> Iterator[str]:
    for path, sites in _by_file(result.coverage):
        covered = sum(site.covered for site in sites)
        yield f"{path}: {covered} of {len(sites)} sites"
        for site in sites:
            if not site.covered:
                yield f"  {site.at.line}:{site.at.column}: {site.name} ({site.kind}): {site.reason}"
    if not result.coverage:
        yield "No call of the FSDP API was found."
    else:
        yield covered_line(result.coverage)


def counts(sites: Sequence[CoveredSite]) -> schema.CoverageCounts:
    """How many sites there are, and how many of them were reached."""
    return {"sites": len(sites), "covered": sum(site.covered for site in sites)}


def as_data(sites: Sequence[CoveredSite]) -> schema.FilesCoverage:
    """The coverage of each file, with the sites that were not reached."""
    return {
        **counts(sites),
        "files": [
            {
                "filename": path,
                **counts(group),
                "gaps": [_gap(site) for site in group if not site.covered],
            }
            for path, group in _by_file(sites)
        ],
    }


def _gap(site: CoveredSite) -> schema.Gap:
    return {
        "location": {"row": site.at.line, "column": site.at.column},
        "kind": site.kind,
        "name": site.name,
        "gap": site.gap,
        "reason": site.reason,
    }
