"""Imports that a fix leaves without a use."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import PurePath

from fsdplint.edits.imports.stand_ins import stand_ins
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import Bindings, Imported, bindings_of
from fsdplint.syntax.qualified_names import canonical


def unused_imports(
    original: Source, changed: Source, names: Collection[str], project: Mapping[str, Source]
) -> list[Imported]:
    """The imports of the changed file that bind one of the names and have lost their last use.

    An import is kept if another file of the program takes its name from this file, or if it only
    re-exports: `__init__.py`, `__all__`, `X as X`.

    names: local names; "a.b" for `import a.b`. A name followed by "!" is removed even if it had no
    use before. For "name=module.name", only the import of this object is removed, although the name
    has other uses, which belong to another library.
    project: all files of the program with their new texts.
    """
    exact = {name for name in names if "=" in name}
    wanted = {name.removesuffix("!") for name in names if name not in exact}
    anyway = {name.removesuffix("!") for name in names if name.endswith("!")}
    if not names or PurePath(changed.path).name == "__init__.py":
        return []
    before, after = bindings_of(original), bindings_of(changed)
    had, has = before.uses(), after.uses()
    result = []
    for item in after.imports():
        key = (item.scope.key, item.local)
        if f"{item.spelling}={canonical(item.full)}" in exact:
            result.append(item)
            continue
        if item.spelling not in wanted or item.local in after.exported or _re_export(item):
            continue
        if stand_ins(changed, item) is None:
            continue
        if item.name is None and not item.renamed and "." in item.module:
            removed = _dotted_gone(item, after, had.get(key, []), has.get(key, []))
        else:
            removed = (key in had or item.spelling in anyway) and key not in has
        stars = item.spelling not in anyway
        taken = item.scope is after.module and taken_by_others(changed, item, project, stars)
        if removed and not taken:
            result.append(item)
    return result


def _re_export(item: Imported) -> bool:
    plain = item.name or item.module.rpartition(".")[2]
    return item.renamed and item.local == plain


def _dotted_gone(item: Imported, after: Bindings, had: list[str], has: list[str]) -> bool:
    """Whether `import a.b.c` has no use: neither for `a.b.c` nor for `a.b` nor to bind `a`."""
    prefixes = {item.module}
    while "." in (shorter := min(prefixes, key=len).rpartition(".")[0]):
        prefixes.add(shorter)
    others = [
        other
        for other in item.scope.imports
        if other is not item and other.local == item.local and other.name is None
    ]
    if not others and has:
        return False

    def is_needed(texts: list[str]) -> bool:
        return any(f"{text}.".startswith(f"{prefix}.") for text in texts for prefix in prefixes)

    return is_needed(had) and not is_needed(has)


def taken_by_others(
    changed: Source, item: Imported, project: Mapping[str, Source], stars: bool
) -> bool:
    """Whether another file of the program imports the name from this file.

    stars: whether `import *` of this file counts in a file that mentions the name. Pass False if
    all uses of the name in the program are known.
    """
    stem = PurePath(changed.path).stem
    word = re.compile(rf"\b{re.escape(item.local)}\b")
    module = re.compile(rf"\b{re.escape(stem)}\b")
    for path, other in project.items():
        if path == changed.path or not word.search(other.text) or not module.search(other.text):
            continue
        bindings = bindings_of(other)
        for imported in bindings.imports():
            if imported.name == item.local and may_be_module(imported.module, changed.path):
                return True
        for scope in bindings.scopes.values():
            if stars and any(may_be_module(star, changed.path) for star in scope.star):
                return True
            if any(f".{stem}.{item.local}." in f".{text}." for text in scope.references):
                return True
    return False


def may_be_module(module: str, path: str) -> bool:
    """Whether a (dotted, perhaps relative) module name may refer to the file at a path.

    Either may be shorter than the other: the path may be relative to a folder in the package. A
    module of torch is never a file: `torch.distributed.fsdp` is not the project's `fsdp.py`.
    """
    parts = module.lstrip(".").split(".")
    if parts[0] == "torch" and not module.startswith("."):
        return False
    known = PurePath(path).with_suffix("").parts
    return all(one == other for one, other in zip(reversed(parts), reversed(known), strict=False))
