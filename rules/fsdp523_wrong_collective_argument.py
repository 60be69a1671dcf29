"""FSDP523: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Collective, Trace

_WRONG = {
    "one tensor": (
        "all results of `{api}` go to the same tensor, which ends with that of one rank",
        "The results overwrite each other, without an error.",
        "Make a tensor for each rank: `[torch.empty_like(x) for _ in range(world_size)]`.",
    ),
    "list": (
        "each rank passes a list to `{api}`, which only one may pass",
        "torch raises an error on the other ranks, and the one waits for them.",
        "Pass the list on the rank that sends or receives it, and None on the others.",
    ),
    "rank": (
        "`{api}` names one rank by its number among all ranks, which only one of the groups has",
        "torch raises an error on the ranks of the other groups.",
        "Pass `group_src=0` or `group_dst=0`, or the rank of `dist.get_global_rank(group, 0)`.",
    ),
    "unread": (
        "nothing reads what the other ranks receive from `{api}`: each goes on with its own object",
        "The ranks may go on with different objects, without an error.",
        "Keep the list, and read its elements after the call.",
    ),
}


class WrongCollectiveArgument(Rule):
    """A collective gets a list that cannot hold its result, or a rank that its group does not have.

    ## What it does
    Finds mistakes in the arguments of collectives that all ranks run:

    - `all_gather` or `gather` into a list that has the same tensor several times:
      `[torch.empty_like(x)] * world_size`.
    - `gather`, `gather_object` or `scatter` with a list on each rank. Only the rank that receives (or sends) may
      pass one.
    - `broadcast_object_list` with a list that nothing reads afterwards: a display in the call, or a local name that
      has no other use.
    - `src=0` or `dst=0` together with the group of one dimension of a mesh of several: `mesh.get_group("dp")`. The
      number is that of a rank among all ranks, and the other groups of the dimension do not have it.

    ## Why is this bad?
    In the first case, there is no error: the results overwrite each other, and all elements are what the last rank
    has sent. In the second and the fourth case, torch raises an error on the other ranks, and the first one
    waits. In the third case, each rank goes on with its own object. Two ranks with the numbers 0 and 1 print:

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
                message, why, help = _WRONG[event.wrong]
                yield self.finding(event, message.format(api=event.api), why=why, help=help)
