"""`with context:` in the place of contexts in variables and on an `ExitStack`."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import home_of, reads
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.syntax.arguments import is_constant


def rewrite_with(inlining: Inlining, node: cst.With) -> bool:
    """Name the contexts of a `with` in its head; whether they were not there."""
    if node.asynchronous is not None:
        return False
    return _rewrite_stack(inlining, node) or _rewrite_variables(inlining, node)


def _rewrite_variables(inlining: Inlining, node: cst.With) -> bool:
    """`context = f()` and `with context:` become `with f():`."""
    changed = False
    for item in node.items:
        context = inlining.meanings.of(item.item)
        if not context.reads or not isinstance(context.node, cst.Call):
            continue
        if not inlining.is_relevant(context.node) or inlining.has_comments(context.node):
            continue
        inlining.use(context)
        inlining.put(item.item, inlining.text(context.node))
        changed = True
    return changed


def _rewrite_stack(inlining: Inlining, node: cst.With) -> bool:
    """`with ExitStack() as stack:` and `stack.enter_context(f())` become `with f():`."""
    source = inlining.source
    if len(node.items) != 1 or len(node.body.body) < 2:
        return False
    item, first = node.items[0], node.body.body[0]
    name = item.asname.name if item.asname is not None else None
    stack = item.item.func if isinstance(item.item, cst.Call) and not item.item.args else None
    if stack is None or inlining.migration.symbol(stack) != "contextlib.ExitStack":
        return False
    entered = _entered_context(first, name)
    if entered is None or not isinstance(name, cst.Name):
        return False
    target, context = entered
    home = home_of(source, name)
    uses = reads(source, home, name.value) if home is not None else []
    if len([use for use in uses if use is not name]) != 1:
        return False
    if not inlining.is_relevant(context) or inlining.has_comments(first):
        return False
    bound = f" as {inlining.text(target)}" if target is not None else ""
    inlining.put(item, inlining.text(context) + bound)
    inlining.delete(first)
    return True


def _entered_context(
    line: cst.CSTNode, name: cst.CSTNode | None
) -> tuple[cst.BaseExpression | None, cst.BaseExpression] | None:
    """The target and the context of `target = stack.enter_context(context)`."""
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    target: cst.BaseExpression | None = None
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        target = small.targets[0].target
    elif not isinstance(small, cst.Expr):
        return None
    call = small.value
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return None
    if call.func.attr.value != "enter_context" or len(call.args) != 1:
        return None
    if not isinstance(name, cst.Name) or not is_constant(call.func.value, name.value):
        return None
    arg = call.args[0]
    return None if arg.star or arg.keyword else (target, arg.value)
