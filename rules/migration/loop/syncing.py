"""`no_sync` that a variable holds until a `with` enters it."""

from __future__ import annotations

import libcst as cst

from fsdplint.editing.layout import descend
from fsdplint.program.source import Source
from fsdplint.rules.migration.context import Migration
from fsdplint.rules.migration.scopes import ancestors
from fsdplint.rules.rewrites import no_sync
from fsdplint.rules.rewrites.syntax import function_around, uses


def check_chosen(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Block on a context that is chosen for a model which may be another kind of module.

    The setter that takes the place of the choice would be called on that one as well.

    Raises:
        Blocked: `model.no_sync` is one of two contexts, and the model is not always FSDP1's.
    """
    call = source.parent(node)
    value: cst.CSTNode = call if isinstance(call, cst.Call) and call.func is node else node
    choice = source.parent(value)
    if not isinstance(choice, cst.IfExp | cst.Assign):
        return
    asked = isinstance(choice, cst.IfExp) and any(
        migration.fsdp1(part) for part in descend(choice.test)
    )
    if asked or not _always(migration, source, node.value):
        raise migration.block(
            source,
            node,
            "`no_sync` is chosen for a model that is FSDP1's in some configurations only",
            advice="Put the choice under one question of whether the model is FSDP's: in FSDP2 it is "
            "`model.set_requires_gradient_sync(...)`, which no other module has.",
        )


def _always(migration: Migration, source: Source, model: cst.BaseExpression) -> bool:
    """Whether a model is FSDP1's wherever the function names it, not just below a question."""
    text = source.code(model)
    found = [
        migration.wrapped(part)
        for part in descend(function_around(source, model))
        if isinstance(part, type(model)) and source.code(part) == text and migration.values(part)
    ]
    return "sometimes" not in found


def rewrite_held(migration: Migration, source: Source, node: cst.Attribute) -> bool:
    """Rewrite `context = model.no_sync()` (or `model.no_sync`) and the `with` that enters it.

    The variable is given in the branches of an `if` beside the `with`, or by one conditional expression.
    """
    call = source.parent(node)
    called = isinstance(call, cst.Call) and call.func is node
    value: cst.CSTNode | None = call if called else node
    assign = source.parent(value) if value is not None else None
    if isinstance(assign, cst.IfExp) and not called:
        assign = source.parent(assign)
        entry = _entry(source, assign, called)
        head = entry[1] if entry is not None else None
        return isinstance(head, cst.Call) and no_sync.rewrite_no_sync(
            migration.rewrite, source, head
        )
    found = _entry(source, assign, called)
    if found is None or not isinstance(assign, cst.Assign) or assign.value is not value:
        return False
    block, _ = found
    if block in migration.unwrapped:
        return True  # rewritten with another of its branches
    name = _name(assign)
    assert name is not None
    model = source.code(node.value)
    settings: list[tuple[cst.Assign, str]] = []
    for use in uses(function_around(source, assign), name):
        target = source.parent(use)
        other = source.parent(target) if isinstance(target, cst.AssignTarget) else None
        if other is None:
            continue
        sync = _sync(source, other, model, called)
        if sync is None or not isinstance(other, cst.Assign) or not _beside(source, other, block):
            return False
        settings.append((other, sync))
    if len(block.items) != 1 or no_sync.left_early(block.body):
        return False
    for other, sync in settings:
        migration.replace_statement(source, other, [f"{model}.set_requires_gradient_sync({sync})"])
        migration.forget(source, other)
        root: cst.CSTNode = other.value
        while isinstance(root, cst.Call | cst.Attribute):
            root = root.func if isinstance(root, cst.Call) else root.value
        if isinstance(root, cst.Name):
            migration.rewrite.unused(source, root.value)
    migration.unwrapped.add(block)
    migration.unwrap(source, block, [])
    migration.rewrite.insert_after(source, block, [f"{model}.set_requires_gradient_sync(True)"])
    return True


def _name(assign: cst.CSTNode | None) -> str | None:
    if isinstance(assign, cst.Assign) and len(assign.targets) == 1:
        target = assign.targets[0].target
        return target.value if isinstance(target, cst.Name) else None
    return None


def _entry(
    source: Source, assign: cst.CSTNode | None, called: bool
) -> tuple[cst.With, cst.CSTNode] | None:
    """The one `with` that enters what an assignment holds, and the expression in its head."""
    name = _name(assign)
    if name is None or assign is None:
        return None
    reads = [
        use
        for use in uses(function_around(source, assign), name)
        if not isinstance(source.parent(use), cst.AssignTarget)
    ]
    if len(reads) != 1:
        return None
    head: cst.CSTNode = reads[0]
    if not called:
        parent = source.parent(head)
        if not isinstance(parent, cst.Call) or parent.func is not head or parent.args:
            return None
        head = parent
    item = source.parent(head)
    block = source.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(block, cst.With) or not isinstance(item, cst.WithItem) or item.asname:
        return None
    return block, head


def _sync(source: Source, assign: cst.CSTNode, model: str, called: bool) -> str | None:
    """Whether gradients are reduced in the context that an assignment gives, as a text."""
    if _name(assign) is None or not isinstance(assign, cst.Assign):
        return None
    value: cst.BaseExpression = assign.value
    if called:
        if not isinstance(value, cst.Call) or value.args:
            return None
        value = value.func
    if isinstance(value, cst.Attribute) and value.attr.value == "no_sync":
        return "False" if source.code(value.value) == model else None
    last = value.attr if isinstance(value, cst.Attribute) else value
    return "True" if isinstance(last, cst.Name) and last.value in no_sync.NOTHING else None


def _beside(source: Source, assign: cst.Assign, block: cst.With) -> bool:
    """Whether an assignment stands in the block of a `with`, or in branches of an `if` there."""
    home = source.parent(block)
    for node in ancestors(source, assign):
        if node is home:
            return True
        if not isinstance(node, cst.SimpleStatementLine | cst.IndentedBlock | cst.If | cst.Else):
            return False
    return False
