"""FSDP604: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Sharded, Site, Trace
from fsdplint.trace.queries.common import class_name, is_under_varying_test

_LAYERS = {f"torch.nn.{name}" for name in ("Linear", "Conv1d", "Conv2d", "Conv3d", "LayerNorm")}

_CONTAINERS = {"ModuleList", "ModuleDict", "Sequential"}


class UnitsOfSingleLayers(Rule):
    """The single layers of a block are sharded, each as a unit of its own.

    ## What it does
    Finds `fully_shard` of two or more layers of `torch.nn` (`Linear`, convolutions, `LayerNorm`) in one of
    the repeated blocks of a model.

    Blocks that are sharded whole are fine, and so is a part of a block that is no single layer. Where a block
    is a unit beside its layers, a test that this rule cannot decide may choose between them, such as a number
    of parameters or a class name from the settings: that is no finding either.

    ## Why is this bad?
    Each unit has its own all-gather in the forward and the backward, and its own reduce-scatter. Small
    collectives take most of their time to start, and hide behind no computation. A model of two blocks
    with two layers each ran 4 all-gathers in a forward with a unit for each layer, and 2 with a unit for
    each block.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (communication groups)
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (one unit for each layer of the
      transformer)
    """

    code = "FSDP604"
    name = "units-of-single-layers"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete:
            return
        layers: dict[str, list[Sharded]] = {}  # by block
        for event in trace.of(Sharded):
            block = _block_around(trace, event)
            if block is not None:
                layers.setdefault(block, []).append(event)
        seen = set[Site]()
        sharded = {event.module for event in trace.of(Sharded)}
        for block, events in layers.items():
            units = {event.module for event in events}
            if (
                len(units) < 2
                or block in sharded
                or events[0].site in seen
                or trace.family_escaped(block, trace.first_backward)
            ):
                continue
            seen.update(event.site for event in events)
            yield self.finding(
                events[0],
                f"{len(units)} layers of each `{class_name(trace, block)}` are units of their own, with a "
                f"collective each",
                help=f"Call `fully_shard` on each `{class_name(trace, block)}` instead.",
                because=[
                    (event, "a unit, too") for event in events[1:3] if event.site != events[0].site
                ],
            )


def _block_around(trace: Trace, event: Sharded) -> str | None:
    """The repeated block that holds a sharded layer; None if the module is no single layer."""
    info = trace.modules.get(event.module)
    if info is None or event.group or is_under_varying_test(event) or event.ranks.partial:
        return None
    if not trace.certainty.of_module(event):
        return None
    if info.qualified_class not in _LAYERS or info.repeated:
        return None
    around = [one for one in trace.ancestors(event.module) if _is_block(trace, one)]
    return around[-1] if around else None


def _is_block(trace: Trace, module: str) -> bool:
    """Whether a module is one of several of its class in a container."""
    info = trace.modules[module]
    if info.container or not info.children:
        return False
    holders = (trace.modules[one] for one in trace.ancestors(module))
    alike = (
        sum(trace.modules[child].class_name == info.class_name for child in one.children.values())
        for one in holders
        if module in one.children.values() and one.class_name in _CONTAINERS
    )
    return info.repeated or any(count > 1 for count in alike)
