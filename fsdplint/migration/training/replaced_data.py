"""`parameter.data = values` on a wrapped model, which FSDP1 supports and FSDP2 does not.

FSDP1 with `use_orig_params=True` writes such values back into its flat parameter before the next
all-gather. FSDP2 gathers from the memory of its shard and never reads the new tensor: the forward uses
the old values, without an error.

An assignment of values that are computed from the old ones (`p.data = decay * p.data + ...`) becomes
`p.data.copy_(...)`, if no other code keeps the tensor with the old values.
"""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import Unknown, Value
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import DATA_REPLACED
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.text import without_parentheses
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import statement_of
from fsdplint.trace import Trace, WeightsSet, Wrapped

TITLE = "Copy the new values into the parameter"
# Methods of a tensor that return a new one, of the same shape if the argument has it.
TAKING = {
    "add", "sub", "mul", "div", "lerp", "copy", "norm", "isnan", "isinf",
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
}  # fmt: skip
JOINS = {"torch.cat", "torch.concat", "torch.stack"}  # whose results are new tensors
# Methods whose result has the memory of the tensor, or may have it.
VIEWS = {
    "detach", "view", "view_as", "reshape", "flatten", "t", "transpose", "permute", "squeeze",
    "unsqueeze", "contiguous", "to", "cpu", "cuda", "float", "numpy", "chunk", "split",
}  # fmt: skip
ARITHMETIC = {"add", "sub", "mul", "div", "lerp", "clone", "clamp", "neg"}


def rewrite(migration: Migration) -> None:
    """Copy values that are computed from the old ones into the parameter."""
    assignments = _assignments(migration)
    modules = {one for found in assignments.values() for one in found.modules}
    for node, (source, _) in assignments.items():
        statement = statement_of(source, node)
        if node in migration.undecided_nodes or not isinstance(statement, cst.Assign):
            continue
        if len(statement.targets) != 1 or statement.targets[0].target is not node:
            continue
        if not _is_computed(statement.value, source.code(node), source):
            continue
        if any(
            _keeps_tensor(migration, other, part, modules)
            for other in migration.sources
            for part in nodes(other)
        ):
            continue
        target, value = (migration.text(source, part) for part in (node, statement.value))
        migration.substitute(source, statement, f"{target}.copy_({without_parentheses(value)})")
        migration.copied_data.add(node)
        migration.step(source, node, TITLE)


def check(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Add a blocker for each other assignment."""
    for node, (source, _) in _assignments(migration).items():
        if node in migration.copied_data:
            continue
        if {node, *ancestors(source, node)} & migration.blocks.whole_parameters:
            continue  # writes to whole parameters have their own blocker
        reason = DATA_REPLACED(code=source.code(node))
        migration.blockers.append(Blocked(source, node, reason))


class _Assigned(NamedTuple):
    """Where data of wrapped models is assigned, and the modules that the parameters belong to."""

    source: Source
    modules: set[str]


def _assignments(migration: Migration) -> dict[cst.CSTNode, _Assigned]:
    """The targets of the assignments to data of wrapped models."""
    found: dict[cst.CSTNode, _Assigned] = {}
    for trace in migration.program.traces:
        for event in trace.of(WeightsSet):
            site = event.site
            if isinstance(site, NodeSite) and _assigns(site.node) and _is_wrapped(trace, event):
                one = found.setdefault(site.node, _Assigned(site.source, set()))
                one.modules.update(event.modules)
    return found


def _is_computed(value: cst.BaseExpression, target: str, source: Source) -> bool:
    """Whether an expression computes a new tensor from the old one, element by element."""
    if isinstance(value, cst.BinaryOperation):
        if isinstance(value.operator, cst.MatrixMultiply):
            return False
        sides = (value.left, value.right)
        return any(source.code(x) == target or _is_computed(x, target, source) for x in sides)
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        owner = value.func.value
        if value.func.attr.value not in ARITHMETIC:
            return False
        return source.code(owner) == target or _is_computed(owner, target, source)
    return False


def _keeps_tensor(
    migration: Migration, source: Source, node: cst.CSTNode, modules: set[str]
) -> bool:
    """Whether a node is the data of a parameter, in a place that may keep the tensor itself.

    modules: those whose parameters get new values.
    """
    if not _is_data(migration, node, modules):
        return False
    parent = source.parent(node)
    while isinstance(parent, cst.Attribute | cst.Subscript):
        if isinstance(parent, cst.Attribute):
            call = source.parent(parent)
            if not isinstance(call, cst.Call) or call.func is not parent:
                return True
            if parent.attr.value not in VIEWS:
                return False
            node = call
        else:
            node = parent  # it may be a view
        parent = source.parent(node)
    if isinstance(
        parent,
        cst.AssignTarget | cst.AugAssign | cst.BinaryOperation | cst.UnaryOperation | cst.Expr,
    ):
        return False
    if isinstance(parent, cst.Element):
        parent = source.parent(source.parent(parent) or parent)
        joined = source.parent(parent) if isinstance(parent, cst.Arg) else None
        return not isinstance(joined, cst.Call) or migration.symbol(joined.func) not in JOINS
    if isinstance(parent, cst.Arg):
        call = source.parent(parent)
        func = call.func if isinstance(call, cst.Call) else None
        return not (isinstance(func, cst.Attribute) and func.attr.value.rstrip("_") in TAKING)
    return isinstance(parent, cst.CSTNode)


def _is_data(migration: Migration, node: cst.CSTNode, modules: set[str]) -> bool:
    """Whether a node is the `.data` of what may be a parameter of the modules, or its `detach()`."""
    if isinstance(node, cst.Attribute) and node.attr.value == "data":
        owners = migration.values(node.value)
        return not owners or any(
            isinstance(one, Unknown) or _is_parameter(migration, one, modules) for one in owners
        )
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    owner = node.func.value
    return node.func.attr.value == "detach" and any(
        _is_parameter(migration, value, modules) for value in migration.values(owner)
    )


def _is_parameter(migration: Migration, value: Value, modules: set[str]) -> bool:
    """Whether a value may be parameters of some modules."""
    if not isinstance(value, ParametersOf):
        return False
    own = {one.id for one in value.modules}
    return not own or any(
        trace.related(trace.unwrap(one), trace.unwrap(other))
        for trace in migration.program.traces
        for one in own.intersection(trace.modules)
        for other in modules.intersection(trace.modules)
    )


def _assigns(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Attribute) and node.attr.value == "data"


def _is_wrapped(trace: Trace, event: WeightsSet) -> bool:
    """Whether FSDP1 has wrapped one of the modules whose parameters an event sets."""
    return any(
        module in (wrap.module, *trace.submodules(wrap.inner))
        for wrap in trace.of(Wrapped)
        if wrap.index < event.index
        for module in event.modules
    )
