"""FSDP529: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import SetOrderUsed, Trace


class OrderOfSet(Rule):
    """The ranks rely on the order of a set of texts, which is another one in each process.

    ## What it does
    Finds a loop over a set of texts that runs a collective for each of them (`for name in set(metrics):`), and a list
    made of such a set of which each rank takes its part (`list(names)[rank::world_size]`). A barrier for each element
    is fine.

    ## Why is this bad?
    Python hashes texts with another seed in each process. There is no error: the first elements of the ranks are
    different, so collectives add up values of different names, and parts of the ranks overlap. Two ranks that average
    the same numbers of four names, and compare the result with them, print:

        mixed up

    Sort the set: `for name in sorted(metrics):`.

    ## Since
    All versions.

    ## References
    - https://docs.python.org/3/using/cmdline.html (`PYTHONHASHSEED`)
    """

    code = "FSDP529"
    name = "order-of-set"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterable[Finding]:
        seen = set()
        for event in trace.of(SetOrderUsed):
            if event.site in seen or event.ranks.partial:
                continue
            seen.add(event.site)
            what = "each rank takes its part of a list in the order of a set of texts"
            if event.runs_collectives:
                what = "a collective runs for each element of a set of texts"
            yield self.finding(
                event,
                f"{what}, and this order differs between the ranks",
                help="Sort the elements: `sorted(...)`.",
            )
