"""Objects that code out of sight gets, too."""

from __future__ import annotations

from collections.abc import Sequence

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
    changed = module.visit(_Reports())
    return None if changed.code == module.code else changed


class _Reports(cst.CSTTransformer):
    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        return updated_node.with_changes(body=_reported(original_node.body, updated_node.body))

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        if not isinstance(updated_node.body, cst.IndentedBlock):
            return updated_node
        before, after = original_node.body.body, updated_node.body.body
        return updated_node.with_deep_changes(updated_node.body, body=_reported(before, after))


def _reported(before: Sequence[cst.CSTNode], after: Sequence[cst.CSTNode]) -> list[cst.CSTNode]:
    """The statements of a scope, with a report of its models at the end if it trains them."""
    own = [one for one in before if not isinstance(one, cst.FunctionDef | cst.ClassDef)]
    names = dict.fromkeys(name for one in own for name in _models(one))
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
