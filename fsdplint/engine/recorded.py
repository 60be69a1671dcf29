"""The check of a program's recorded run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fsdplint.diagnostics import plugins
from fsdplint.diagnostics.finding import Finding
from fsdplint.engine.check import check_recorded, rule_failures
from fsdplint.engine.session import Session
from fsdplint.engine.summary import with_findings
from fsdplint.registry.rules import all_rules
from fsdplint.report.result import Result
from fsdplint.source.reading import read
from fsdplint.source.source import Source
from fsdplint.trace import FixedSite, Site, Trace


def check_run(
    session: Session, trace: Trace, contents: Mapping[str, bytes] | None = None
) -> Result:
    """The findings in a recorded run of the program of a session.

    contents: the files as they were run, by their real paths, where they differ from those on disk.
    """
    trace.target = session.options_of(session.paths).target
    session.add_problems(plugins.plugins().problems)
    rules = [rule() for rule in all_rules()]
    found = check_recorded(trace, rules)
    session.add_problems(rule_failures(rules))
    found = [_with_relative_paths(finding) for finding in found]
    return with_findings(session, found, _sources(found, contents or {}))


def _with_relative_paths(finding: Finding) -> Finding:
    """The finding with paths relative to the current folder, as those of a check are."""
    related = tuple((_relative(site), word) for site, word in finding.related)
    return replace(finding, site=_relative(finding.site), related=related)


def _relative(site: Site) -> FixedSite:
    at = site.location()
    folder = os.getcwd() + os.sep
    return FixedSite(replace(at, path=at.path.removeprefix(folder)))


def _sources(found: Sequence[Finding], contents: Mapping[str, bytes]) -> dict[str, Source]:
    """The files that the findings are in, as far as they can be read."""
    sources: dict[str, Source] = {}
    for path in {finding.site.path for finding in found}:
        with contextlib.suppress(OSError, SyntaxError, UnicodeDecodeError):
            data = contents.get(os.path.realpath(path))
            sources[path] = Source.from_bytes(path, read(path) if data is None else data)
    return sources
