"""What the fixes of the rules on frameworks' settings share."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.diagnostics.finding import Finding, Safety
from fsdplint.interpreter import Program
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import FrameworkConfigured


def configuring_call(
    finding: Finding, program: Program
) -> tuple[Source, cst.Call, dict[str, object]] | None:
    """The call that configures a framework, and its options; None if it is no call.

    An option is `...` if it differs between the configurations of the program.
    """
    site, event = finding.site, finding.events[0]
    if not isinstance(site, NodeSite) or not isinstance(site.node, cst.Call):
        return None
    assert isinstance(event, FrameworkConfigured)
    options = dict(event.options)
    for trace in program.traces:
        for other in trace.of(FrameworkConfigured):
            if other.site == event.site:
                for key in {*options, *other.options}:
                    if other.options.get(key, ...) != options.get(key, ...):
                        options[key] = ...
    return site.source, site.node, options


def block(finding: Finding, reasons: Sequence[str]) -> None:
    """State in a finding why it has no fix."""
    finding.blocker = "; ".join(reasons)
    finding.help = f"Not migrated: {finding.blocker}."


def describe(doubts: Sequence[str], notes: Sequence[str]) -> tuple[str, Safety]:
    """The title and the safety of a fix."""
    words = "; ".join([*doubts, *notes])
    title = "Configure FSDP2" + (f" ({words})" if words else "")
    return title, Safety.UNSAFE if doubts else Safety.SAFE
