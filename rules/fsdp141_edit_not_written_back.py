"""FSDP141: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Fsdp1Used, Trace, Wrapped
from fsdplint.trace.queries.common import class_name

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class EditNotWrittenBack(Rule):
    """A block of `summon_full_params(writeback=False)` changes parameters, and FSDP1 drops the changes.

    ## What it does
    Finds blocks of FSDP1's `summon_full_params` with `writeback=False` that change gathered parameters in
    place, for example with `weight.mul_(...)` or `weight.data = ...`. A block that also runs the model, takes
    a state or calls a collective may need the changes for that time only, and is not reported.

    ## Why is this bad?
    The block changes gathered copies. At its end FSDP1 frees them without writing them into the shards, and
    there is no error. Two ranks set a bias to 1 in such a block, and print its sum before and after:

        in the block: 4.0, after it: 0.0

    ## Fix safety
    Unsafe: the fix passes `writeback=True`, so that the program trains with the changed parameters.

    ## Since
    All versions of FSDP1.

    ## References
    - https://docs.pytorch.org/docs/stable/fsdp.html (`summon_full_params`, `writeback`)
    """

    code = "FSDP141"
    name = "edit-not-written-back"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Fsdp1Used):
            if not event.edits_lost or event.module is None or event.site in seen:
                continue
            if not trace.complete or _may_be_whole(trace, event):
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"this block changes parameters of `{class_name(trace, event.module)}`, and "
                "`writeback=False` drops the changes",
                help="Leave `writeback` as it is by default.",
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import argument, call_at

        found = call_at(finding.site)
        if found is None:
            return None
        source, call = found
        given = argument(call, 2, "writeback")
        if given is None or source.code(given.value) != "False":
            return None
        rewrite = Rewrite()
        rewrite.replace(source, given.value, "True")
        return rewrite.fix("Write the changes back", Safety.UNSAFE)


def _may_be_whole(trace: Trace, event: Fsdp1Used) -> bool:
    """Whether each rank may hold whole parameters, which a block changes themselves."""
    return any(
        str(wrapped.options.get("sharding_strategy", "")).endswith(("NO_SHARD", "?"))
        for wrapped in trace.before(event, Wrapped)
    )
