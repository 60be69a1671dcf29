"""FSDP329: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Saved, Trace
from fsdplint.trace.queries.data_parallelism import has_one_rank


class OwnValueUnderOneKey(Rule):
    """A distributed checkpoint keeps the value of one rank where each rank has its own.

    ## What it does
    Finds `torch.distributed.checkpoint.save` of a dict in which a value differs between ranks, but has the same key on
    all of them: the number of the rank, the place of the rank in its own data, random numbers of the rank, the state of
    its generator. A value is also found in the dict that an object's `state_dict()` returns.

    DTensors are fine, since a checkpoint has the part of each rank. A key with the rank in it, a folder for each
    rank, the time, and a loss or another number that is computed of a whole tensor are fine, too.

    ## Why is this bad?
    The ranks agree on who writes which key, and a key is written once. `load` gives the same value to all ranks, so
    that a resumed rank goes on with the state of another one: it reads the data of that rank again, or draws its random
    numbers. There is no error. After a load on two ranks, the program prints:

        reader 1 on rank 0

    Put the rank into the key, f"loader.{rank}", or gather the values of all ranks in a list under one key. A checkpoint
    of N ranks can then only be loaded on N ranks, unless the program handles other numbers.

    ## Since
    torch 2.1, the first with this function in its present form.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    - https://github.com/pytorch/torchtitan (`components/dataloader.py` has the rank in the key of its state)
    """

    code = "FSDP329"
    name = "own-value-under-one-key"
    severity = Severity.WARNING
    static_only = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        if has_one_rank(trace):
            return
        seen = set()
        for event in trace.of(Saved):
            if not event.own_entries or event.per_rank or event.ranks.partial or event.site in seen:
                continue
            seen.add(event.site)
            several = len(event.own_entries) > 1
            names = ", ".join(f'"{name}"' for name in event.own_entries)
            yield self.finding(
                event,
                f"each rank has {'values' if several else 'a value'} of its own under the key{'s' * several} {names}, "
                "and the checkpoint keeps that of one rank",
                help='Put the rank into the key: f"loader.{rank}".',
            )
