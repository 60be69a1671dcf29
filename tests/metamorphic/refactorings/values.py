"""Other ways for a value to come into a variable."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import libcst as cst
import libcst.matchers as m
from refactoring import refactoring
from scripts import Script, of_main
from syntax_tools import (
    Rename,
    bound,
    has_own,
    nested_scopes,
    read,
    scope,
    statements,
    text_of,
    with_head,
)

_ASSIGNMENT = m.SimpleStatementLine([m.Assign(targets=[m.AssignTarget(m.Name())], value=m.Call())])
Spelling = Callable[[str, str, int], str]


class _Assignments(cst.CSTTransformer):
    """Changes `name = call(...)` outside of class bodies."""

    def __init__(self, spelling: Spelling) -> None:
        self.spelling = spelling
        self.in_class = [False]
        self.count = 0

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.in_class.append(True)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.in_class.append(False)

    def leave_ClassDef(
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.ClassDef:
        self.in_class.pop()
        return updated_node

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        self.in_class.pop()
        return updated_node

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement]:
        if self.in_class[-1] or not m.matches(updated_node, _ASSIGNMENT):
            return updated_node
        node = updated_node.body[0]
        assert isinstance(node, cst.Assign)
        self.count += 1
        new = statements(
            self.spelling(text_of([node.targets[0].target]), text_of([node.value]), self.count)
        )
        new[-1] = new[-1].with_changes(leading_lines=[])
        new[0] = new[0].with_changes(leading_lines=updated_node.leading_lines)
        return cst.FlattenSentinel(new)


def _assigned(module: cst.Module, spelling: Spelling, head: str = "") -> cst.Module | None:
    changed = module.visit(_Assignments(spelling))
    if changed.code == module.code:
        return None
    return with_head(changed, head) if head else changed


@refactoring()
def conditional_expression(module: cst.Module) -> cst.Module | None:
    """`x = f()` becomes `x = f() if IS_ENABLED else None` with a constant of the module."""
    return _assigned(
        module, lambda x, f, _: f"{x} = {f} if IS_ENABLED else None\n", "IS_ENABLED = True\n"
    )


@refactoring()
def tuple_assignment(module: cst.Module) -> cst.Module | None:
    """`x = f()` becomes `x, rest = f(), None`."""
    return _assigned(module, lambda x, f, n: f"{x}, rest_{n} = {f}, None\n")


@refactoring()
def starred_assignment(module: cst.Module) -> cst.Module | None:
    """`x = f()` becomes `x, *rest = [f(), None]`."""
    return _assigned(module, lambda x, f, n: f"{x}, *rest_{n} = [{f}, None]\n")


@refactoring()
def walrus(module: cst.Module) -> cst.Module | None:
    """`x = f()` becomes `if (x := f()) is None: pass`."""
    return _assigned(module, lambda x, f, _: f"if ({x} := {f}) is None:\n    pass\n")


@refactoring()
def chained_assignment(module: cst.Module) -> cst.Module | None:
    """`x = f()` becomes `copy = x = f()`."""
    return _assigned(module, lambda x, f, n: f"copy_{n} = {x} = {f}\n")


@refactoring()
def through_list(module: cst.Module) -> cst.Module | None:
    """`x = f()` becomes `items = []`, `items.append(f())` and `x = items[0]`."""
    return _assigned(
        module, lambda x, f, n: f"items_{n} = []\nitems_{n}.append({f})\n{x} = items_{n}[0]\n"
    )


@refactoring()
def through_dict(module: cst.Module) -> cst.Module | None:
    """`x = f()` becomes `parts = {}`, `parts["x"] = f()` and `x = parts["x"]`."""
    return _assigned(
        module,
        lambda x, f, n: f'parts_{n} = {{}}\nparts_{n}["{x}"] = {f}\n{x} = parts_{n}["{x}"]\n',
    )


@refactoring()
def through_comprehension(module: cst.Module) -> cst.Module | None:
    """`x = f()` becomes `x = [f() for _ in range(1)][0]`."""

    def spelling(x: str, f: str, n: int) -> str:
        return f"{x} = {f}\n" if "super()" in f else f"{x} = [{f} for turn_{n} in range(1)][0]\n"

    return _assigned(module, spelling)


@refactoring()
def through_next(module: cst.Module) -> cst.Module | None:
    """`x = f()` becomes `x = next(iter((f(),)))`."""
    return _assigned(module, lambda x, f, _: f"{x} = next(iter(({f},)))\n")


@refactoring()
def through_attribute(module: cst.Module) -> cst.Module | None:
    """`x = f()` becomes `holder = SimpleNamespace()`, `holder.x = f()` and `x = holder.x`."""
    return _assigned(
        module,
        lambda x, f, n: (
            f"holder_{n} = types.SimpleNamespace()\nholder_{n}.{x} = {f}\n{x} = holder_{n}.{x}\n"
        ),
        "import types\n",
    )


@refactoring()
def through_identity(module: cst.Module) -> cst.Module | None:
    """`x = f()` becomes `x = same(f())` with a function that returns its argument."""
    helper = "def same(value):\n    return value\n\n\n"
    return _assigned(module, lambda x, f, _: f"{x} = same({f})\n", helper)


@refactoring()
def through_or(module: cst.Module) -> cst.Module | None:
    """`x = f()` becomes `x = None` and `x = f() if x is None else x`."""

    def spelling(x: str, f: str, n: int) -> str:
        # A call may read the earlier value of the same name.
        empty = f"empty_{n}" if re.search(rf"\b{re.escape(x)}\b", f) else x
        return f"{empty} = None\n{x} = {f} if {empty} is None else {empty}\n"

    return _assigned(module, spelling)


@refactoring()
def cached_function(module: cst.Module) -> cst.Module | None:
    """`x = f()` becomes a function with `functools.cache` that returns it, which is called at once."""

    def spelling(x: str, f: str, n: int) -> str:
        # A function that reads its own result's name, or that is in a method with `super()`.
        if f"{x}" in f or "super()" in f or "await " in f:
            return f"{x} = {f}\n"
        return f"@functools.cache\ndef build_{n}():\n    return {f}\n\n{x} = build_{n}()\n"

    return _assigned(module, spelling, "import functools\n")


def _by_index(script: Script, container: str, element: str) -> cst.Module | None:
    """Every variable that a call is assigned to, by an element of a container."""
    body = list(script.body)
    if has_own(body, cst.Global, cst.Nonlocal, cst.Del):
        return None
    names = _of_calls(body)
    if not names:
        return None
    rename = Rename({name: element.format(name=name, index=i) for i, name in enumerate(names)})
    first = statements(container.format(names=names, count=len(names)))
    return script.with_body([*first, *(s.visit(rename) for s in body)])


def _of_calls(body: Sequence[cst.CSTNode]) -> list[str]:
    """The variables that a call is assigned to, which no nested scope binds."""
    found = [
        m.findall(s, m.Assign(targets=[m.AssignTarget(m.Name())], value=m.Call())) for s in body
    ]
    names = [a.targets[0].target.value for some in found for a in some]  # type: ignore[attr-defined]
    table = scope(list(body))  # type: ignore[arg-type]
    inner = {s.get_name() for t in nested_scopes(table) for s in t.get_symbols() if s.is_local()}
    walrus = {w.target.value for s in body for w in m.findall(s, m.NamedExpr(target=m.Name()))}  # type: ignore[attr-defined]
    kept = [n for n in dict.fromkeys(names) if n not in inner | walrus and n in bound(list(body))]  # type: ignore[arg-type]
    return [n for n in kept if n in read(body)]


@refactoring(is_of_script=True)
@of_main
def list_with_index(script: Script) -> cst.Module | None:
    """The variables of `main` become elements of a list, `parts[0]`."""
    return _by_index(script, "parts = [None] * {count}\n", "parts[{index}]")


@refactoring(is_of_script=True)
@of_main
def dict_with_names(script: Script) -> cst.Module | None:
    """The variables of `main` become elements of a dict, `parts["model"]`."""
    return _by_index(script, "parts = {{}}\n", 'parts["{name}"]')


@refactoring(is_of_script=True)
@of_main
def namespace_with_names(script: Script) -> cst.Module | None:
    """The variables of `main` become attributes of a `SimpleNamespace`."""
    changed = _by_index(script, "parts = types.SimpleNamespace()\n", "parts.{name}")
    return None if changed is None else with_head(changed, "import types\n")
