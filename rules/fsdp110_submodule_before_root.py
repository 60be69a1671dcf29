"""FSDP110: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Called, Site, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.early_calls import early_calls


class SubmoduleBeforeRoot(Rule):
    """A sharded part of a model is called before the sharded model itself.

    ## What it does
    Finds programs that call a sharded submodule of a model from outside (for example to compute
    features), and call the sharded model for the first time after that.

    Calls of a submodule are fine after the first call of the model, if the model is never called or
    not sharded itself, and with FSDP1 after its state was taken or loaded.

    ## Why is this bad?
    The first sharded module that is called becomes the root. The later call of the model then ends with
    `RuntimeError: FSDP state has already been lazily initialized for encoder. FSDP requires running
    forward through the root module first`. FSDP1 ends with ``AssertionError: Non-root FSDP
    instance's `_is_root` should not have been set yet``.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - pytorch/pytorch PR #117881 and #86343.
    """

    code = "FSDP110"
    name = "submodule-before-root"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for early in early_calls(groups):
            if early.call.site not in seen:
                seen.add(early.call.site)
                yield self._finding(groups, early.part, early.holder, early.call, early.later)

    def _finding(
        self, groups: Groups, part: str, root: str, call: Called, later: Called
    ) -> Finding:
        trace = groups.trace
        name, root_name = groups.name(trace.unwrap(part)), groups.name(trace.unwrap(root))
        return self.finding(
            call,
            f"{name} is called before {root_name}, which contains it and is sharded too: the later "
            f"call of {root_name} fails",
            help=f"Call {root_name} first, or move this call into a method of {root_name} that "
            f"`register_fsdp_forward_method` registers.",
            because=[(later, "model called here")],
        )
