"""FSDP522: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import LoaderBuilt, Trace
from fsdplint.trace.queries.data_passes import training_passes


class WorkersRepeatStream(Rule):
    """Each worker of a loader reads the whole stream, so every sample comes several times.

    ## What it does
    Finds a `DataLoader` with several workers (`num_workers=2` or more) over an `IterableDataset` of the program
    whose code does not ask for the worker, and that has no `worker_init_fn`, if a sharded model trains on it.

    A stream that draws random numbers of the process, or calls code that is out of sight, is not reported: the
    workers may get other samples.

    ## Why is this bad?
    Each worker gets a copy of the dataset and iterates it by itself. There is no error: an epoch has each
    sample as often as there are workers. A stream that only splits by rank is no exception. Two ranks with two
    workers each print:

        read 16 samples, 8 of them different

    Split by worker, too: `info = torch.utils.data.get_worker_info()` has `id` and `num_workers`.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/data.html (`IterableDataset`: "each worker process" gets "a different
      copy of the dataset object")
    """

    code = "FSDP522"
    name = "workers-repeat-stream"
    severity = Severity.ERROR
    static_only = True

    def check(self, trace: Trace) -> Iterable[Finding]:
        repeated = {one.loader: one for one in trace.of(LoaderBuilt) if one.repeated_by_workers}
        seen = set()
        for begun in training_passes(trace) if repeated else ():
            built = repeated.get(begun.loader)
            if built is None or built.site in seen:
                continue
            seen.add(built.site)
            yield self.finding(
                built,
                "each worker of this loader reads the whole stream, so every sample comes several times",
                help="Let the stream give each worker its part: see `torch.utils.data.get_worker_info()`.",
                because=[(begun, "trained on here")],
            )
