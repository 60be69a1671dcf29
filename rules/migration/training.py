"""The training loop: clipping, `no_sync`, `isinstance`, `.module`, the sharded gradient scaler."""

from __future__ import annotations

import libcst as cst

from fsdplint.layout import descend
from fsdplint.program.source import Source
from fsdplint.rules.migration.calls import arguments
from fsdplint.rules.migration.context import Migration, expression, nodes, placed
from fsdplint.rules.migration.names import FSDP
from fsdplint.rules.migration.scopes import definitions, home_of, reads
from fsdplint.rules.migration.text import call, quoted

FINE = {
    # methods and attributes of nn.Module (and of FSDP1's wrapper) that mean the same in FSDP2
    "train",
    "eval",
    "parameters",
    "named_parameters",
    "modules",
    "named_modules",
    "children",
    "named_children",
    "buffers",
    "named_buffers",
    "zero_grad",
    "requires_grad_",
    "training",
    "get_submodule",
    "register_forward_hook",
    "register_forward_pre_hook",
    "__class__",
    "config",
    "device",
    "dtype",
    "to",
    "cuda",
}
HANDLED = {"state_dict", "load_state_dict", "clip_grad_norm_", "no_sync", "module", "forward"}
GONE = {
    "apply": "FSDP.apply runs on whole parameters",
    "register_comm_hook": "FSDP2 has no communication hooks of this kind",
    "_fsdp_wrapped_module": "FSDP2 wraps nothing",
    "flat_param": "FSDP2 has no flat parameters",
    "check_is_root": "FSDP2 has no counterpart",
    "rank": "an attribute of FSDP1's wrapper",
    "world_size": "an attribute of FSDP1's wrapper",
    "process_group": "an attribute of FSDP1's wrapper",
    "sharding_strategy": "an attribute of FSDP1's wrapper",
    "mixed_precision": "an attribute of FSDP1's wrapper",
    "compute_device": "an attribute of FSDP1's wrapper",
}


def rewrite_clipping(migration: Migration, source: Source, node: cst.Call) -> None:
    """`model.clip_grad_norm_(x)` becomes `torch.nn.utils.clip_grad_norm_(model.parameters(), x)`."""
    assert isinstance(node.func, cst.Attribute)
    model = expression(migration, source, node.func.value)
    utils = _clip_name(migration, source, node)
    given = [f"{model}.parameters()", *(_argument(migration, source, arg) for arg in node.args)]
    tail = ".full_tensor()" if _norm_is_formatted(source, node) else ""
    head = _head_of(source, node)
    text = call(source, node, head + utils, given, tail).removeprefix(head)
    migration.substitute(source, node, placed(source, node, text))
    migration.step(source, node, "Clip with torch.nn.utils.clip_grad_norm_")


def _argument(migration: Migration, source: Source, arg: cst.Arg) -> str:
    text = expression(migration, source, arg.value)
    if arg.keyword is not None:
        return f"{arg.keyword.value}={text}"
    return arg.star + text


def _head_of(source: Source, node: cst.CSTNode) -> str:
    """What stands before a node on its line."""
    start = source.span(node)[0]
    return source.text[source.line_start(start) : start].lstrip()


