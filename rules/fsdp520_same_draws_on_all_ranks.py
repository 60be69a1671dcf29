"""FSDP520: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.shared_batches import shared_batches, trains_on_rank_data

_SAME = "every rank draws the same batches here: the seed is the same on all ranks"
_ADD = "Add the rank to the seed of the data, and keep the seed of the model the same on all ranks."
_SHIFTED = (
    "ranks draw the batches of other ranks again: the seed adds the rank to the number of the turn"
)
_MULTIPLY = "Use a seed that no other rank gets in another turn: `turn * world_size + rank`."


class SameDrawsOnAllRanks(Rule):
    """Every rank draws the same random batches.

    ## What it does
    Finds batches that a generator draws (`torch.Generator`, `numpy.random.default_rng`, `random.Random`) whose
    seed is the same on all ranks, if a sharded model trains on them. It also finds `torch.randint(len(data), ...)` after
    `torch.manual_seed` with the same seed. Also finds a seed that is the sum of the rank and of the number of the turn
    (`generator.manual_seed(step + rank)`): rank 0 draws in turn 1 what rank 1 has drawn in turn 0.

    A program is reported only if this is certain: nothing that it computes depends on the rank (seeds, indices, slices,
    arguments of library functions), it draws from no other generator, it calls no library that may split data, it uses no
    `DataLoader` (FSDP511 looks at those), and the model is sharded over a mesh of one dimension. Tests of the rank,
    devices, messages and what `torch.save` writes do not count.

    ## Why is this bad?
    FSDP is data parallel: it averages the gradients of the ranks, so every rank should have other samples.
    With the same batches on all ranks, the average equals the gradient of one rank, and N GPUs train no
    faster than one. There is no error, and the loss looks normal. Two ranks print:

        first batch on rank 0: 4 19 11 7, on rank 1: 4 19 11 7

    Add the rank to the seed of the data: `generator.manual_seed(seed + rank)`. Keep the seed with which the model is
    initialized the same. If the seed changes with the step, use numbers that no other rank gets:
    `seed + step * world_size + rank`.

    ## Since
    All versions.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.Generator.html
    - https://github.com/karpathy/nanoGPT, `train.py`, which adds the rank to its seed
    """

    code = "FSDP520"
    name = "same-draws-on-all-ranks"
    severity = Severity.WARNING
    all_configurations = True
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        found = shared_batches(trace)
        if found is None:
            return
        yield self.finding(
            found.drawn,
            _SHIFTED if found.drawn.shifted else _SAME,
            help=_MULTIPLY if found.drawn.shifted else _ADD,
            because=[(found.backward, "trained on here")],
        )

    def concerns(self, trace: Trace, finding: Finding) -> bool:
        """Whether ranks may have data of their own where a trace trains a sharded model.

        A trace that does not train, or not in a data-parallel way only, contradicts no finding.
        """
        return trains_on_rank_data(trace)
