"""`no_sync` that a variable holds until a `with` enters it."""

from __future__ import annotations

import libcst as cst

from fsdplint.fixes import no_sync
from fsdplint.fixes.syntax import uses
from fsdplint.interpreter.values import ModuleValue, Value
from fsdplint.migration.context import Migration, is_fsdp1
from fsdplint.migration.names import FSDP
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend
from fsdplint.trace import Replicated

DDP = "torch.nn.parallel.DistributedDataParallel"


def is_chosen(migration: Migration, source: Source, node: cst.Attribute) -> bool:
    """Whether `model.no_sync` is one of two contexts, and FSDP1 does not always wrap the model.

    A call of FSDP2's switch in its place would reach the other module as well.
    """
    call = source.parent(node)
    value: cst.CSTNode = call if isinstance(call, cst.Call) and call.func is node else node
    choice = source.parent(value)
    if not isinstance(choice, cst.IfExp | cst.Assign):
        return False
    tests_class = isinstance(choice, cst.IfExp) and any(
        migration.fsdp1(part) for part in descend(choice.test)
    )
    return tests_class or not _always(migration, source, node.value)


def _always(migration: Migration, source: Source, model: cst.BaseExpression) -> bool:
    """Whether FSDP1 wraps a model wherever the function mentions it, not only under a test."""
    return "sometimes" not in map(migration.wrapping_of, _uses(migration, source, model))


def _uses(
    migration: Migration, source: Source, model: cst.BaseExpression
) -> list[cst.BaseExpression]:
    text = source.code(model)
    return [
        part
        for part in descend(function_around(source, model))
        if isinstance(part, type(model)) and source.code(part) == text and migration.values(part)
    ]


def kinds(migration: Migration, source: Source, model: cst.BaseExpression) -> str:
    """The kinds of module that a model is in its function.

    "always": FSDP1 always wraps it. "or plain": only in some configurations. "several": it may have
    another wrapper, in a run of its own or in one that was not tried.
    """
    if _always(migration, source, model):
        return "always"
    if _uses_ddp(migration):
        return "several"
    values = [v for use in _uses(migration, source, model) for v in migration.values(use)]
    return "or plain" if all(is_fsdp1(v) or _is_plain(v) for v in values) else "several"


def may_be_others(migration: Migration, source: Source, node: cst.Attribute) -> bool:
    """Whether the model of `model.no_sync` may have another wrapper than FSDP1's where it is read."""
    if any(isinstance(v, ModuleValue) and v.wrapper == "ddp" for v in migration.values(node.value)):
        return True
    if any(True for trace in migration.program.traces for _ in trace.of(Replicated)):
        return False  # the values are those of all wrappers
    tests = [one.test for one in ancestors(source, node) if isinstance(one, cst.If | cst.IfExp)]
    is_tested = any(migration.fsdp1(part) for test in tests for part in descend(test))
    return not is_tested and kinds(migration, source, node.value) == "several"


def _uses_ddp(migration: Migration) -> bool:
    """Whether the program wraps models with DistributedDataParallel, or hands the class on."""
    return any(
        full == DDP and not any(_only_names_class(source, one) for one in ancestors(source, node))
        for source, node, full in migration.program.references(DDP.rpartition(".")[0])
    )


