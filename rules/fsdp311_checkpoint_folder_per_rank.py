"""FSDP311: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Saved, Trace
from fsdplint.trace.queries.common import whole_file


class CheckpointFolderPerRank(Rule):
    """`torch.distributed.checkpoint.save` writes into another folder on each rank.

    ## What it does
    Finds `torch.distributed.checkpoint.save` and `async_save` of all ranks together whose path depends on
    the rank, or on the time at which each rank computes it. `no_dist=True` writes a checkpoint of each rank by itself and is fine.

    ## Why is this bad?
    One save of all ranks makes one checkpoint: each rank writes its shards, and one rank writes the
    metadata that says where they are. With a folder for each rank, only one folder has the metadata, and
    that folder lacks the shards of the other ranks. The save succeeds; the load fails:

        CheckpointException: CheckpointException ranks:dict_keys([0, 1])
        FileNotFoundError: [Errno 2] No such file or directory: '.../rank0/__1_0.distcp'

    A path with the time in seconds is often the same on all ranks by chance, and sometimes not. Send the
    path of rank 0 to all ranks with `dist.broadcast_object_list`.

    ## Since
    torch 2.0.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    - https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html
    """

    code = "FSDP311"
    name = "checkpoint-folder-per-rank"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Saved):
            if not event.collective or not event.per_rank or whole_file(event.api):
                continue
            if event.ranks.partial or event.site in seen:
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"`{event.api.rpartition('.')[2]}` writes one checkpoint of all ranks, but its path "
                f"differs between ranks",
                help="Use the same folder, which all ranks can reach, on every rank.",
            )