def _clip_name(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    text = migration.need(source, "torch.nn", "Module", at)
    if text.endswith(".Module"):
        return text.removesuffix("Module") + "utils.clip_grad_norm_"
    return f"{migration.torch(source, at)}.nn.utils.clip_grad_norm_"


def _norm_is_formatted(source: Source, node: cst.Call) -> bool:
    """Whether the norm is used for more than its `.item()`, which works on a DTensor."""
    parent = source.parent(node)
    if isinstance(parent, cst.Expr):
        return False
    if isinstance(parent, cst.Attribute):
        return parent.attr.value != "item"
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        target = parent.targets[0].target
        found = definitions(source, target) if isinstance(target, cst.Name) else None
        home = home_of(source, target) if isinstance(target, cst.Name) else None
        if found is None or home is None or not isinstance(target, cst.Name):
            return True
        uses = reads(source, home, target.value)
        return not all(_is_item(source, use) for use in uses)
    return True


def _is_item(source: Source, use: cst.Name) -> bool:
    parent = source.parent(use)
    outer = source.parent(parent) if parent is not None else None
    return (
        isinstance(parent, cst.Attribute)
        and parent.attr.value == "item"
        and isinstance(outer, cst.Call)
    )


def rewrite_no_sync(migration: Migration, source: Source, node: cst.Call) -> None:
    """`with model.no_sync():` becomes a pair of `set_requires_gradient_sync`.

    Raises:
        Blocked: the context manager is used in another way.
    """
    assert isinstance(node.func, cst.Attribute)
    item, condition = _with_item(migration, source, node)
    block = source.parent(item)
    if not isinstance(block, cst.With) or len(block.items) != 1 or item.asname is not None:
        migration.block(source, node, "`no_sync` together with another context manager")
    model = expression(migration, source, node.func.value)
    setter = f"{model}.set_requires_gradient_sync"
    off = "False" if condition is None else condition
    if _leaves(block):
        migration.block(
            source, node, "a block under `no_sync` that is left by break, continue or return"
        )
    migration.rewrite.unwrap(source, block, [f"{setter}({off})"])
    migration.own(source, item)
    migration.forget(source, item)
    if condition is None or not _set_again(migration, source, block):
        migration.rewrite.insert_after(source, block, [f"{setter}(True)"])
    migration.step(source, node, "Switch gradient synchronisation with set_requires_gradient_sync")


def _with_item(
    migration: Migration, source: Source, node: cst.Call
) -> tuple[cst.WithItem, str | None]:
    """The `with` item of a `no_sync()` call and the condition under which gradients are synchronised."""
    parent = source.parent(node)
    if isinstance(parent, cst.WithItem):
        return parent, None
    outer = source.parent(parent) if parent is not None else None
    if isinstance(parent, cst.IfExp) and isinstance(outer, cst.WithItem):
        test = migration.text(source, parent.test)
        if node is parent.body and _is_null(migration, parent.orelse):
            return outer, _negated(migration, source, parent.test)
        if node is parent.orelse and _is_null(migration, parent.body):
            return outer, test
    migration.block(source, node, "`no_sync` that is not the head of a `with`")


def _is_null(migration: Migration, node: cst.BaseExpression) -> bool:
    if not isinstance(node, cst.Call):
        return False
    name = migration.symbol(node.func)
    return name in ("contextlib.nullcontext", "contextlib.suppress", "contextlib.ExitStack")


OPPOSITE: dict[type[cst.BaseCompOp], str] = {
    cst.Equal: "==",
    cst.NotEqual: "!=",
    cst.LessThan: "<",
    cst.LessThanEqual: "<=",
    cst.GreaterThan: ">",
    cst.GreaterThanEqual: ">=",
}
NEGATION = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _negated(migration: Migration, source: Source, test: cst.BaseExpression) -> str:
    """The text of `not test`, as one would write it."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return migration.text(source, test.expression)
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        part = test.comparisons[0]
        sign = OPPOSITE.get(type(part.operator))
        if sign is not None:
            left = migration.text(source, test.left)
            right = migration.text(source, part.comparator)
            return f"{left} {NEGATION[sign]} {right}"
    text = migration.text(source, test)
    if isinstance(test, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
        return f"not {text}"
    return f"not ({text})"


def _leaves(block: cst.With) -> bool:
    """Whether the body can be left before its end (but for exceptions)."""
    stack: list[tuple[cst.CSTNode, bool]] = [(block.body, False)]
    while stack:
        node, in_loop = stack.pop()
        if isinstance(node, cst.Return):
            return True
        if isinstance(node, cst.Break | cst.Continue) and not in_loop:
            return True
        if isinstance(node, cst.FunctionDef | cst.Lambda | cst.ClassDef):
            continue
        inside = in_loop or isinstance(node, cst.For | cst.While)
        stack.extend((child, inside) for child in node.children)
    return False


def _set_again(migration: Migration, source: Source, block: cst.With) -> bool:
    """Whether every backward pass of the program runs in this block, which sets the switch itself."""
    inside = set(descend(block))
    for other in migration.sources:
        for node in nodes(other):
            if (
                isinstance(node, cst.Call)
                and isinstance(node.func, cst.Attribute)
                and node.func.attr.value == "backward"
                and node not in inside
            ):
                return False
    return any(
        isinstance(node, cst.Attribute) and node.attr.value == "backward" for node in inside
    )


# References to the class -----------------------------------------------------------------------


def rewrite_class_reference(migration: Migration, source: Source, node: cst.CSTNode) -> None:
    """`isinstance(x, FSDP)` and annotations speak of FSDPModule.

    Raises:
        Blocked: the class is used in another way.
    """
    if not (_in_isinstance(source, node) or _in_annotation(source, node)):
        parent = source.parent(node)
        reason = "this use of the FSDP class is not migrated yet"
        if isinstance(parent, cst.Arg) and isinstance(source.parent(parent), cst.ClassDef):
            reason = "a subclass of FSDP"
        elif isinstance(parent, cst.Arg):
            reason = "the FSDP class is passed as an argument"
        migration.block(source, node, reason)
    name = migration.need(source, "torch.distributed.fsdp", "FSDPModule", node)
    migration.claim(source, node)
    migration.substitute(source, node, name)
    migration.step(source, node, "Ask for FSDPModule")


def _in_isinstance(source: Source, node: cst.CSTNode) -> bool:
    arg = source.parent(node)
    while isinstance(arg, cst.Element | cst.Tuple | cst.BinaryOperation):
        arg = source.parent(arg)
    call = source.parent(arg) if isinstance(arg, cst.Arg) else None
    return (
        isinstance(call, cst.Call)
        and isinstance(call.func, cst.Name)
        and call.func.value in ("isinstance", "issubclass")
    )


def _in_annotation(source: Source, node: cst.CSTNode) -> bool:
    current = source.parent(node)
    while isinstance(
        current,
        cst.Subscript | cst.SubscriptElement | cst.Index | cst.BinaryOperation | cst.Tuple,
    ):
        current = source.parent(current)
    return isinstance(current, cst.Annotation)


def rewrite_inner_module(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """`model.module` is `model` itself.

    Raises:
        Blocked: the model has a `.module` in other configurations (DDP).
    """
    value = node.value
    parent = source.parent(node)
    if migration.wrapped(value) != "always":
        if _only_if_fsdp(migration, source, node) is None:
            migration.block(
                source, node, "`.module` of a model that FSDP wraps in some configurations only"
            )
    inner = migration.text(source, value)
    choice = _only_if_fsdp(migration, source, node)
    if choice is not None:
        migration.claim(source, choice.test)
        migration.substitute(source, choice, inner)
        migration.step(source, node, "Use the model itself")
        return
    if isinstance(parent, cst.AssignTarget):
        migration.block(source, node, "an assignment to `.module`")
    migration.substitute(source, node, inner)
    migration.step(source, node, "Use the model itself")


def _only_if_fsdp(migration: Migration, source: Source, node: cst.Attribute) -> cst.IfExp | None:
    """`x.module if isinstance(x, FSDP) else x`, which is `x` in FSDP2."""
    parent = source.parent(node)
    if not isinstance(parent, cst.IfExp) or parent.body is not node:
        return None
    test = parent.test
    model = source.code(node.value)
    if (
        isinstance(test, cst.Call)
        and isinstance(test.func, cst.Name)
        and test.func.value == "isinstance"
        and len(test.args) == 2
        and source.code(test.args[0].value) == model
        and migration.fsdp1(test.args[1].value) == FSDP
        and source.code(parent.orelse) == model
    ):
        return parent
    return None


def rewrite_scaler(migration: Migration, source: Source, node: cst.CSTNode) -> None:
    """`ShardedGradScaler(...)` becomes `torch.amp.GradScaler(...)`.

    Raises:
        Blocked: it is given arguments that torch.amp's has not.
    """
    parent = source.parent(node)
    if not isinstance(parent, cst.Call) or parent.func is not node:
        if _in_annotation(source, node):
            migration.claim(source, node)
            torch = migration.torch(source, node)
            migration.substitute(source, node, f"{torch}.amp.GradScaler")
            return
        migration.block(source, node, "this use of ShardedGradScaler is not migrated yet")
    named, rest = arguments(
        parent,
        ("device", "init_scale", "backoff_factor", "growth_factor", "growth_interval", "enabled"),
    )
    if rest or "process_group" in named or any(a.keyword is None for a in parent.args[1:]):
        migration.block(source, node, "ShardedGradScaler with a process group")
    given = [_argument(migration, source, arg) for arg in parent.args]
    if "device" not in named:
        given = [quoted(source, "cuda"), *given]
    torch = migration.torch(source, node)
    migration.claim(source, node)
    head = _head_of(source, parent)
    text = call(source, parent, f"{head}{torch}.amp.GradScaler", given).removeprefix(head)
    migration.substitute(source, parent, placed(source, parent, text))
    migration.step(source, node, "Scale with torch.amp.GradScaler")


def check_attribute(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Block on a method or attribute of an FSDP1 module that FSDP2 gives another meaning.

    Raises:
        Blocked: with the reason.
    """
    name = node.attr.value
    if name in FINE or name in HANDLED:
        return
    if name in GONE:
        migration.block(source, node, f"`.{name}`: {GONE[name]}")
    parent = source.parent(node)
    if isinstance(parent, cst.Call) and parent.func is node and name in ("generate", "sample"):
        migration.block(
            source,
            node,
            f"`.{name}()` of a sharded model is not migrated yet "
            "(register_fsdp_forward_method makes it gather the parameters)",
        )