def _only_names_class(source: Source, node: cst.CSTNode) -> bool:
    """Whether code in a node uses a class for a test or a type only."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
        return node.func.value in ("isinstance", "issubclass")
    return isinstance(node, cst.Annotation)


def _is_plain(value: Value) -> bool:
    """Whether a value is a module without wrappers other than `torch.compile`."""
    while isinstance(value, ModuleValue) and value.wrapper == "compile" and value.inner:
        value = value.inner
    return isinstance(value, ModuleValue) and not value.wrapper


def rewrite_under_isinstance(migration: Migration, source: Source, node: cst.Attribute) -> bool:
    """Rewrite `if isinstance(model, FSDP) and ...: context = model.no_sync` and its `with`.

    For any other model the context does nothing, so only FSDP2's models are switched. Returns whether
    the code has this form.
    """
    call = source.parent(node)
    called = isinstance(call, cst.Call) and call.func is node
    value: cst.CSTNode | None = call if called else node
    assign = source.parent(value) if value is not None else None
    found = _entry(source, assign, called)
    if found is None or not isinstance(assign, cst.Assign) or assign.value is not value:
        return False
    block, _ = found
    isinstance_if = _isinstance_if(migration, source, assign, node.value)
    if isinstance_if is None or len(block.items) != 1 or block.asynchronous is not None:
        return False
    others = _defaults(source, assign, isinstance_if, block, called)
    model = source.code(node.value)
    targets = [part.target for part in descend(block) if isinstance(part, cst.AssignTarget)]
    if others is None or model in map(source.code, targets):
        return False
    migration.replace_statement(source, assign, [f"{model}.set_requires_gradient_sync(False)"])
    for other in others:
        migration.delete_statement(source, other)
        _release_null_context(migration, source, other.value)
    kind = migration.need(source, "torch.distributed.fsdp", "FSDPModule", block)
    after = [f"if isinstance({model}, {kind}):", f"\t{model}.set_requires_gradient_sync(True)"]
    _open(migration, source, block, after)
    return True


def _open(migration: Migration, source: Source, block: cst.With, after: list[str]) -> None:
    """Remove the head of a `with`, and insert lines that run after its body on every exit."""
    if no_sync.must_restore(source, block):
        migration.own(source, block.items[0])
        no_sync.restore_at_last(migration.rewrite, source, block, after)
        return
    migration.blocks.unwrapped.add(block)
    migration.unwrap(source, block, [])
    migration.rewrite.insert_after(source, block, after)


def _isinstance_if(
    migration: Migration, source: Source, assign: cst.Assign, model: cst.BaseExpression
) -> cst.If | None:
    """The `if isinstance(model, FSDP) and ...:` that contains only an assignment, or None."""
    line = source.parent(assign)
    body = source.parent(line) if line is not None else None
    isinstance_if = source.parent(body) if body is not None else None
    if (
        not isinstance(isinstance_if, cst.If)
        or isinstance_if.body is not body
        or isinstance_if.orelse
    ):
        return None
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    if len(isinstance_if.body.body) != 1:
        return None
    for part in _conjuncts(isinstance_if.test):
        if (
            isinstance(part, cst.Call)
            and isinstance(part.func, cst.Name)
            and part.func.value == "isinstance"
            and len(part.args) == 2
            and source.code(part.args[0].value) == source.code(model)
            and migration.fsdp1(part.args[1].value) == FSDP
        ):
            return isinstance_if
    return None


def _conjuncts(test: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return [*_conjuncts(test.left), *_conjuncts(test.right)]
    return [test]


def _defaults(
    source: Source, assign: cst.Assign, isinstance_if: cst.If, block: cst.With, called: bool
) -> list[cst.Assign] | None:
    """The assignments of null contexts to the variable before the `if`, or None.

    They are in the same block as the `if`, and the `with` is the next statement.
    """
    home = source.parent(isinstance_if)
    if not isinstance(home, cst.IndentedBlock | cst.Module):
        return None
    body = list(home.body)
    if source.parent(block) is not home or body.index(block) != body.index(isinstance_if) + 1:
        return None
    name = _name(assign)
    assert name is not None
    found: list[cst.Assign] = []
    for use in uses(function_around(source, assign), name):
        target = source.parent(use)
        other = source.parent(target) if isinstance(target, cst.AssignTarget) else None
        if target is None or other is assign or not isinstance(target, cst.AssignTarget):
            continue
        line = source.parent(other) if other is not None else None
        if (
            not isinstance(other, cst.Assign)
            or _sync(source, other, "", called) != "True"
            or not isinstance(line, cst.SimpleStatementLine)
            or line not in body[: body.index(isinstance_if)]
        ):
            return None
        found.append(other)
    return found or None


def _release_null_context(migration: Migration, source: Source, context: cst.CSTNode) -> None:
    """Mark the import of a null context as perhaps unused now."""
    while isinstance(context, cst.Call | cst.Attribute):
        context = context.func if isinstance(context, cst.Call) else context.value
    if isinstance(context, cst.Name):
        migration.rewrite.remove_import_if_unused(source, context.value)


def rewrite_context_variable(migration: Migration, source: Source, node: cst.Attribute) -> bool:
    """Rewrite `context = model.no_sync()` (or `model.no_sync`) and the `with` that enters it.

    The branches of an `if` before the `with` assign the variable, or one conditional expression
    does. Returns whether the code has this form.
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
    if block in migration.blocks.unwrapped:
        return True  # already rewritten for another branch
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
        if (
            sync is None
            or not isinstance(other, cst.Assign)
            or not _is_in_same_block(source, other, block)
        ):
            return False
        settings.append((other, sync))
    restored = no_sync.must_restore(source, block)
    if len(block.items) != 1 or restored and [sync for _, sync in settings].count("False") > 1:
        return False
    for other, sync in settings:
        migration.replace_statement(source, other, [f"{model}.set_requires_gradient_sync({sync})"])
        migration.forget(source, other)
        _release_null_context(migration, source, other.value)
    _open(migration, source, block, [f"{model}.set_requires_gradient_sync(True)"])
    return True


def _name(assign: cst.CSTNode | None) -> str | None:
    if isinstance(assign, cst.Assign) and len(assign.targets) == 1:
        target = assign.targets[0].target
        return target.value if isinstance(target, cst.Name) else None
    return None


def _entry(
    source: Source, assign: cst.CSTNode | None, called: bool
) -> tuple[cst.With, cst.CSTNode] | None:
    """The only `with` that enters the context of an assignment, and the expression in its head."""
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
    """The text "True" or "False": whether gradients are reduced in the assigned context."""
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


def _is_in_same_block(source: Source, assign: cst.Assign, block: cst.With) -> bool:
    """Whether an assignment is in the same block as a `with`, or in branches of an `if` there."""
    home = source.parent(block)
    for node in ancestors(source, assign):
        if node is home:
            return True
        if not isinstance(node, cst.SimpleStatementLine | cst.IndentedBlock | cst.If | cst.Else):
            return False
    return False
