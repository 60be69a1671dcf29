"""FSDP107: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import ModuleCopied, Site, Trace, Wrapped
from fsdplint.trace.groups import Groups, Shard, shard_events, sharded_by


class DeepcopyOfSharded(Rule):
    """A sharded model is copied with `copy.deepcopy`, or by an API that does so.

    ## What it does
    Finds `copy.deepcopy(model)`, `AveragedModel(model)` and other copies of a module that is sharded,
    by FSDP2 or FSDP1, or that has a sharded module in it, and of the module in an FSDP1 wrapper. Copies
    made before sharding are fine, and so is a deepcopy of a state dict.

    ## Why is this bad?
    FSDP2 refuses: `AssertionError: FSDP does not support deepcopy. Please use state dict for
    serialization.` FSDP1 fails inside the copy, with `TypeError: cannot pickle 'module' object` with
    `use_orig_params=True`, and otherwise with a `RuntimeError` about views or graph leaves.

    There is no fix. Make the copy (for an exponential moving average or a reference model) before
    sharding and shard it in the same way, or fill it from a state dict.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - torch source, `torch/distributed/fsdp/_fully_shard/_fully_shard.py`, `_unimplemented_deepcopy`.
    - pytorch/pytorch#82070 and #149138: copy first, then shard both.
    """

    code = "FSDP107"
    name = "deepcopy-of-sharded"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen: set[Site] = set()
        for event in trace.of(ModuleCopied):
            copied = trace.module(event.module)
            if copied.repeated and not copied.children_known:
                continue  # one of several modules that are not followed; others may be sharded
            parts = set(trace.submodules(event.module))
            shards = [
                shard for shard in shard_events(trace, before=event) if parts & _held_by(shard)
            ]
            if not shards or event.site in seen:
                continue
            seen.add(event.site)
            is_sharded = any(event.module in _held_by(shard) for shard in shards)
            yield self.finding(
                event,
                f"`{event.api}` of {groups.name(trace.unwrap(event.module))}, "
                f"{'which is' if is_sharded else 'parts of which are'} sharded: FSDP modules cannot be copied",
                help="Copy the model before sharding it, and shard the copy in the same way.",
                because=[(shards[-1], "sharded here")],
            )


def _held_by(shard: Shard) -> set[str]:
    """The modules whose parameters a sharding holds: with FSDP1, also the module in the wrapper."""
    inside = {shard.inner} if isinstance(shard, Wrapped) else set()
    return {*sharded_by(shard), *inside}
