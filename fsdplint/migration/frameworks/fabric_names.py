"""The names of Fabric's strategy for FSDP1 in a file."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.qualified_names import references, symbols_in

STRATEGY = "FSDPStrategy"
NAMES = ("fsdp", "fsdp_cpu_offload")  # of the strategy, as an argument of Fabric
HOMES = ("lightning.fabric.strategies", "lightning_fabric.strategies")
STRATEGIES = frozenset(f"{home}{module}.{STRATEGY}" for home in HOMES for module in ("", ".fsdp"))
FOR_FSDP2 = "ModelParallelStrategy"
FABRICS = frozenset(
    {"lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric"}
    | {"lightning.fabric.fabric.Fabric", "lightning_fabric.fabric.Fabric"}
)
# The parameters of Fabric, in their order.
PARAMETERS = (
    *("accelerator", "strategy", "devices", "num_nodes", "precision", "plugins", "callbacks"),
    "loggers",
)


def configures_fabric(source: Source) -> bool:
    """Whether a file uses Fabric's strategy for FSDP1."""
    return bool(strategies_in(source))


def is_for_fsdp2(source: Source) -> bool:
    """Whether a file uses Fabric's strategy for FSDP2."""
    return FOR_FSDP2 in source.text and any(
        full.endswith(f".{FOR_FSDP2}") and full.startswith(HOMES)
        for full in symbols_in(source).values()
    )


def calls_by_name(source: Source) -> Iterator[tuple[cst.Call, cst.SimpleString]]:
    """The calls `Fabric(strategy="fsdp")`, with the name of the strategy."""
    if not any(f"{quote}fsdp" in source.text for quote in "\"'"):
        return
    for home in ("lightning", "lightning_fabric"):
        for _, node, full in references(source, home):
            call = source.parent(node)
            if full not in FABRICS or not isinstance(call, cst.Call) or call.func is not node:
                continue
            given = arguments(call, PARAMETERS)[0].get("strategy")
            if given is not None and isinstance(given.value, cst.SimpleString):
                if given.value.evaluated_value in NAMES:
                    yield call, given.value


def strategies_in(source: Source) -> list[cst.BaseExpression]:
    """The references to the class of the strategy, and its names as arguments of Fabric."""
    found: list[cst.BaseExpression] = []
    if STRATEGY in source.text:
        for node, full in symbols_in(source).items():
            if full in STRATEGIES and isinstance(node, cst.BaseExpression):
                found.append(node)
    return [*found, *(name for _, name in calls_by_name(source))]
