"""Objects that code out of sight gets, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst
import libcst.matchers as m
from refactoring import refactoring
from syntax_tools import statements

_WRAPPERS = m.Call(m.Name("FSDP") | m.Name("FullyShardedDataParallel"))
_SHARDED = m.Call(
    m.Name("fully_shard") | m.Name("FSDP") | m.Name("FullyShardedDataParallel"),
    [m.Arg(m.SaveMatchedNode(m.Name(), "model"), keyword=None), m.ZeroOrMore()],
)
_WRAPPED = m.Assign([m.AssignTarget(m.SaveMatchedNode(m.Name(), "model"))], _WRAPPERS)
_BACKWARD = m.Call(m.Attribute(attr=m.Name("backward")))


@refactoring()
def model_seen_elsewhere(module: cst.Module) -> cst.Module | None:
    """After the training, code that cannot be followed gets the model."""
    changed = module.visit(_Reports(lambda own: [name for one in own for name in _models(one)]))
    return None if changed.code == module.code else changed


@refactoring()
def all_seen_elsewhere(module: cst.Module) -> cst.Module | None:
    """After the training, code that cannot be followed gets the objects that the program made."""
    changed = module.visit(_Reports(_made))
    return None if changed.code == module.code else changed


class _Reports(cst.CSTTransformer):
    """Adds a report of some names at the end of each scope that trains.

    names: gives the names, of the statements of a scope without functions and classes.
    """

    def __init__(self, names: Callable[[list[cst.CSTNode]], list[str]]) -> None:
        self._names = names

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        body = self._reported(original_node.body, updated_node.body)
        return updated_node.with_changes(body=body)

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        if not isinstance(updated_node.body, cst.IndentedBlock):
            return updated_node
        before, after = original_node.body.body, updated_node.body.body
        return updated_node.with_deep_changes(updated_node.body, body=self._reported(before, after))

    def _reported(
        self, before: Sequence[cst.CSTNode], after: Sequence[cst.CSTNode]
    ) -> list[cst.CSTNode]:
        """The statements of a scope, with a report at the end if it trains."""
        own = [one for one in before if not isinstance(one, cst.FunctionDef | cst.ClassDef)]
        names = dict.fromkeys(self._names(own))
        if not names or not any(m.findall(one, _BACKWARD) for one in own):
            return [*after]
        report = statements("".join(f'eval("repr")({name})\n' for name in names))
        end = len(after) - bool(m.findall(after[-1], m.Return()))
        return [*after[:end], *report, *after[end:]]


def _models(statement: cst.CSTNode) -> list[str]:
    """The names of the models that a statement shards or wraps."""
    found = [*m.extractall(statement, _SHARDED), *m.extractall(statement, _WRAPPED)]
    nodes = [one["model"] for one in found]
    return [node.value for node in nodes if isinstance(node, cst.Name)]


def _made(own: list[cst.CSTNode]) -> list[str]:
    """The names that the statements of a scope assign a call, under no condition."""
    assigned = m.SimpleStatementLine(
        [m.Assign([m.AssignTarget(m.SaveMatchedNode(m.Name(), "name"))], m.Call())]
    )
    nodes = [found["name"] for one in own if (found := m.extract(one, assigned))]
    return [node.value for node in nodes if isinstance(node, cst.Name)]
