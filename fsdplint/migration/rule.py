"""The base class of the rules on FSDP1, whose fix is the whole migration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix
from fsdplint.registry.refusal import Refusal
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Event,
    Fsdp1Used,
    Location,
    StateLoaded,
    StateTaken,
    Trace,
    Wrapped,
)

if TYPE_CHECKING:
    from fsdplint.interpreter import Program
    from fsdplint.migration.plan import Plan
    from fsdplint.source.source import NodeSite

MAX_BLOCKERS = 3  # blockers named in a help text


class MigrationRule(Rule):
    """A rule on a use of FSDP1. Its fix rewrites all uses of FSDP1 that belong together, or none."""

    grouped = True
    since = "1.11"  # the first torch with FSDP1
    fix_since = "2.6"  # where fully_shard became public

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.migration.blockers.program import NOT_IMPORTED, WRAPPER_ASKED
        from fsdplint.migration.context import uses_of_fsdp1
        from fsdplint.migration.planner import plan_for
        from fsdplint.source.source import NodeSite

        site = finding.site
        if not isinstance(site, NodeSite):
            return None
        plan = plan_for(program, site.source)
        if plan is None:
            if not uses_of_fsdp1(site.source):
                wraps = isinstance(finding.events[0], Wrapped)
                reason = NOT_IMPORTED() if wraps else WRAPPER_ASKED()
                finding.blocker = reason.message
                finding.blocker_codes = (reason.blocker.code,)
                finding.help = f"Not migrated: {reason.message}. {reason.advice}"
            return None
        finding.group = plan.group
        if not plan.blockers:
            return plan.fix(site.source, site.node)
        self._explain(finding, plan, site)
        return None

    def refuse(self, finding: Finding, program: Program, refusal: Refusal) -> None:
        """Make the reason a blocker of the whole migration."""
        from fsdplint.migration.planner import plan_for
        from fsdplint.source.source import NodeSite

        site = finding.site
        plan = plan_for(program, site.source) if isinstance(site, NodeSite) else None
        if plan is None or not isinstance(site, NodeSite):
            super().refuse(finding, program, refusal)
            return
        plan.refuse(program, refusal)
        self._explain(finding, plan, site)

    def incomplete(self, before: Program, after: Program, fix: Fix) -> tuple[str, Location] | None:
        from fsdplint.migration.analysis.missed_uses import missed_use

        return missed_use(before, after, fix)

    def _explain(self, finding: Finding, plan: Plan, site: NodeSite) -> None:
        """Add to a finding the blockers of the migration."""
        own = plan.blockers_at(site.source, site.node)
        if own:
            finding.blocker = "; ".join(dict.fromkeys(b.reason for b in own))
            finding.blocker_codes = tuple(dict.fromkeys(b.code for b in own))
            finding.help = f"Not migrated: {finding.blocker}."
        else:
            finding.help = _blocked_elsewhere(plan)


def _blocked_elsewhere(plan: Plan) -> str:
    """The blockers in the order of their places; a reason of several places is given once."""
    places: dict[str, dict[tuple[str, int], None]] = {}
    located = [(one.source.location(one.node), one.reason) for one in plan.blockers]
    for at, reason in sorted(located, key=lambda one: (one[0].path, one[0].line)):
        places.setdefault(reason, {})[at.path, at.line] = None
    texts = [f"{_places(one)} ({reason})" for reason, one in places.items()]
    if len(texts) > MAX_BLOCKERS:
        texts[MAX_BLOCKERS:] = [f"{len(texts) - MAX_BLOCKERS} more"]
    return f"Not migrated, because of {'; '.join(texts)}."


def _places(found: Iterable[tuple[str, int]]) -> str:
    """Some places; a path is given once for its lines."""
    lines: dict[str, list[str]] = {}
    for path, line in found:
        lines.setdefault(path, []).append(str(line))
    parts = []
    for path, numbers in lines.items():
        shown = numbers[:MAX_BLOCKERS]
        more = [f"{len(numbers) - MAX_BLOCKERS} more"] if len(numbers) > MAX_BLOCKERS else []
        parts.append(f"{path}:{', '.join([*shown, *more])}")
    return ", ".join(parts)


STATE_APIS = ("state_dict_type", "set_state_dict_type", "get_state_dict_type")
REKEY = "rekey_optim_state_dict"  # the one that also works with the states of FSDP2
OPTIMIZER_APIS = (
    "optim_state_dict",
    "optim_state_dict_to_load",
    "full_optim_state_dict",
    "sharded_optim_state_dict",
    "scatter_full_optim_state_dict",
    "shard_full_optim_state_dict",
    "flatten_sharded_optim_state_dict",
    REKEY,
)


def in_block(trace: Trace, event: Event) -> bool:
    """Whether an event follows the start of a `state_dict_type` block without others in between."""
    for other in reversed(trace.events[: event.index]):
        api = other.api.removeprefix("FSDP.") if isinstance(other, Fsdp1Used) else ""
        if api in STATE_APIS:
            return True
        if api not in OPTIMIZER_APIS and not isinstance(other, StateTaken | StateLoaded):
            return False
    return False


def in_fsdp1(trace: Trace, module: str) -> bool:
    """Whether FSDP1 wraps the module itself (through torch.compile too)."""
    seen: set[str] = set()
    current: str | None = module
    while current is not None and current not in seen and current in trace.modules:
        seen.add(current)
        if trace.modules[current].wrapper == "fsdp1":
            return True
        current = trace.modules[current].inner
    return False
