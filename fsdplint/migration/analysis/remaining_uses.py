"""Uses of FSDP1 that remain in code that no run reaches, found by syntax."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import libcst as cst

from fsdplint.diagnostics.finding import Edit
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import Sequence, Unknown
from fsdplint.migration import symbols
from fsdplint.migration.analysis.external_wrapping import constructors
from fsdplint.migration.analysis.importing_files import file_not_given, relative_path, unread_files
from fsdplint.migration.analysis.unreached_code import is_synthetic
from fsdplint.migration.analysis.variables import definitions, reads
from fsdplint.migration.blockers import Blocked, Reason
from fsdplint.migration.blockers.program import METHOD_NOT_REACHED, NAME_IN_PATCH, NAME_PASSED_ON
from fsdplint.migration.context import Migration, attributes, nodes
from fsdplint.migration.names import FSDP, WRAPPER_METHODS, fsdp1_name
from fsdplint.source.files import Unreadable, read_bytes, read_source
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import Imported, bindings_of
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.qualified_names import canonical, symbols_in

PATCHES = re.compile(rb"patch|setattr|mock")
MOCK = re.compile(r"(unittest\.)?mock\.patch(\.(object|dict|multiple))?")
FIXTURES = re.compile(r".*\b(setattr|delattr)|(\w+_)?mocker\.patch(\.(object|dict|multiple))?")
MAX_ASSIGNMENTS = 4  # to follow for one variable


def check(migration: Migration, edits: tuple[Edit, ...]) -> list[Blocked]:
    """The blockers of unchanged code that would get FSDP2's model, or use a removed name."""
    if not constructors(migration):
        return []
    dropped = dict(_dropped_imports(migration))
    return [
        *_check_methods(migration, edits),
        *_check_reexports(migration, dropped),
        *_check_patches(migration, dropped),
    ]


def _dropped_imports(
    migration: Migration,
) -> Iterator[tuple[tuple[str, str], tuple[Source, Imported]]]:
    """The imports of FSDP1 that the migration removes, by module and name."""
    for source in migration.sources:
        for item in bindings_of(source).imports():
            if fsdp1_name(canonical(item.full)) is None:
                continue
            if (source.path, item.spelling) not in migration.policies.shared_names:
                yield (_stem(Path(source.path)), item.local), (source, item)


def _stem(path: Path) -> str:
    return path.parent.name if path.name == "__init__.py" else path.stem


# Methods of the wrapper ------------------------------------------------------------------------------


def _check_methods(migration: Migration, edits: tuple[Edit, ...]) -> Iterator[Blocked]:
    for source in migration.program.sources.values():
        changed = [(edit.start, edit.end) for edit in edits if edit.path == source.path]
        imported = symbols_in(source)
        for node in attributes(source):
            call: cst.CSTNode | None = source.parent(node)
            if node.attr.value not in WRAPPER_METHODS or not isinstance(call, cst.Call):
                continue
            if call.func != node or node in imported or not _is_unknown(migration, node):
                continue
            start, end = source.span(call)
            if any(left < end and start < right for left, right in changed):
                continue
            if node.attr.value == "clip_grad_norm_" and not _clips_itself(migration, source, call):
                continue
            if migration.in_other_arm(node):
                continue
            reason = METHOD_NOT_REACHED(
                method=source.code(node), advice=symbols.advice_on(f"{FSDP}.{node.attr.value}")
            )
            yield Blocked(source, node, reason)


def _is_unknown(migration: Migration, node: cst.Attribute) -> bool:
    """Whether the object of a method call is unknown."""
    if isinstance(node.value, cst.Call):
        return False
    values = migration.values(node.value)
    return all(isinstance(value, Unknown) or is_synthetic(value, node) for value in values)


def _clips_itself(migration: Migration, source: Source, call: cst.Call) -> bool:
    """Whether `x.clip_grad_norm_(limit)` passes no parameters, unlike other libraries' methods."""
    if not 1 <= len(call.args) <= 2:
        return False
    first = call.args[0]
    pattern = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    if pattern - {"max_norm", "norm_type"} or ("max_norm" in pattern and first.keyword is None):
        return False  # FSDP1's has these two parameters, in this order
    return not _gives_parameters(migration, source, first.value)


def _gives_parameters(
    migration: Migration, source: Source, node: cst.BaseExpression, depth: int = 0
) -> bool:
    """Whether an expression gives the parameters of a module, or a list of parameters."""
    if any(isinstance(value, ParametersOf | Sequence) for value in migration.values(node)):
        return True
    if isinstance(node, cst.List | cst.Tuple | cst.ListComp | cst.GeneratorExp):
        return True
    if isinstance(node, cst.Name) and depth < MAX_ASSIGNMENTS:
        found = definitions(source, node) or []
        return any(_gives_parameters(migration, source, x.value, depth + 1) for x in found)
    if not isinstance(node, cst.Call):
        return False
    if isinstance(node.func, cst.Attribute):
        return node.func.attr.value in ("parameters", "trainable_parameters")
    return any(_gives_parameters(migration, source, arg.value, depth) for arg in node.args)


