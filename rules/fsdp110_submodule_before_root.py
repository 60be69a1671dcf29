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
    Finds programs in which the first call of a sharded model goes to one of its sharded submodules,
    from outside (to compute features once, say), and which call the model afterwards.

    After the first call of the model, calls of its parts are fine. So they are where the model is never
    called, or where it is not sharded itself, and with FSDP1 after its state was taken or loaded.

    ## Why is this bad?
    The first sharded module that is called becomes the root. The call of the real root then ends with
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
        name, whole = groups.name(trace.unwrap(part)), groups.name(trace.unwrap(root))
        return self.finding(
            call,
            f"{name} is called before {whole}, which contains it and is sharded too: the call of "
            f"{whole} will fail",
            help=f"Call {whole} first, or run this in a method of it that is registered with "
            f"`register_fsdp_forward_method`.",
            because=[(later, "the whole model is called here")],
        )
