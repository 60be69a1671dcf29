"""Functions of torch's pytree and similar libraries that change each leaf of nested containers."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import StateValue
from fsdplint.interpreter.values import Dict, Sequence, Unknown, Value

_MAX_DEPTH = 4  # of containers in others


@function("torch.utils._pytree.tree_map", "optree.tree_map", "tree.map_structure")
def tree_map(run: Run, name: str, call: Call) -> Value:
    """`tree_map(change, tree)`"""
    return _changed_tree(run, call, change=call.arg(0, "func"), tree=call.arg(1, "tree"))


@function("torch.utils._pytree.tree_map_only")
def tree_map_only(run: Run, name: str, call: Call) -> Value:
    """`tree_map_only(torch.Tensor, change, tree)`"""
    return _changed_tree(run, call, change=call.arg(1, "func"), tree=call.arg(2, "tree"))


def _changed_tree(run: Run, call: Call, change: Value | None, tree: Value | None) -> Value:
    if change is None or tree is None or call.open or len(call.values) > 3:
        return Unknown()
    return _mapped(run, call.node, change, tree, 0)


def _mapped(run: Run, node: cst.CSTNode, change: Value, tree: Value, depth: int) -> Value:
    tree = run.settle(tree)
    if isinstance(tree, StateValue) and not tree.tensor:
        leaf = run.call(change, Call(node, [tree.element()]))
        return replace(leaf, tensor=False) if isinstance(leaf, StateValue) else Unknown()
    if depth < _MAX_DEPTH and isinstance(tree, Dict):
        return replace(
            tree,
            items={k: _mapped(run, node, change, v, depth + 1) for k, v in tree.items.items()},
            tensors={k: _mapped(run, node, change, v, depth + 1) for k, v in tree.tensors.items()},
            optimizer=None,
            names_of=None,
            removed=set(tree.removed),
            created_at=None,
        )
    if depth < _MAX_DEPTH and isinstance(tree, Sequence):
        items = [_mapped(run, node, change, one, depth + 1) for one in tree.items]
        return Sequence(items, tree.kind, tree.open, every=tree.every, chosen=tree.chosen)
    return run.call(change, Call(node, [tree]))
