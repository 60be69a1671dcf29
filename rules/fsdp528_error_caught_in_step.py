"""FSDP528: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import ErrorCaught, Trace


class ErrorCaughtInStep(Rule):
    """A loop catches an error in a training step, and goes on with the next batch.

    ## What it does
    Finds `try` in a loop around the forward or the backward of a sharded model, with an `except` after which
    the loop goes on, such as one that skips a batch for which the memory was too small.

    It does not find handlers that raise, return, or leave the loop or the program, those that set a flag by which the
    loop ends (`failed = True`, `if failed: break`), and those of errors that come on all ranks at once (`ImportError`,
    `AttributeError`, `StopIteration`). Nor does it find those of error classes of the program itself, which may raise
    them on all ranks.

    ## Why is this bad?
    An error mostly comes on one rank. This rank leaves out the rest of the collectives of the step, and the others
    wait for it, or their collectives meet those of its next step. Two ranks hang, if one of them skips a batch without
    a target.

    Catch errors where they come from, such as in the dataset, and give the rank another batch. Let errors in the
    step end the program: torchrun starts it again from the last checkpoint.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/elastic/errors.html (error propagation)
    """

    code = "FSDP528"
    name = "error-caught-in-step"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterable[Finding]:
        seen = set()
        for event in trace.of(ErrorCaught):
            waiting = trace.events[event.waiting] if event.waiting is not None else None
            if waiting is None or event.site in seen or event.ranks.partial:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                "the loop goes on after an error on one rank, and the other ranks wait for it in the collectives "
                "of the step",
                help="Catch the error before the forward, and give the rank another batch.",
                because=[(waiting, "all ranks have to run this")],
            )
