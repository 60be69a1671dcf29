"""Other spellings of imports, and other names of what is imported."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m
from refactoring import refactoring
from scripts import Script, of_main
from syntax_tools import (
    Rename,
    Statement,
    after_imports,
    head_length,
    is_import,
    read,
    statements,
    text_of,
)


def _from_imports(module: cst.Module) -> list[tuple[str, str, str]]:
    """(module, name, local name) of the `from torch... import` at the top level."""
    found = []
    for statement in module.body:
        if not m.matches(statement, m.SimpleStatementLine([m.ImportFrom()])):
            continue
        node = statement.body[0]  # type: ignore[union-attr]
        if isinstance(node.names, cst.ImportStar) or node.relative or node.module is None:
            continue
        source = text_of([node.module])
        for alias in node.names:
            name = alias.name.value
            found.append((source, name, alias.evaluated_alias or name))
    return [one for one in found if one[0].partition(".")[0] == "torch"]


def _is_bound_again(module: cst.Module, names: set[str]) -> bool:
    """Whether something other than an import binds one of the names."""
    assigned = m.findall(module, m.AssignTarget(m.Name()) | m.Param() | m.For(target=m.Name()))
    for node in assigned:
        target = node.name if isinstance(node, cst.Param) else node.target  # type: ignore[attr-defined]
        if target.value in names:
            return True
    return False


class _NoImport(cst.CSTTransformer):
    """Removes names of `from torch... import` at the top level."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom | cst.RemovalSentinel:
        if isinstance(updated_node.names, cst.ImportStar) or updated_node.module is None:
            return updated_node
        if text_of([updated_node.module]).partition(".")[0] != "torch":
            return updated_node
        kept = [
            a for a in updated_node.names if (a.evaluated_alias or a.name.value) not in self.names
        ]
        if not kept:
            return cst.RemoveFromParent()
        last = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(names=[*kept[:-1], last])


def _respelled(module: cst.Module, spelling: str, head: str, after: str = "") -> cst.Module | None:
    """Every name that a `from torch... import` binds, by another spelling and other imports."""
    found = _from_imports(module)
    names = {local for _, _, local in found}
    if not found or _is_bound_again(module, names):
        return None
    given = [
        {"source": s, "name": n, "local": local, "flat": s.replace(".", "_")}
        for s, n, local in found
    ]
    rename = {one["local"]: spelling.format(**one) for one in given}
    changed = module.visit(_NoImport(names)).visit(Rename(rename))
    if not isinstance(changed, cst.Module):
        return None
    lines = dict.fromkeys(head.format(**one) for one in given)
    length = head_length(changed)
    body = [*changed.body[:length], *statements("".join(lines)), *changed.body[length:]]
    changed = changed.with_changes(body=body)
    return (
        after_imports(changed, "".join(after.format(**one) for one in given)) if after else changed
    )


@refactoring()
def names_in_modules(module: cst.Module) -> cst.Module | None:
    """`from torch.x import y` becomes `import torch.x`, and `y` becomes `torch.x.y`."""
    return _respelled(module, "{source}.{name}", "import {source}\n")


@refactoring()
def module_alias(module: cst.Module) -> cst.Module | None:
    """`from torch.x import y` becomes `import torch.x as torch_x`, and `y` becomes `torch_x.y`."""
    return _respelled(module, "{flat}_module.{name}", "import {source} as {flat}_module\n")


@refactoring()
def name_alias(module: cst.Module) -> cst.Module | None:
    """`from torch.x import y` becomes `from torch.x import y as imported_y`."""
    return _respelled(module, "imported_{name}", "from {source} import {name} as imported_{name}\n")


@refactoring()
def assigned_alias(module: cst.Module) -> cst.Module | None:
    """What is imported from torch is assigned to another name, which is used in its place."""
    head = "from {source} import {name} as imported_{name}\n"
    return _respelled(module, "used_{name}", head, "used_{name} = imported_{name}\n")


@refactoring()
def class_of_names(module: cst.Module) -> cst.Module | None:
    """What is imported from torch becomes attributes of a class."""
    head = "from {source} import {name} as imported_{name}\n"
    changed = _respelled(module, "Api.used_{name}", head)
    if changed is None:
        return None
    names = dict.fromkeys(name for _, name, _ in _from_imports(module))
    lines = "".join(f"    used_{name} = staticmethod(imported_{name})\n" for name in names)
    return after_imports(changed, f"\n\nclass Api:\n{lines}")


@refactoring()
def names_by_getattr(module: cst.Module) -> cst.Module | None:
    """`from torch.x import y` becomes `getattr(torch.x, "y")`."""
    head = "import {source}\n"
    return _respelled(module, "used_{name}", head, 'used_{name} = getattr({source}, "{name}")\n')


@refactoring()
def names_by_importlib(module: cst.Module) -> cst.Module | None:
    """`from torch.x import y` becomes `importlib.import_module("torch.x").y`."""
    after = 'used_{name} = importlib.import_module("{source}").{name}\n'
    return _respelled(module, "used_{name}", "import importlib\n", after)


@refactoring()
def guarded_import(module: cst.Module) -> cst.Module | None:
    """The imports from torch stand in a `try` with an `except ImportError`."""
    found = _from_imports(module)
    names = {local for _, _, local in found}
    if not found:
        return None
    changed = module.visit(_NoImport(names))
    names_as = [(s, n if n == local else f"{n} as {local}") for s, n, local in found]
    lines = "".join(f"    from {s} import {n}\n" for s, n in names_as)
    nothing = "".join(f"    {local} = None\n" for _, _, local in found)
    text = f"try:\n{lines}except ImportError:\n{nothing}"
    length = head_length(changed)
    return changed.with_changes(
        body=[*changed.body[:length], *statements(text), *changed.body[length:]]
    )


@refactoring(is_of_script=True)
@of_main
def local_imports(script: Script) -> cst.Module | None:
    """The imports that only `main` needs stand in `main`."""
    definitions = [s for s in script.top if not is_import(s)]
    moved: list[Statement] = []
    kept: list[Statement] = []
    for statement in script.top:
        future = m.matches(
            statement, m.SimpleStatementLine([m.ImportFrom(module=m.Name("__future__"))])
        )
        if is_import(statement) and not future and not _binds(statement) & read(definitions):
            moved.append(statement)
        else:
            kept.append(statement)
    if not moved or "global " in script.module.code:
        return None
    return Script(script.module, kept, script.body, script.call, script.name).with_body(
        [*moved, *script.body]
    )


def _binds(statement: cst.CSTNode) -> set[str]:
    names = set()
    for alias in m.findall(statement, m.ImportAlias()):
        assert isinstance(alias, cst.ImportAlias)
        names.add(alias.evaluated_alias or alias.evaluated_name.partition(".")[0])
    return names
