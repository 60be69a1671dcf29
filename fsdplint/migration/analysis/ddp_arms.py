"""Arms of a choice that are for models of DDP, beside the arm that uses FSDP1.

    if backend == "ddp":
        torch.save(model.module.state_dict(), path)
    elif backend == "fsdp":
        with FSDP.state_dict_type(model, ...):

The arms exclude one another, so the model of the first one is not FSDP1's. Its code stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.names import fsdp1_name
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import symbols_in

DDP = re.compile(r"ddp|(distributed_?)?data_?parallel|distributed", re.IGNORECASE)

Arm = tuple[str, str, cst.BaseSuite]  # what is compared, with which text, and the arm


def nodes_of_ddp_arms(source: Source) -> frozenset[cst.CSTNode]:
    """The nodes of such arms in a file, which take `model.module` of a model."""
    if ".module" not in source.text:
        return frozenset()
    symbols = symbols_in(source)
    found: set[cst.CSTNode] = set()
    for node in source.descend(source.tree):
        if not isinstance(node, cst.If) or isinstance(source.parent(node), cst.If):
            continue
        arms = list(_arms(source, node))
        for what, value, body in arms:
            others = [arm for other, text, arm in arms if other == what and text != value]
            if DDP.fullmatch(value) is None or _uses_fsdp1(symbols, body):
                continue
            models = _models(source, body)
            if models and any(
                _uses_fsdp1(symbols, arm) and models & _texts(source, arm) for arm in others
            ):
                found.update(descend(body))
    return frozenset(found)


def _arms(source: Source, node: cst.If) -> Iterator[Arm]:
    """The arms of a chain of `if` that compare an expression with a text each."""
    arm: cst.If | cst.Else | None = node
    while isinstance(arm, cst.If):
        test = arm.test
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            (one,) = test.comparisons
            text = one.comparator
            if isinstance(one.operator, cst.Equal) and isinstance(text, cst.SimpleString):
                yield source.code(test.left), str(text.evaluated_value), arm.body
        arm = arm.orelse


def _uses_fsdp1(symbols: dict[cst.CSTNode, str], body: cst.BaseSuite) -> bool:
    return any(fsdp1_name(symbols[node]) for node in descend(body) if node in symbols)


def _models(source: Source, body: cst.BaseSuite) -> set[str]:
    """The expressions whose `.module` an arm takes."""
    return {
        source.code(node.value)
        for node in descend(body)
        if isinstance(node, cst.Attribute) and node.attr.value == "module"
    }


def _texts(source: Source, body: cst.BaseSuite) -> set[str]:
    """The names and attributes in an arm."""
    return {source.code(n) for n in descend(body) if isinstance(n, cst.Name | cst.Attribute)}
