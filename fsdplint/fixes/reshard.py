"""`model.reshard()` before a statement that needs the sharded parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.diagnostics.finding import Finding, Fix, Safety
from fsdplint.edits.places import AfterShards, blocks_around, expression_of
from fsdplint.edits.rewrite import Rewrite
from fsdplint.source.source import NodeSite

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


def reshard_before(
    program: Program, finding: Finding, roots: set[str] | None, title: str
) -> Fix | None:
    """The fix that calls `reshard()` in the statement before a finding.

    Args:
        program: the program.
        finding: what is found at a call that needs the sharded parameters.
        roots: the names of the module in the traces; None if there are several.
        title: what the fix does.

    Returns:
        None where no expression at the place is certainly the module, or where the statement itself
        gathers it.
    """
    site = finding.site
    if not isinstance(site, NodeSite) or not isinstance(site.node, cst.Call):
        return None
    place = next((statement for _, statement in blocks_around(site)), None)
    if roots is None or not isinstance(place, cst.SimpleStatementLine):
        return None
    model = expression_of(program, AfterShards(site.source, place, site.node, ()), roots)
    if model is None:
        return None
    start, end = site.source.span(place)
    for event in finding.events[1:]:
        for at in (event.site, *event.stack):
            if isinstance(at, NodeSite) and at.source is site.source:
                if start <= site.source.span(at.node)[0] < end:
                    return None  # the statement itself calls the model
    rewrite = Rewrite()
    rewrite.insert_before(site.source, place, [f"{model}.reshard()"])
    return rewrite.fix(title, Safety.SAFE)
