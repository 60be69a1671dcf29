"""A script becomes several files."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
from refactoring import Split, refactoring
from scripts import script_of
from syntax_tools import Rename, Statement, bound, is_docstring, is_import, read, statements

NAME = "program_parts"


def _parts(module: cst.Module) -> tuple[list[Statement], list[Statement], list[str]] | None:
    """What the script imports, defines and has as constants; the rest; the names of the definitions."""
    script = script_of(module)
    if script is None or "global " in module.code or "__file__" in module.code:
        return None
    body = read(script.body)
    if any("global " in cst.Module([s]).code for s in script.body[:1]):
        return None
    imports = [s for s in script.top if is_import(s)]
    definitions = [s for s in script.top if isinstance(s, (cst.FunctionDef, cst.ClassDef))]
    others = [s for s in script.top if not is_import(s) and not is_docstring(s)]
    if not definitions:
        return None
    names = [name for name in bound(others) if name in body or name in read(script.call)]
    future = [s for s in imports if "__future__" in cst.Module([s]).code]
    moved = [*imports, *others]
    rest = script.with_body(script.body)
    kept = [s for s in rest.body if s not in others]
    return moved, [s for s in kept if s not in future or s in kept], names


def _split(
    module: cst.Module, rest: Sequence[Statement], text: str, files: dict[str, str]
) -> Split:
    imports = [i for i, s in enumerate(rest) if is_import(s)]
    place = imports[-1] + 1 if imports else 0
    body = [*rest[:place], *statements(text), *rest[place:]]
    return Split(module.with_changes(body=body), files)


@refactoring(is_of_script=True)
def definitions_in_file(module: cst.Module) -> Split | None:
    """Functions, classes and constants move to another file, from which they are imported."""
    parts = _parts(module)
    if parts is None or not parts[2]:
        return None
    moved, rest, names = parts
    text = f"from {NAME} import {', '.join(names)}\n"
    return _split(module, rest, text, {f"{NAME}.py": _file(moved)})


@refactoring(is_of_script=True)
def definitions_in_module(module: cst.Module) -> Split | None:
    """Functions, classes and constants move to another file, and are used as its attributes."""
    parts = _parts(module)
    if parts is None or not parts[2]:
        return None
    moved, rest, names = parts
    rename = Rename({name: f"{NAME}.{name}" for name in names})
    used = [s if is_import(s) else s.visit(rename) for s in rest]
    return _split(module, used, f"import {NAME}\n", {f"{NAME}.py": _file(moved)})  # type: ignore[arg-type]


@refactoring(is_of_script=True)
def definitions_in_package(module: cst.Module) -> Split | None:
    """Functions, classes and constants move into a package whose `__init__` imports them."""
    parts = _parts(module)
    if parts is None or not parts[2]:
        return None
    moved, rest, names = parts
    listed = ", ".join(names)
    files = {f"{NAME}/__init__.py": f"from .definitions import {listed}\n"}
    files[f"{NAME}/definitions.py"] = _file(moved)
    return _split(module, rest, f"from {NAME} import {listed}\n", files)


@refactoring(is_of_script=True)
def body_in_file(module: cst.Module) -> Split | None:
    """The whole program moves to another file; the script calls its `main`."""
    script = script_of(module)
    if script is None or "__file__" in module.code:
        return None
    moved = cst.Module(
        [*script.top, *script.with_body(script.body).body[len(script.top) : -len(script.call)]]
    )
    text = f'from {NAME} import {script.name}\n\nif __name__ == "__main__":\n    {script.name}()\n'
    return Split(cst.parse_module(text), {f"{NAME}.py": moved.code})


@refactoring(is_of_script=True)
def imports_in_file(module: cst.Module) -> Split | None:
    """The imports move to another file, from which their names are imported."""
    plain = [s for s in module.body if is_import(s) and "__future__" not in cst.Module([s]).code]
    first = next((i for i, s in enumerate(module.body) if s in plain), None)
    if first is None or any("*" in cst.Module([s]).code for s in plain):
        return None
    names = bound(plain)
    body = [s for s in module.body if s not in plain]
    text = statements(f"from {NAME} import {', '.join(names)}\n")
    changed = module.with_changes(body=[*body[:first], *text, *body[first:]])
    return Split(changed, {f"{NAME}.py": cst.Module(plain).code})


@refactoring(is_of_script=True)
def star_import(module: cst.Module) -> Split | None:
    """The imports move to another file, from which `*` is imported."""
    split = imports_in_file(module)
    if not isinstance(split, Split):
        return None
    lines = split.module.code.splitlines(keepends=True)
    start = f"from {NAME} import "
    text = "".join(f"{start}*\n" if line.startswith(start) else line for line in lines)
    return Split(cst.parse_module(text), split.files)


@refactoring(is_of_script=True)
def module_getattr(module: cst.Module) -> Split | None:
    """Definitions move to another file; a package gives them by the `__getattr__` of a module."""
    parts = _parts(module)
    if parts is None or not parts[2]:
        return None
    moved, rest, names = parts
    lazy = (
        "def __getattr__(name):\n    from . import definitions\n\n"
        "    return getattr(definitions, name)\n"
    )
    files = {f"{NAME}/__init__.py": lazy, f"{NAME}/definitions.py": _file(moved)}
    return _split(module, rest, f"from {NAME} import {', '.join(names)}\n", files)


def _file(moved: Sequence[Statement]) -> str:
    return cst.Module(list(moved)).code
