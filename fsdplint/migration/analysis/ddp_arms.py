"""Arms of a choice that are for models of DDP, beside the arm that uses FSDP1.

    if backend == "ddp":
        torch.save(model.module.state_dict(), path)
    elif backend == "fsdp":
        with FSDP.state_dict_type(model, ...):

The arms exclude one another, so the model of the first one is not FSDP1's if another test for the
same text wraps models in DDP. The code of this arm stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.migration.analysis.called_functions import called_function
from fsdplint.migration.names import fsdp1_name
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import symbols_in

DDP = "torch.nn.parallel.DistributedDataParallel"

Arm = tuple[str, str, cst.BaseSuite]  # what is compared, with which text, and the arm


def nodes_of_ddp_arms(program: Program, source: Source) -> frozenset[cst.CSTNode]:
    """The nodes of such arms in a file, which take `model.module` of a model."""
    if ".module" not in source.text:
        return frozenset()
    symbols = symbols_in(source)
    found: set[cst.CSTNode] = set()
    for node in _chains(source):
        arms = list(_arms(source, node))
        for what, value, body in arms:
            others = [arm for other, text, arm in arms if other == what and text != value]
            if _uses_fsdp1(symbols, body):
                continue
            models = _models(source, body)
            beside = [arm for arm in others if _uses_fsdp1(symbols, arm)]
            if any(models & _texts(source, arm) for arm in beside) and _means_ddp(program, value):
                found.update(descend(body))
    return frozenset(found)


def _means_ddp(program: Program, text: str) -> bool:
    """Whether an arm for a text, or for no text that the chain compares, wraps models in DDP."""
    for source in program.sources.values():
        for node in _chains(source):
            arms = list(_arms(source, node))
            bodies = [body for _, value, body in arms if value == text]
            last = _last_arm(node)
            if not bodies and arms and last is not None:
                bodies = [last.body]
            if any(_wraps_in_ddp(program, source, body) for body in bodies):
                return True
    return False


def _wraps_in_ddp(program: Program, source: Source, body: cst.BaseSuite) -> bool:
    """Whether code makes a model of DDP, itself or by a function that it calls."""
    if _refers_to_ddp(source, body):
        return True
    calls = [node for node in descend(body) if isinstance(node, cst.Call)]
    called = [called_function(program, source, call.func) for call in calls]
    return any(one is not None and _refers_to_ddp(one[0], one[1].body) for one in called)


def _refers_to_ddp(source: Source, body: cst.CSTNode) -> bool:
    symbols = symbols_in(source)
    return any(symbols.get(node) == DDP for node in descend(body))


def _chains(source: Source) -> Iterator[cst.If]:
    """The chains of `if`, by their first nodes."""
    for node in source.descend(source.tree):
        if isinstance(node, cst.If) and not isinstance(source.parent(node), cst.If):
            yield node


def _last_arm(node: cst.If) -> cst.Else | None:
    arm: cst.If | cst.Else | None = node
    while isinstance(arm, cst.If):
        arm = arm.orelse
    return arm


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
