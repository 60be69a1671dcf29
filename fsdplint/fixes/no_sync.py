"""Convert `with model.no_sync():` to `model.set_requires_gradient_sync(...)`."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import uses
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors, function_around

NEGATED = {
    cst.Equal: "!=",
    cst.NotEqual: "==",
    cst.LessThan: ">=",
    cst.GreaterThanEqual: "<",
    cst.GreaterThan: "<=",
    cst.LessThanEqual: ">",
    cst.In: "not in",
    cst.NotIn: "in",
    cst.Is: "is not",
    cst.IsNot: "is",
}
LOOSE = cst.BooleanOperation | cst.IfExp | cst.Lambda | cst.NamedExpr | cst.Comparison
NOTHING = {"nullcontext", "suppress", "ExitStack"}  # contexts that do nothing without arguments


@dataclass
class Switch:
    """The effect of a context expression on gradient reduction.

    sync: the text of the condition under which gradients are reduced.
    nothing: the null context that replaces `no_sync`, if there is one.
    """

    model: str
    sync: str
    nothing: cst.BaseExpression | None = None


def rewrite_no_sync(rewrite: Rewrite, source: Source, call: cst.Call) -> bool:
    """Rewrite the `with` statement of a call `model.no_sync()` (or `context()`).

    The `with` becomes its body between two calls of `set_requires_gradient_sync`.

    Returns:
        Whether the statement could be rewritten. It cannot if the context is passed on or entered
            with `enter_context`.
    """
    whole: cst.CSTNode = call
    parent = source.parent(call)
    if isinstance(parent, cst.IfExp) and parent.test is not call:
        whole, parent = parent, source.parent(parent)
    if isinstance(parent, cst.WithItem) and isinstance(whole, cst.BaseExpression):
        block = source.parent(parent)
        switch = _switch(source, whole) or _chosen_before(rewrite, source, whole, block)
        if switch is None or not isinstance(block, cst.With):
            return False
        return _rewrite_with(rewrite, source, block, parent, switch)
    if isinstance(parent, cst.Assign) and isinstance(whole, cst.BaseExpression):
        item = _only_with(source, parent)
        switch = _switch(source, whole)
        if item is None or switch is None:
            return False
        block = source.parent(item)
        assert isinstance(block, cst.With)
        if not _rewrite_with(rewrite, source, block, item, switch, header=False):
            return False
        rewrite.replace_statement(source, parent, [_set(switch.model, switch.sync)])
        return True
    return False


def _set(model: str, sync: str) -> str:
    return f"{model}.set_requires_gradient_sync({sync})"


def _switch(source: Source, context: cst.BaseExpression, called: bool = True) -> Switch | None:
    """The effect of `model.no_sync()`, or of a choice between it and a null context.

    called: whether the expression calls the contexts; otherwise it chooses between functions.
    """
    if isinstance(context, cst.IfExp):
        for choice, other, negate in (
            (context.body, context.orelse, True),
            (context.orelse, context.body, False),
        ):
            model = _no_sync_of(source, choice, called)
            if model is not None and _does_nothing(other, called):
                test = context.test
                sync = negation(source, test) if negate else source.code(test)
                return Switch(model, sync, other)
        return None
    model = _no_sync_of(source, context, called)
    return Switch(model, "False") if model is not None else None


def _no_sync_of(source: Source, node: cst.BaseExpression, called: bool) -> str | None:
    """The text of the model in `model.no_sync()`."""
    if called:
        if not isinstance(node, cst.Call) or node.args:
            return None
        node = node.func
    if isinstance(node, cst.Attribute) and node.attr.value == "no_sync":
        return source.code(node.value)
    return None


def _does_nothing(node: cst.BaseExpression, called: bool) -> bool:
    if called:
        if not isinstance(node, cst.Call) or node.args:
            return False
        node = node.func
    if isinstance(node, cst.Attribute):
        node = node.attr
    return isinstance(node, cst.Name) and node.value in NOTHING


def _chosen_before(
    rewrite: Rewrite, source: Source, context: cst.BaseExpression, block: cst.CSTNode | None
) -> Switch | None:
    """The switch of `with context():` after `context = model.no_sync if ... else nullcontext`."""
    if not isinstance(context, cst.Call) or context.args or block is None:
        return None
    if not isinstance(context.func, cst.Name):
        return None
    name = context.func.value
    found = uses(function_around(source, context), name)
    if len(found) != 2:
        return None
    for use in found:
        target = source.parent(use)
        assign = source.parent(target) if isinstance(target, cst.AssignTarget) else None
        if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
            continue
        switch = _switch(source, assign.value, called=False)
        if switch is not None and _same_block(source, assign, block):
            rewrite.delete_statement(source, assign)
            return switch
    return None


def _same_block(source: Source, statement: cst.CSTNode, block: cst.CSTNode) -> bool:
    line = source.parent(statement)
    return line is not None and source.parent(line) is source.parent(block)


def _only_with(source: Source, assign: cst.Assign) -> cst.WithItem | None:
    """The only use of a name that is assigned here: a `with` item in the same block."""
    if len(assign.targets) != 1 or not isinstance(assign.targets[0].target, cst.Name):
        return None
    target = assign.targets[0].target
    others = [
        use for use in uses(function_around(source, assign), target.value) if use is not target
    ]
    if len(others) != 1:
        return None
    item = source.parent(others[0])
    block = source.parent(item) if isinstance(item, cst.WithItem) else None
    if isinstance(item, cst.WithItem) and block is not None and _same_block(source, assign, block):
        return item
    return None


def _rewrite_with(
    rewrite: Rewrite,
    source: Source,
    block: cst.With,
    item: cst.WithItem,
    switch: Switch,
    *,
    header: bool = True,
) -> bool:
    early = must_restore(source, block)
    if block.asynchronous is not None or item.asname is not None:
        return False
    if early and len(block.items) > 1:
        return False
    before = [_set(switch.model, switch.sync)] if header else []
    after = [_set(switch.model, "True")]
    if len(block.items) > 1:
        remove_item(rewrite, source, block, item)
        if before:
            rewrite.insert_before(source, block, before)
        rewrite.insert_after(source, block, after)
    elif early:
        if before:
            rewrite.insert_before(source, block, before)
        restore_at_last(rewrite, source, block, after)
    else:
        rewrite.unwrap(source, block, before)
        rewrite.insert_after(source, block, after)
    if switch.nothing is not None:
        root: cst.CSTNode = switch.nothing
        while isinstance(root, cst.Call | cst.Attribute):
            root = root.func if isinstance(root, cst.Call) else root.value
        if isinstance(root, cst.Name):
            rewrite.remove_import_if_unused(source, root.value)
    return True


def restore_at_last(rewrite: Rewrite, source: Source, block: cst.With, lines: list[str]) -> None:
    """Replace the head of a `with` by `try`, and put lines into its `finally`."""
    start = source.span(block)[0]
    colon = source.text.index(":", source.span(block.items[-1])[1])
    rewrite.replace_span(source, start, colon, "try")
    rewrite.insert_after(source, block, ["finally:", *("\t" + line for line in lines)])


def must_restore(source: Source, block: cst.With) -> bool:
    """Whether the program may continue to train after it leaves a block early."""
    return left_early(block.body) or _continues_after_error(source, block)


def _continues_after_error(source: Source, block: cst.With) -> bool:
    """Whether a loop catches an exception of a block and continues."""
    caught = False
    inner: cst.CSTNode = block
    for node in ancestors(source, block):
        if isinstance(node, cst.FunctionDef | cst.Lambda):
            return False
        if isinstance(node, cst.Try | cst.TryStar) and inner is node.body:
            caught = caught or any(not _raises(handler) for handler in node.handlers)
        if isinstance(node, cst.For | cst.While) and caught:
            return True
        inner = node
    return False


def _raises(handler: cst.ExceptHandler | cst.ExceptStarHandler) -> bool:
    last = handler.body.body[-1]
    return isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Raise)


def remove_item(rewrite: Rewrite, source: Source, block: cst.With, item: cst.WithItem) -> None:
    number = next(n for n, other in enumerate(block.items) if other is item)
    if number + 1 < len(block.items):
        start, end = source.span(item)[0], source.span(block.items[number + 1])[0]
    else:
        start, end = source.span(block.items[number - 1].item)[1], source.span(item.item)[1]
        closing = len(item.item.rpar)
        for parenthesis in block.items[number - 1].item.rpar:
            start = source.span(parenthesis)[1]
        if closing:
            end = source.span(item.item.rpar[-1])[1]
    rewrite.delete(source, start, end)


def left_early(body: cst.CSTNode) -> bool:
    """Whether `return`, or `break` or `continue` of an outer loop, may leave the body."""
    stack: list[tuple[cst.CSTNode, bool]] = [(body, False)]
    while stack:
        node, in_loop = stack.pop()
        if isinstance(node, cst.FunctionDef | cst.Lambda | cst.ClassDef):
            continue
        if isinstance(node, cst.Return):
            return True
        if isinstance(node, cst.Break | cst.Continue) and not in_loop:
            return True
        inside = in_loop or isinstance(node, cst.For | cst.While)
        stack.extend((child, inside) for child in node.children)
    return False


def negation(source: Source, test: cst.BaseExpression) -> str:
    """The text of the negated condition."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return source.code(test.expression)
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        only = test.comparisons[0]
        operator = NEGATED.get(type(only.operator))
        if operator is not None:
            left = _with_parentheses(source, test.left)
            right = _with_parentheses(source, only.comparator)
            return f"{left} {operator} {right}"
    if isinstance(test, LOOSE):
        return f"not ({source.code(test)})"
    return f"not {_with_parentheses(source, test)}"


def _with_parentheses(source: Source, node: cst.BaseExpression) -> str:
    """The text of an expression with the parentheses around it."""
    text = source.code(node)
    if not node.lpar:
        return text
    start, _ = source.span(node.lpar[0])
    _, end = source.span(node.rpar[-1])
    return source.text[start:end]
