"""Code that cannot be followed in the middle of a program, as libraries have it."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst
import libcst.matchers as m
from refactoring import refactoring
from syntax_tools import Statement, block, expression, statements, text_of

_BACKWARD = m.Call(m.Attribute(attr=m.Name("backward")))


def _training_loops(
    module: cst.Module, change: Callable[[cst.For], cst.BaseStatement]
) -> cst.Module | None:
    """Change the innermost loops that run backward."""

    class Loops(cst.CSTTransformer):
        def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.BaseStatement:
            inner = m.findall(original_node.body, m.For(body=_with_backward()))
            is_training = bool(m.findall(original_node.body, _BACKWARD)) and not inner
            plain = updated_node.asynchronous is None and updated_node.orelse is None
            is_block = isinstance(updated_node.body, cst.IndentedBlock)
            return change(updated_node) if is_training and plain and is_block else updated_node

    changed = module.visit(Loops())
    return None if changed.code == module.code else changed


def _with_backward() -> m.MatchIfTrue[cst.CSTNode]:
    return m.MatchIfTrue(lambda body: bool(m.findall(body, _BACKWARD)))


def _body(node: cst.For) -> list[Statement]:
    return [one for one in node.body.body if isinstance(one, Statement)]


@refactoring()
def unknown_context(module: cst.Module) -> cst.Module | None:
    """A turn of the training loop stands under a context that cannot be followed."""

    def change(node: cst.For) -> cst.BaseStatement:
        (around,) = statements('with eval("__import__")("contextlib").nullcontext():\n    pass\n')
        return node.with_changes(body=block([around.with_changes(body=block(_body(node)))]))

    return _training_loops(module, change)


@refactoring()
def unknown_iterator(module: cst.Module) -> cst.Module | None:
    """The training loop goes over what a function out of sight makes of its data."""

    def change(node: cst.For) -> cst.BaseStatement:
        return node.with_changes(iter=expression(f'eval("iter")({text_of([node.iter])})'))

    return _training_loops(module, change)


@refactoring()
def unknown_stop(module: cst.Module) -> cst.Module | None:
    """A test that cannot be followed may end the training loop at the begin of a turn."""

    def change(node: cst.For) -> cst.BaseStatement:
        return node.with_changes(
            body=block([*statements('if eval("False"):\n    break\n'), *_body(node)])
        )

    return _training_loops(module, change)


@refactoring()
def unknown_test(module: cst.Module) -> cst.Module | None:
    """The training loop stands under a test that cannot be followed."""

    def change(node: cst.For) -> cst.BaseStatement:
        return statements('if eval("True"):\n    pass\n')[0].with_changes(body=block([node]))

    return _training_loops(module, change)


@refactoring()
def unknown_batch(module: cst.Module) -> cst.Module | None:
    """The training loop takes what a function out of sight makes of each element."""

    def change(node: cst.For) -> cst.BaseStatement:
        target = text_of([node.target])
        line = statements(f'{target} = eval("lambda batch: batch")(({target}))\n')
        return node.with_changes(body=block([*line, *_body(node)]))

    return _training_loops(module, change)


@refactoring()
def unknown_decorator(module: cst.Module) -> cst.Module | None:
    """The functions have a decorator that cannot be followed."""

    class Functions(cst.CSTTransformer):
        def visit_ClassDef(self, node: cst.ClassDef) -> bool:
            return False

        def leave_FunctionDef(
            self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
        ) -> cst.FunctionDef:
            decorator = cst.Decorator(expression('eval("lambda function: function")'))
            return updated_node.with_changes(decorators=[decorator, *updated_node.decorators])

    changed = module.visit(Functions())
    return None if changed.code == module.code else changed
