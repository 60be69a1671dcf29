"""Imports of project files, which are loaded when a name is used, and of libraries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.project import Located, Project
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Const,
    Function,
    LazyImport,
    ProjectModule,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.source.source import Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.kinds_of_files import MAIN_TEST, is_test_file, only_defines
from fsdplint.syntax.qualified_names import PUBLIC, canonical, walk
from fsdplint.syntax.version_guards import asks_for_version, is_of_fsdp
from fsdplint.trace import Imported


def can_do_without(source: Source, node: cst.CSTNode) -> bool:
    """Whether a node is in a `try` with handlers, or under a version test."""
    child, parent = node, source.parent(node)
    while parent is not None and not isinstance(parent, cst.FunctionDef | cst.ClassDef):
        if isinstance(parent, cst.Try) and parent.handlers and child is not parent.finalbody:
            return True
        if isinstance(parent, cst.If | cst.IfExp) and asks_for_version(
            source.code(parent.test), source.text
        ):
            return True
        child, parent = parent, source.parent(parent)
    return False


def stands_for_either(source: Source, name: cst.CSTNode) -> bool:
    """Whether a node is a name whose import depends on the installed versions."""
    if not isinstance(name, cst.Name):
        return False
    for node in walk(source):
        if isinstance(node, cst.Import | cst.ImportFrom) and not isinstance(
            node.names, cst.ImportStar
        ):
            aliases = [one.evaluated_alias or one.evaluated_name for one in node.names]
            if name.value in aliases and can_do_without(source, node):
                return True
    return False


def absolute_name(node: cst.ImportFrom) -> str:
    """The module of a `from` import, with the dots of a relative one."""
    name = dotted_name(node.module) if node.module is not None else ""
    return "." * len(node.relative) + name


def import_module(run: Run, name: str) -> Value:
    """The value of a module of the project or of a library."""
    found = find_module(run, name)
    if found is None:
        return Symbol(canonical(name)) if not name.startswith(".") else Unknown()
    importer = _importer(run)
    return _lazy(run, lambda run: _load(run, found, name, importer), found)


def _importer(run: Run) -> str:
    """The file that imports here; "" if it can do without what it imports."""
    return "" if can_do_without(run.source, run.executing) else run.source.path


def find_module(run: Run, name: str) -> Located | None:
    """The file of a module of the project, and its shown path, also on a longer search path."""
    return locate_module(run, name) or _beside_program(run, name) or _locate_elsewhere(run, name)


def _beside_program(run: Run, name: str) -> Located | None:
    """A module in the folder of the program, which Python searches for the imports of all files."""
    program = run.trace.entry
    return locate(run.project, name, program) if program and not name.startswith(".") else None


def locate_module(run: Run, name: str) -> tuple[str, str] | None:
    """The file of a module of the project, and its shown path."""
    return locate(run.project, name, run.source.path)


def locate(project: Project, name: str, importer: str) -> tuple[str, str] | None:
    """The file of a module that a file imports, and its shown path; a relative name has dots."""
    if not importer:
        return None
    if name.startswith("."):
        level = len(name) - len(name.lstrip("."))
        return project.find_relative(level, name.lstrip("."), importer)
    return project.find(name, importer)


def _locate_elsewhere(run: Run, module: str, name: str | None = None) -> tuple[str, str] | None:
    """The file of a module that only a longer search path has (see `ModuleIndex`)."""
    importer = run.source.path
    if not importer or module.startswith("."):
        return None
    return run.project.find_elsewhere(module, importer, name)


def _load(run: Run, found: Located, name: str, importer: str) -> Value:
    path = Path(found[1])
    source = run.project.source(path, imported=True)
    if source is None:
        if importer:
            run.project.report_import(path, importer)
        return Unknown(origin=name)
    scope = run.module_scope(source.path, source)
    return ProjectModule(name if not name.startswith(".") else source.path, scope)


def import_from(run: Run, base: str, name: str) -> Value:
    """The value of `name` in `from base import name`."""
    known = run.project.located
    key = run.trace.entry or "", run.source.path, base, name
    if key not in known:
        known[key] = _locate_name(run, base, name)
    found, submodule = known[key]
    if found is None and submodule is None:
        library = not base.startswith(".")
        return Symbol(canonical(f"{base}.{name}")) if library else Unknown(origin=name)

    importer = _importer(run)

    def load(run: Run) -> Value:
        if found is not None:
            module = _load(run, found, base, importer)
            if isinstance(module, ProjectModule):
                value = module.scope.names.get(name)
                if value is not None and value is not imported:
                    return value
                given = given_by_module(run, module, name) if submodule is None else None
                if given is not None:
                    return given
        if submodule is not None:
            return _load(run, submodule, f"{base}.{name}", importer)
        return Unknown(origin=name)

    imported = _lazy(run, load, found, submodule)
    return imported


def given_by_module(run: Run, module: ProjectModule, name: str) -> Value | None:
    """What the function `__getattr__` of a file gives for a name; None if that is not known."""
    getter = module.scope.names.get("__getattr__")
    if not isinstance(getter, Function) or name.startswith("__"):
        return None
    if any(frame.function is getter for frame in run.frames):
        return None
    found = run.settle(run.call(getter, Call(run.executing, [Const(name)])))
    return None if isinstance(found, Unknown) else found


def _locate_name(run: Run, base: str, name: str) -> tuple[Located | None, Located | None]:
    """The file that `from base import name` executes, and that of the submodule of this name."""
    found = locate_module(run, base) if base else None
    submodule = locate_module(run, f"{base}.{name}" if base.strip(".") else f"{base}{name}")
    if found is None and submodule is None and not base.startswith("."):
        found = _beside_program(run, base)
        submodule = _beside_program(run, f"{base}.{name}")
    if found is None and submodule is None and not base.startswith("."):
        found = _locate_elsewhere(run, base, name)
        submodule = None if found is not None else _locate_elsewhere(run, f"{base}.{name}")
    return found, submodule


def _lazy(run: Run, load: Callable[[Run], Value], *found: tuple[str, str] | None) -> LazyImport:
    """An import of a project file, whose statements are executed when it is used."""
    value = LazyImport(load, tuple(one[1] for one in found if one is not None))
    run.imports.append(value)
    return value


def import_any(run: Run) -> None:
    """Import the files that may fill a registry, and of which a loop imports some by their paths.

    They are those that are relevant for FSDP and are no programs and no tests.
    """
    if run.imports_any:
        return
    run.imports_any = True
    importer = run.source.path
    for file in sorted(run.project.relevant):
        name = os.path.basename(file)
        if name == "__init__.py" or is_test_file(file):
            continue
        found = file, run.project.shown_path(file, importer)
        source = run.project.source(Path(found[1]), imported=True)
        if source is None or MAIN_TEST.search(source.text) or not only_defines(source):
            continue
        _lazy(run, partial(_load, found=found, name=name.removesuffix(".py"), importer=""), found)


def load_registrations(run: Run) -> None:
    """Execute the imported files that may add something to a registry when they are loaded."""
    while run.imports_searched < len(run.imports):
        value = run.imports[run.imports_searched]
        run.imports_searched += 1
        if value.value is None and any(
            run.project.registers(file, *sorted(run.collectors)) for file in value.files
        ):
            run.settle(value)


def note_import(
    run: Run, node: cst.Import | cst.ImportFrom, package: str, names: tuple[str, ...]
) -> None:
    """Record an import from the FSDP packages of torch."""
    if is_of_fsdp(package) and locate_module(run, package) is None:
        run.emit(
            Imported,
            node,
            package=package,
            names=names,
            optional=can_do_without(run.source, node),
        )


def public_names(run: Run, module: Value) -> Iterator[tuple[str, Value]]:
    """What `from module import *` binds."""
    module = run.settle(module)
    if isinstance(module, ProjectModule):
        for name, value in list(module.scope.names.items()):
            if not name.startswith("_"):
                yield name, value
    if isinstance(module, Symbol):
        for name in PUBLIC.get(module.name, ()):
            yield name, Symbol(canonical(f"{module.name}.{name}"))