# Names that other files take from here ---------------------------------------------------------------


def _check_reexports(
    migration: Migration, dropped: dict[tuple[str, str], tuple[Source, Imported]]
) -> Iterator[Blocked]:
    """Block on uses of FSDP1's names in files that import them from a file that loses them."""
    carried = {key for key in dropped}
    for _ in range(3):  # through packages that import them in turn
        for source in migration.program.sources.values():
            for item in bindings_of(source).imports():
                if (item.module.rpartition(".")[2], item.name) in carried:
                    carried.add((_stem(Path(source.path)), item.local))
    for source in migration.program.sources.values():
        for item in bindings_of(source).imports():
            module = item.module.rpartition(".")[2]
            if (module, item.name) not in carried or fsdp1_name(canonical(item.full)) is not None:
                continue
            for use in reads(source, source.tree, item.local)[:1]:
                reason = NAME_PASSED_ON(name=item.local, module=item.module)
                yield Blocked(source, use, reason)


# Strings that name them ------------------------------------------------------------------------------


def _check_patches(
    migration: Migration, dropped: dict[tuple[str, str], tuple[Source, Imported]]
) -> Iterator[Blocked]:
    """Block on `mock.patch("module.FSDP")` and `monkeypatch.setattr(module, "FSDP", ...)`."""
    for source in migration.program.sources.values():
        for node, key in _patches(source, dropped):
            yield Blocked(source, node, _patch_reason(source, node, key))
    paths = [Path(source.path) for source in migration.sources]
    if not dropped:
        return
    pattern = _string_pattern(dropped)
    for path in unread_files(migration, paths):
        found = _first_patch(path, pattern, dropped, migration.program.max_bytes)
        if found is not None:
            other, node, key = found
            home, item = dropped[key]
            what = f"{_patch_reason(other, node, key).message} ({relative_path(path, Path(home.path))})"
            yield file_not_given(migration, home, item.statement, path, what)


def _string_pattern(dropped: Iterable[tuple[str, str]]) -> re.Pattern[bytes]:
    """The pattern of strings like `"module.FSDP"`; only files with a match are parsed."""
    names = "|".join(sorted(re.escape(name) for _, name in dropped))
    return re.compile(rf"[\"'](?:[\w.]+\.)?(?:{names})[\"']".encode())


def _first_patch(
    path: Path,
    pattern: re.Pattern[bytes],
    dropped: dict[tuple[str, str], tuple[Source, Imported]],
    max_bytes: int,
) -> tuple[Source, cst.CSTNode, tuple[str, str]] | None:
    """The first such string in a file that was not read."""
    try:
        data = read_bytes(path)
        if not PATCHES.search(data) or not pattern.search(data):
            return None
        source = read_source(path, max_bytes=max_bytes)
    except Unreadable:
        return None
    return next(((source, node, key) for node, key in _patches(source, dropped)), None)


def _patch_reason(source: Source, node: cst.CSTNode, key: tuple[str, str]) -> Reason:
    return NAME_IN_PATCH(node=source.code(node), module=key[0])


def _patches(
    source: Source, dropped: dict[tuple[str, str], tuple[Source, Imported]]
) -> Iterator[tuple[cst.CSTNode, tuple[str, str]]]:
    for call in nodes(source):
        if not isinstance(call, cst.Call) or not call.args:
            continue
        if not _replaces(source, call.func):
            continue
        first = call.args[0].value
        text = _text(first)
        if text is not None:
            module, _, name = text.rpartition(".")
            key = module.rpartition(".")[2], name
        elif len(call.args) > 1 and (name := _text(call.args[1].value) or ""):
            key = symbols_in(source).get(first, source.code(first)).rpartition(".")[2], name
        else:
            continue
        if key in dropped:
            yield first if text is not None else call.args[1].value, key


def _replaces(source: Source, func: cst.BaseExpression) -> bool:
    """Whether a function replaces the object whose name it gets as a string."""
    full = symbols_in(source).get(func, "")
    if full:
        return MOCK.fullmatch(full) is not None
    name = dotted_name(func) or source.code(func)
    if isinstance(func, cst.Name):
        return name == "setattr"
    # pytest's `monkeypatch` and pytest-mock's `mocker` are fixtures with these names
    return FIXTURES.fullmatch(name) is not None


def _text(node: cst.BaseExpression) -> str | None:
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None
