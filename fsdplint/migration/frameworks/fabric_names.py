"""The names of Lightning's strategies for FSDP1 in a file."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.lightning_names import FABRICS, TRAINERS
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, elements, is_constant
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import references, symbols_in

STRATEGY = "FSDPStrategy"
NAMES = ("fsdp", "fsdp_cpu_offload")  # of the strategy, as an argument of Fabric or Trainer
OF_TRAINER = ("lightning.pytorch.strategies", "pytorch_lightning.strategies")
HOMES = ("lightning.fabric.strategies", "lightning_fabric.strategies", *OF_TRAINER)
STRATEGIES = frozenset(f"{home}{module}.{STRATEGY}" for home in HOMES for module in ("", ".fsdp"))
FOR_FSDP2 = "ModelParallelStrategy"
# The parameters of Fabric, in their order.
PARAMETERS = (
    *("accelerator", "strategy", "devices", "num_nodes", "precision", "plugins", "callbacks"),
    "loggers",
)


def configures_fabric(source: Source) -> bool:
    """Whether a file uses a strategy of Lightning for FSDP1."""
    return bool(strategies_in(source))


def is_for_fsdp2(source: Source) -> bool:
    """Whether a file uses Fabric's strategy for FSDP2."""
    return FOR_FSDP2 in source.text and any(
        full.endswith(f".{FOR_FSDP2}") and full.startswith(HOMES)
        for full in symbols_in(source).values()
    )


def new_home(full: str) -> str:
    """The module of the strategy for FSDP2 beside that of a name of Lightning."""
    if full.startswith("pytorch_lightning"):
        return "pytorch_lightning.strategies"
    if full.startswith("lightning_fabric"):
        return "lightning_fabric.strategies"
    of_trainer = full in TRAINERS or full.startswith(OF_TRAINER)
    return "lightning.pytorch.strategies" if of_trainer else "lightning.fabric.strategies"


def calls_by_name(source: Source) -> Iterator[tuple[cst.Call, cst.SimpleString]]:
    """The calls `Fabric(strategy="fsdp")` and those of Trainer, with the name of the strategy."""
    if not any(f"{quote}fsdp" in source.text for quote in "\"'"):
        return
    for home in ("lightning", "lightning_fabric", "pytorch_lightning"):
        for _, node, full in references(source, home):
            call = source.parent(node)
            if (
                full not in FABRICS | TRAINERS
                or not isinstance(call, cst.Call)
                or call.func is not node
            ):
                continue
            given = arguments(call, PARAMETERS)[0].get("strategy")
            if given is not None and isinstance(given.value, cst.SimpleString):
                if given.value.evaluated_value in NAMES:
                    yield call, given.value


def strategies_in(source: Source) -> list[cst.BaseExpression]:
    """The references to the classes of the strategies, and their names as arguments."""
    found: list[cst.BaseExpression] = []
    if STRATEGY in source.text:
        for node, full in symbols_in(source).items():
            if full in STRATEGIES and isinstance(node, cst.BaseExpression):
                found.append(node)
    return [*found, *(name for _, name in calls_by_name(source))]


def nodes_of_other_strategies(source: Source) -> frozenset[cst.CSTNode]:
    """The nodes of arms for other strategies, beside tests of the class of the strategy.

    if isinstance(fabric.strategy, FSDPStrategy):
        ...
    else:
        torch.save(model.state_dict(), path)
    """
    if "isinstance" not in source.text or "Strategy" not in source.text:
        return frozenset()
    symbols = symbols_in(source)
    found: set[cst.CSTNode] = set()
    for node in source.descend(source.tree):
        if not isinstance(node, cst.If):
            continue
        kinds = _tested_strategies(symbols, node.test)
        sharding = {f"{home}.{FOR_FSDP2}" for home in HOMES} | STRATEGIES
        if kinds and kinds <= sharding and node.orelse is not None:
            found.update(descend(node.orelse))
        elif kinds and kinds.isdisjoint(sharding):
            found.update(descend(node.body))
    return frozenset(found)


def _tested_strategies(symbols: dict[cst.CSTNode, str], test: cst.BaseExpression) -> frozenset[str]:
    """The classes of strategies of Fabric in `isinstance(fabric.strategy, ...)`; empty for other tests."""
    if not isinstance(test, cst.Call) or not is_constant(test.func, "isinstance"):
        return frozenset()
    kinds = elements(test.args[-1].value) or [test.args[-1].value]
    names = [symbols.get(kind, "") for kind in kinds]
    known = all(name.startswith(HOMES) and name.endswith("Strategy") for name in names)
    return frozenset(names) if known and len(test.args) == 2 else frozenset()
