"""FSDP603: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    Loaded,
    ModuleBuilt,
    ModuleMoved,
    Sharded,
    StateLoaded,
    Trace,
    first,
)
from fsdplint.trace.queries.common import class_name, is_under_varying_test


class MemoryBeforeSharding(Rule):
    """A model on the meta device gets its memory on an accelerator before it is sharded.

    ## What it does
    Finds `model.to_empty(device="cuda")` before `fully_shard(model)`, for a model that was built on the
    meta device.

    A model that loads weights before the sharding is not reported, and neither is memory on the CPU.

    ## Why is this bad?
    The meta device saves the memory of the whole model until each rank has its part. `to_empty` before the
    sharding allocates all of it on each rank: with two ranks, a layer of 64 elements had 64 elements on
    each rank at that point, and 32 if `to_empty` came after `fully_shard`. A model that is too large for
    one device runs out of memory here.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (meta-device initialisation)
    - pytorch/torchtitan: the model is parallelised on the meta device, then `to_empty`
    """

    code = "FSDP603"
    name = "memory-before-sharding"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete:
            return
        on_meta = {event.module for event in trace.of(ModuleBuilt) if event.on_meta}
        seen = set()
        for event in trace.of(ModuleMoved):
            if event.method != "to_empty" or event.module not in on_meta or event.site in seen:
                continue
            sharded = _sharded_next(trace, event)
            if sharded is None or not _on_accelerator(event) or is_under_varying_test(event):
                continue
            seen.add(event.site)
            yield self.finding(
                event,
                f"each rank allocates the whole `{class_name(trace, event.module)}` on its device before "
                f"`fully_shard` leaves it a part",
                help="Call `fully_shard` on the meta device first, then `to_empty` and the initialisation.",
                because=[(sharded, "sharded here")],
            )


def _on_accelerator(event: ModuleMoved) -> bool:
    kind = (event.device or "").partition(":")[0]
    return kind in ("cuda", "xpu", "npu", "hpu", "mtia")


def _sharded_next(trace: Trace, moved: ModuleMoved) -> Sharded | None:
    """The first sharding of a module or a part of it, if nothing was sharded or loaded before."""
    parts = set(trace.submodules(moved.module))
    if parts & set(trace.shardings(moved)):
        return None
    found = first(e for e in trace.after(moved, Sharded) if parts & {e.module, *e.group})
    if found is None or trace.sharding(moved.module) is None:
        return None
    loads = (e for e in trace.after(moved, Loaded, StateLoaded) if e.index < found.index)
    return None if any(True for _ in loads) else found
