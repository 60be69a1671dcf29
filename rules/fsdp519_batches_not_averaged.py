"""FSDP519: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import names
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Called,
    ContextParallel,
    Event,
    SamplerBuilt,
    TensorParallel,
    Trace,
)
from fsdplint.trace.queries.batches_of_groups import BatchesOfGroup, batches_of_groups
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.unaveraged_batches import (
    Unaveraged,
    unaveraged_batches,
    unaveraged_parts,
)


class BatchesNotAveraged(Rule):
    """Ranks whose gradients nothing averages train on different batches.

    ## What it does
    Finds a model, or units of it, that `fully_shard` shards over a part of the mesh (`mesh["dp"]`), while each of all
    ranks gets other data: from a `DistributedSampler` over all ranks, from a slice such as `data[rank::world_size]`,
    or from a generator with a seed of the rank.

    The ranks along the other dimensions either compute together by tensor parallelism (`parallelize_module`), or
    nothing in the program uses these dimensions. A program that sends data between ranks, reduces gradients by
    hand, makes DTensors of its inputs, or has a mesh for another kind of parallelism is not reported. A real run
    shows samplers only.

    Also finds data that the position in a dimension chooses (`mesh["tp"].get_local_rank()`), and data of each of all
    ranks, if tensor parallelism or `context_parallel` goes over this dimension, whatever the mesh of FSDP is. A
    dimension that `_flatten` made of several stands for these.

    Also finds such a model whose input is a part of each sample, as with context parallelism: the position in
    another dimension chooses `tokens.chunk(size, dim=1)[position]`, and nothing adds up the gradients along this dimension.

    ## Why is this bad?
    There is no error. The ranks of a tensor parallel group each hold a part of a matrix, and add up parts of
    products with different inputs. Two ranks of such a group print the output of a model for a batch of rank 0,
    while rank 1 has another batch and when both have the same:

        the model said -0.0384 on its own batch, -0.1099 without the other rank's

    Without tensor parallelism, the ranks along the other dimension average their gradients with none of the
    others. Each of them trains a model of its own, and a checkpoint has one of these. After 4 steps on two
    ranks, the weights summed up to -0.4805 on one rank and to -0.4838 on the other.

    Split the data by the position in the mesh that FSDP gets:

        DistributedSampler(data, num_replicas=mesh["dp"].size(), rank=mesh["dp"].get_local_rank())

    or, if the other dimension is for replicas (HSDP), pass the whole mesh to `fully_shard`.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/tutorials/intermediate/TP_tutorial.html (the same input for the ranks of a group)
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`mesh`)
    """

    code = "FSDP519"
    name = "batches-not-averaged"
    severity = Severity.ERROR
    all_configurations = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for found in unaveraged_batches(trace):
            at = found.trained if found.parallel is not None else found.shard
            if at.site not in seen:
                seen.add(at.site)
                yield self._finding(trace, found)

        for group in batches_of_groups(trace):
            if group.trained.site not in seen:
                seen.add(group.trained.site)
                yield self._of_group(group)

        for call, shard, split in unaveraged_parts(trace):
            if shard.site not in seen:
                seen.add(shard.site)
                finding = self.finding(
                    shard,
                    f"nothing adds up the gradients of `{class_name(trace, shard.module)}` along `{split.dimension}`, "
                    "and each rank there gets another part of the samples",
                    help="Shard over these ranks, too: pass the flattened dimensions of the mesh to `fully_shard`.",
                    because=[(call, "trained on here")],
                )
                finding.related = (*finding.related, (split.site, "the part is chosen here"))
                yield finding

    def concerns(self, trace: Trace, finding: Finding) -> bool:
        """Whether a trace shards over more of the mesh there, or does not split over all ranks."""
        found, *others = finding.events
        for parallel in others:
            if isinstance(parallel, ContextParallel):
                return any(one.site == parallel.site for one in trace.of(ContextParallel))
        same = [one for one in trace if type(one) is type(found) and one.site == found.site]
        return any(_contradicts(one, found) for one in same)

    def _of_group(self, found: BatchesOfGroup) -> Finding:
        tensor = isinstance(found.parallel, TensorParallel)
        kind = "tensor parallelism" if tensor else "context parallelism"
        finding = self.finding(
            found.trained,
            f"the position in {names(found.dimensions, 'dimension')} chooses the data of a rank, but the ranks along it "
            f"compute together by {kind} and need the same",
            help="Split the data by the position in the data-parallel dimensions alone.",
            because=[(found.parallel, kind)],
        )
        if found.data is not None:
            finding.related = (*finding.related, (found.data, "each rank gets its own data here"))
        return finding

    def _finding(self, trace: Trace, found: Unaveraged) -> Finding:
        over = names(found.dimensions, "dimension")
        trained = (
            "split over all ranks" if isinstance(found.trained, SamplerBuilt) else "trained on here"
        )
        if found.parallel is not None:
            finding = self.finding(
                found.trained,
                f"each rank gets other data, but the ranks along {over} compute together by tensor parallelism "
                "and need the same",
                help="Split the data by the position in the mesh that `fully_shard` gets.",
                because=[(found.parallel, "tensor parallelism"), (found.shard, "sharded here")],
            )
        else:
            finding = self.finding(
                found.shard,
                f"nothing averages the gradients of `{class_name(trace, found.shard.module)}` along {over}, and "
                "these ranks train on different batches",
                help="Pass the whole mesh to `fully_shard`.",
                because=[(found.trained, trained)],
            )
        if found.data is not None:
            finding.related = (*finding.related, (found.data, "each rank gets its own data here"))
        return finding


def _contradicts(event: Event, found: Event) -> bool:
    """Whether another dimension is sharded, or ranks at one position certainly get the same data.

    It contradicts nothing that the data are not known, as after a checkpoint was loaded.
    """
    if isinstance(event, SamplerBuilt) and isinstance(found, SamplerBuilt):
        return event.over_all != found.over_all
    if isinstance(event, Called):
        return event.own_input is None and event.split_by is not None
    return getattr(event, "dims", ()) != getattr(found, "dims", ())
