"""`FSDP.fsdp_modules(model)`, which becomes the list of the modules that are FSDPModules."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.variables import definitions, fresh, home_of, reads
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import (
    FSDP_MODULES_NOT_CALLED,
    FSDP_MODULES_OF_ROOTS,
    FSDP_MODULES_USE,
)
from fsdplint.migration.context import Migration, expression
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.layout import descend
from fsdplint.trace import Wrapped

SIMPLE = {
    "parameters", "named_parameters", "modules", "named_modules", "children", "named_children",
    "buffers", "named_buffers", "train", "eval", "zero_grad", "requires_grad_", "training",
    "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "__class__",
}  # fmt: skip
_INNER = {"module", "_fsdp_wrapped_module"}
_COUNTING = {"len", "bool", "print"}
_LISTING = {"list", "tuple", "reversed", "iter"}
_CLASS_NOTE = "the classes of sharded modules have `FSDP` before their names"
_CLASS_DETAIL = "`fully_shard` makes a subclass `FSDPBlock` of the class `Block` of a module."


def rewrite_modules(migration: Migration, source: Source, node: cst.CSTNode) -> None:
    """Rewrite `FSDP.fsdp_modules(model)` to the list of its modules that are FSDPModules.

    Raises:
        Blocked: the call selects roots only, or the code uses attributes that FSDP2 does not have.
    """
    call = source.parent(node)
    if not isinstance(call, cst.Call) or call.func is not node:
        raise Blocked(source, node, FSDP_MODULES_NOT_CALLED())
    named, rest = arguments(call, ("module", "root_only"))
    root_only = named.get("root_only")
    of_roots = root_only is not None and not is_constant(root_only.value, "False")
    if rest or "module" not in named or (of_roots and not _is_root(migration, source, named)):
        raise Blocked(source, call, FSDP_MODULES_OF_ROOTS())
    inner: list[cst.Attribute] = []
    if not _has_simple_uses(source, call, inner):
        raise Blocked(source, call, FSDP_MODULES_USE())
    _leave_wrappers(migration, source, inner)
    model = expression(migration, source, named["module"].value)
    if of_roots:
        migration.account_for(source, node)
        migration.substitute(source, call, f"[{model}]")
        migration.step(source, call, "The wrapped model is the only root")
        return
    module = migration.need(source, "torch.distributed.fsdp", "FSDPModule", node)
    one = fresh(source, node, "m", "module")
    migration.account_for(source, node)
    migration.substitute(
        source, call, f"[{one} for {one} in {model}.modules() if isinstance({one}, {module})]"
    )
    migration.step(source, call, "Ask for FSDPModule")


def _is_root(migration: Migration, source: Source, named: dict[str, cst.Arg]) -> bool:
    """Whether the module of `fsdp_modules(module, root_only=True)` is itself the only root in it.

    That is so if FSDP1 wraps it, and it is no part of another wrapped module.
    """
    model = named["module"].value
    if not is_constant(named["root_only"].value, "True"):
        return False
    if migration.wrapping_of(model) != "always":
        return False
    ids = {value.id for value in migration.values(model) if isinstance(value, ModuleValue)}
    return bool(ids) and not any(
        trace.contains(event.module, one)
        for trace in migration.program.traces
        for event in trace.of(Wrapped)
        for one in ids
        if event.module != one
    )


def _leave_wrappers(migration: Migration, source: Source, inner: list[cst.Attribute]) -> None:
    """Replace the modules inside of FSDP1's wrappers by the sharded modules themselves."""
    for node in inner:
        migration.account_for(source, node)
        migration.substitute(source, node, migration.text(source, node.value))
        parent = source.parent(node)
        outer = source.parent(parent) if isinstance(parent, cst.Arg) else None
        if isinstance(outer, cst.Call) and source.code(outer.func) == "type":
            migration.note(_CLASS_NOTE, source, outer, detail=_CLASS_DETAIL)


def _has_simple_uses(source: Source, node: cst.BaseExpression, inner: list[cst.Attribute]) -> bool:
    """Whether code only counts the modules, or loops over them for attributes of any module.

    inner: gets the places that read the module inside of a wrapper.
    """
    parent = source.parent(node)
    if isinstance(parent, cst.Arg):
        outer = source.parent(parent)
        if not isinstance(outer, cst.Call) or not isinstance(outer.func, cst.Name):
            return False
        if outer.func.value in _LISTING:
            return _has_simple_uses(source, outer, inner)
        if outer.func.value == "enumerate":
            return _has_simple_loop(source, outer, 1, inner)
        return outer.func.value in _COUNTING
    if isinstance(parent, cst.Assign):
        found = _reads(source, node)
        return found is not None and all(_has_simple_uses(source, one, inner) for one in found)
    return _has_simple_loop(source, node, None, inner) or isinstance(
        parent, cst.If | cst.While | cst.UnaryOperation
    )


def _reads(source: Source, node: cst.BaseExpression) -> list[cst.Name] | None:
    """The places that read the variable that an expression is assigned to; None where the program
    may read it elsewhere."""
    statement = source.parent(node)
    targets = statement.targets if isinstance(statement, cst.Assign) else ()
    target = targets[0].target if len(targets) == 1 else None
    if not isinstance(target, cst.Name):
        return None
    home, found = home_of(source, target), definitions(source, target)
    if home is None or home is source.tree or found is None or len(found) != 1:
        return None
    return reads(source, home, target.value)


def _has_simple_loop(
    source: Source, node: cst.BaseExpression, position: int | None, inner: list[cst.Attribute]
) -> bool:
    """Whether an expression is what a loop runs over, and the loop uses its modules as any others.

    position: the place of the module in the elements; None if it is the element.
    """
    loop = source.parent(node)
    if not isinstance(loop, cst.For | cst.CompFor) or loop.iter is not node:
        return False
    target: cst.CSTNode = loop.target
    if position is not None:
        if not isinstance(target, cst.Tuple) or len(target.elements) <= position:
            return False
        target = target.elements[position].value
    body = loop.body if isinstance(loop, cst.For) else source.parent(loop)
    return (
        isinstance(target, cst.Name)
        and body is not None
        and _simple_uses(source, body, target, inner)
    )


def _simple_uses(
    source: Source, body: cst.CSTNode, target: cst.Name, inner: list[cst.Attribute]
) -> bool:
    return all(
        _is_simple(source, node, inner)
        for node in descend(body)
        if isinstance(node, cst.Name) and node.value == target.value and node is not target
    )


def _is_simple(source: Source, node: cst.BaseExpression, inner: list[cst.Attribute]) -> bool:
    """Whether a use of a module needs no wrapper of FSDP1."""
    parent = source.parent(node)
    if isinstance(parent, cst.Attribute):
        if parent.value is not node or parent.attr.value in SIMPLE:
            return True
        if parent.attr.value not in _INNER:
            return False
        inner.append(parent)
        return _is_simple(source, parent, inner)
    if isinstance(parent, cst.Arg):
        outer = source.parent(parent)
        func = outer.func if isinstance(outer, cst.Call) else None
        return isinstance(func, cst.Name) and func.value in ("print", "isinstance", "type", "id")
    return isinstance(
        parent,
        cst.For
        | cst.CompFor
        | cst.FormattedStringExpression
        | cst.Comparison
        | cst.ComparisonTarget,
    )
