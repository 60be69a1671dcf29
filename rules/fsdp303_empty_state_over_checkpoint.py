"""FSDP303: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Saved, StateTaken, Trace
from fsdplint.trace.queries.common import perhaps_one_rank, whole_file
from fsdplint.trace.queries.data_parallelism import begins_process_group

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

_MESSAGE = "every rank writes this file, but only rank 0 has the state: the others write an empty one over it"
_HELP = "Write it under `if dist.get_rank() == 0:`."


class EmptyStateOverCheckpoint(Rule):
    """Every rank writes a state dict that only rank 0 has to the same file.

    ## What it does
    Finds `torch.save` without a test of the rank, of a state dict that is empty on all ranks but 0:
    `get_model_state_dict` with `full_state_dict=True, cpu_offload=True`, FSDP1's `rank0_only=True`, and a dict to
    which the program adds the gathered tensors on one rank alone.

    ## Why is this bad?
    The other ranks write an empty dict over the checkpoint. Which rank is last is a race: the same
    program leaves a good file in one run and `{}` in the next. With two ranks on one machine, 4 of 12
    files were empty. There is no error until the file is read.

    ## Fix safety
    Safe: the write moves under `if dist.get_rank() == 0:`. The state is still gathered on all ranks.

    ## Since
    torch 2.2, where `StateDictOptions` came.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`StateDictOptions`:
      `full_state_dict` with `cpu_offload` gathers on rank 0 only)
    - pytorch/examples, `distributed/FSDP2/checkpoint.py` writes on rank 0 only
    """

    code = "FSDP303"
    name = "empty-state-over-checkpoint"
    severity = Severity.ERROR
    fixable = Safety.SAFE
    all_configurations = True

    def check(self, trace: Trace) -> Iterable[Finding]:
        if not begins_process_group(trace):
            return  # one process only
        for event in trace.of(Saved):
            if event.per_rank or perhaps_one_rank(event) or not whole_file(event.api):
                continue
            for taken in trace.before(event, StateTaken):
                if (
                    taken.rank0_only
                    and taken.state in event.states
                    and not taken.ranks.partial
                    and not _has_further_test(taken, event)
                ):
                    yield self._finding(event, taken)
                    break
            else:
                if event.one_rank and not event.ranks.partial:
                    yield self.finding(event, _MESSAGE, help=_HELP)

    def concerns(self, trace: Trace, finding: Finding) -> bool:
        """Whether a trace writes the file on one rank only, by the same calls.

        The rank is a constant then with the settings of the finding: those of a single process.
        """
        return any(
            event.site == finding.site
            and event.ranks.partial
            and event.stack == finding.events[0].stack
            for event in trace.of(Saved)
        )

    def _finding(self, event: Saved, taken: StateTaken) -> Finding:
        return self.finding(
            event,
            _MESSAGE,
            help=_HELP,
            because=[(taken, "taken on all ranks, empty on all but rank 0")],
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.rank_guard import on_rank0
        from fsdplint.fixes.syntax import call_at

        found = call_at(finding.site)
        rewrite = Rewrite()
        if found is None or not on_rank0(rewrite, *found):
            return None
        return rewrite.fix("Write on rank 0 only", Safety.SAFE)


def _has_further_test(taken: StateTaken, event: Saved) -> bool:
    """Whether the write is under a test that the call that takes the state is not under.

    The test may depend on the rank (`if args.save_logs:`), or test the state itself.
    """
    return any(guard not in taken.guards for guard in event.guards)
