"""States under `torch.inference_mode()`, where FSDP2's parameters cannot be detached.

`model.state_dict()` detaches each parameter. In inference mode that fails for a DTensor that was
created outside of it ("Cannot set version_counter for inference tensor"). `torch.no_grad()` also
records no gradients.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.values import Bound, Function, Value
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import INFERENCE_MODE
from fsdplint.migration.context import Migration, nodes
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import ancestors

MODE = "torch.inference_mode"
NOTE = "`torch.no_grad()` replaces `torch.inference_mode()` where the model's state is taken"


def leave_inference_mode(migration: Migration, source: Source, node: cst.CSTNode) -> None:
    """Replace inference mode by `torch.no_grad()` around a node, in all functions that reach it.

    Raises:
        Blocked: the mode is only known at run time.
    """
    _leave_in_function(migration, source, node, set())


def _leave_in_function(
    migration: Migration, source: Source, node: cst.CSTNode, seen: set[cst.CSTNode]
) -> None:
    function: cst.FunctionDef | None = None
    for parent in ancestors(source, node):
        heads: list[cst.BaseExpression] = []
        if isinstance(parent, cst.With):
            heads = [item.item for item in parent.items]
        elif isinstance(parent, cst.FunctionDef):
            heads = [decorator.decorator for decorator in parent.decorators]
            function = parent
        for head in heads:
            called = head.func if isinstance(head, cst.Call) else head
            if migration.symbol(called) == MODE and _is_off(migration, source, head, called):
                return
        if function is not None:
            break
    if function is None or function in seen:
        return
    seen.add(function)
    for other, call in _calls(migration, source, function):
        _leave_in_function(migration, other, call, seen)


def _is_off(
    migration: Migration, source: Source, head: cst.BaseExpression, called: cst.BaseExpression
) -> bool:
    """Whether a use of inference mode turns it off; one that turns it on becomes `no_grad`."""
    given = head.args if isinstance(head, cst.Call) else ()
    if given and is_constant(given[0].value, "False"):
        return True
    if given and not is_constant(given[0].value, "True"):
        reason = INFERENCE_MODE()
        raise Blocked(source, head, reason)
    if isinstance(called, cst.Attribute):
        text = source.code(called.value) + ".no_grad"
    else:
        text = migration.need(source, "torch", "no_grad", head)
        migration.rewrite.remove_import_if_unused(source, source.code(called))
    migration.substitute(source, head, f"{text}()" if isinstance(head, cst.Call) else text)
    migration.note(NOTE, source, head)
    return False


def _calls(
    migration: Migration, source: Source, function: cst.FunctionDef
) -> Iterator[tuple[Source, cst.Call]]:
    """The calls that certainly run a function."""
    for other in migration.sources:
        for node in nodes(other):
            if isinstance(node, cst.Call) and isinstance(node.func, cst.Name | cst.Attribute):
                name = node.func if isinstance(node.func, cst.Name) else node.func.attr
                if name.value == function.name.value and _is_of(migration, node.func, function):
                    yield other, node


def _is_of(migration: Migration, called: cst.BaseExpression, function: cst.FunctionDef) -> bool:
    values = migration.values(called)
    if values:
        return any(_node(value) is function for value in values)
    if isinstance(called, cst.Name):
        return not migration.symbol(called)
    receiver = called.value if isinstance(called, cst.Attribute) else None
    return isinstance(receiver, cst.Name) and receiver.value == "self"


def _node(value: Value) -> cst.CSTNode | None:
    function = value.function if isinstance(value, Bound) else value
    return function.node if isinstance(function, Function) else None
