"""FSDP523: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Collective, Trace

_WRONG = {
    "one tensor": (
        "all results of `{api}` go to the same tensor, which ends with that of one rank",
        "Make a tensor for each rank: `[torch.empty_like(x) for _ in range(world_size)]`.",
    ),
    "list": (
        "each rank passes a list to `{api}`, which only one may pass",
        "Pass the list on the rank that sends or receives it, and None on the others.",
    ),
    "unread": (
        "nothing reads what the other ranks receive from `{api}`: each goes on with its own object",
        "Keep the list, and read its elements after the call.",
    ),
}


class WrongCollectiveArgument(Rule):
    """A collective gets a list that cannot hold its result, or whose result nothing reads.

    ## What it does
    Finds three mistakes with the lists of collectives that all ranks run:

    - `all_gather` or `gather` into a list that has the same tensor several times:
      `[torch.empty_like(x)] * world_size`.
    - `gather`, `gather_object` or `scatter` with a list on each rank. Only the rank that receives (or sends) may
      pass one.
    - `broadcast_object_list` with a list that nothing reads afterwards: a display in the call, or a local name that
      has no other use.

    ## Why is this bad?
    In the first case, there is no error: the results overwrite each other, and all elements are what the last rank
    has sent. In the second case, torch raises an error on the other ranks, and the first one waits. In the third
    case, each rank goes on with its own object. Two ranks with the numbers 0 and 1 print:

        gathered: [1.0, 1.0]

    ## Since
    All versions.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html (`all_gather`, `gather`, `broadcast_object_list`)
    """

    code = "FSDP523"
    name = "wrong-collective-argument"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterable[Finding]:
        seen = set()
        for event in trace.of(Collective):
            if event.wrong and event.site not in seen and not event.ranks.partial:
                seen.add(event.site)
                message, help = _WRONG[event.wrong]
                yield self.finding(event, message.format(api=event.api), help=help)
