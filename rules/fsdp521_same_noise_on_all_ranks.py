"""FSDP521: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import BackwardRun, SameNoise, Trace
from fsdplint.trace.queries.data_parallelism import only_data_parallel


class SameNoiseOnAllRanks(Rule):
    """All ranks draw the same random numbers for other samples.

    ## What it does
    Finds random numbers, such as the noise and the time steps of a diffusion model or the masks of a denoiser, that the
    program draws while it trains, and computes with the batch of each rank, also where it prepares the batch under `torch.no_grad()`, or gives to
    a model of a library together with this batch, if the seed of the generator is the same on all ranks.

    The rule looks at tensors that `torch.randn`, `torch.rand`, `torch.randint` and their `_like` forms make, or that
    `torch.empty_like(batch).normal_()` fills, from a
    `torch.Generator` or from the generator of the process after `torch.manual_seed(seed)`. It looks neither at numbers
    that are drawn once or are the same in each turn of a loop, at single numbers, which may have to be the same on all
    ranks, nor at what a module draws in its own methods, such as dropout. Programs with another parallelism than data
    parallelism are not reported.

    ## Why is this bad?
    FSDP averages the gradients of the ranks. With the same noise on all ranks, the average over N ranks has the noise
    of one: it is less accurate, more so with more GPUs, and no error shows it. On two ranks, the program prints:

        noise on rank 0: -1.13 -1.15 -0.25 0.43, on rank 1: -1.13 -1.15 -0.25 0.43

    Add the rank to the seed of the noise: `generator.manual_seed(seed + rank)`. Keep the seed with which the model is
    initialized the same on all ranks, or seed again once the model is sharded.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/notes/randomness.html
    - https://huggingface.co/docs/accelerate/package_reference/utilities#accelerate.utils.set_seed (`device_specific`)
    """

    code = "FSDP521"
    name = "same-noise-on-all-ranks"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not only_data_parallel(trace):
            return
        seen = set()
        for event in trace.of(SameNoise):
            trained = next((one for one in trace.after(event, BackwardRun) if one.collective), None)
            if trained is None or not event.in_loop or event.drawn in seen:
                continue
            seen.add(event.drawn)
            yield self.finding(
                event,
                "all ranks draw the same numbers here, and use them for batches of their own: the seed is the same on all "
                "ranks",
                help="Add the rank to the seed of these numbers, after the model is initialized.",
                because=[(trained, "trained on here")],
                site=event.drawn,
            )
