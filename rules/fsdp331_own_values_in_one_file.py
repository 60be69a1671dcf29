"""FSDP331: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Saved, Trace
from fsdplint.trace.queries.data_parallelism import has_one_rank


class OwnValuesInOneFile(Rule):
    """All ranks write the same file, each with values of its own.

    ## What it does
    Finds `torch.save` of values that differ between ranks, to a path that is the same on all ranks and that all ranks
    write: the state of a random generator, outputs of a model for the rank's own data, samples, the number of the rank.

    A path with the rank or the host in it, a buffer or temporary file of the process, a folder of the rank, a file that
    one rank writes, values that a collective has gathered, and numbers that only report, such as the mean of a loss,
    are fine.

    ## Why is this bad?
    The ranks open and write the file at the same time. It holds the values of the rank that was last, and those of all
    other ranks are lost. If the writes overlap, the file is damaged. On two ranks, where rank 1 is last:

        rank 0 read the outputs of rank 1

    Put the rank into the path, or gather the values and let one rank write them.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html (`gather_object`)
    - https://docs.pytorch.org/docs/stable/generated/torch.save.html
    """

    code = "FSDP331"
    name = "own-values-in-one-file"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        if has_one_rank(trace):
            return
        seen = set()
        for event in trace.of(Saved):
            if not event.own_values or event.per_rank or event.ranks.partial or event.site in seen:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                "all ranks write this file, each with values of its own: it keeps those of one rank",
                help="Put the rank into the path, or gather the values and let one rank write them.",
            )
