"""Which files can matter, judged on their bytes.

A file matters if it mentions FSDP, or if it imports, however indirectly, a file of the project that
does. No file is decoded or parsed for this, and libcst is not imported: on a tree without FSDP code
a run costs little more than reading it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fsdplint import configs
from fsdplint.files import NOTEBOOK, File, Problem, Unreadable, check_text, project_root, read_bytes

MENTIONS = (b"fsdp", b"FSDP", b"Fsdp", b"fully_shard", b"FullyShard", b"fullyShard")

_IMPORT = re.compile(
    rb"""
    [ \t]*
    (?: from (?:[ \t]+|(?=\.)) (?P<module>[.\w\x80-\xff]+) [ \t]+ import\b [ \t]*
        (?P<names> \( (?: [^)\#] | \#[^\n]* )* | (?: [^\#\n;\\(] | \\\r?\n )* )
      | import[ \t]+ (?P<modules> (?: [^\#\n;\\] | \\\r?\n )+ )
    )
    """,
    re.VERBOSE,
)
_COMMENT = re.compile(rb"#[^\n]*")


def mentions(data: bytes) -> bool:
    """Whether a file's content speaks of FSDP."""
    return any(word in data for word in MENTIONS)


def select(
    files: Sequence[File],
    *,
    searched: Sequence[Path] = (),
    overrides: Mapping[Path, str] | None = None,
) -> tuple[list[File], list[Problem]]:
    """Of these files, those that can matter; and what could not be read.

    A file that the user named is checked for being Python even where it does not matter: whoever
    names a file wants to hear that it cannot be read.

    Args:
        files: the files to choose from.
        searched: the folders that they were found in.
        overrides: texts to take instead of what is on disk.
    """
    scan = Scan(overrides or {})
    problems: list[Problem] = []
    readable: list[File] = []
    settings: list[File] = []
    direct: set[str] = set()
    for file in files:
        try:
            data = scan.read(file.path)
        except Unreadable as error:
            problems.append(error.problem)
            continue
        if configs.is_config(file.path):
            if configs.matters(data):
                settings.append(file)
            continue
        readable.append(file)
        if mentions(data):
            direct.add(scan.key(file.path))
    outside = any(file.named for file in readable) or not all(map(_is_whole_project, searched))
    undecided = len(direct) < len(readable)
    matters = scan.importers(readable, direct) if undecided and (direct or outside) else direct
    result = []
    for file in readable:
        if scan.key(file.path) in matters:
            result.append(file)
        elif file.named:
            problem = check_text(file.path, scan.read(file.path))
            if problem is not None:
                problems.append(problem)
    return result + settings, problems


def _is_whole_project(folder: Path) -> bool:
    """Whether files in the folder import no file of their project from outside of it."""
    return project_root(folder) == folder.absolute() and not (folder / "__init__.py").exists()


def relevant(files: Iterable[Path]) -> list[Path]:
    """Of these files, those that can matter, in order. Unreadable ones are left out."""
    selected, _ = select([File(path, named=True) for path in files])
    return [file.path for file in selected]


def imports(data: bytes) -> Iterator[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """The imports of a file: dots before the module's name, its parts, and the imported names."""
    at = data.find(b"import")
    while at >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        start = max(start, data.rfind(b";", start, at) + 1, data.rfind(b":", start, at) + 1)
        match = _IMPORT.match(data, start)
        if match is None or match.end() <= at:  # no statement, or one that was seen before
            at = data.find(b"import", at + 6)
            continue
        module = match.group("module")
        if module is not None:
            name = module.lstrip(b".")
            yield len(module) - len(name), _parts(name), tuple(_names(match.group("names")))
        else:
            for one in _names(match.group("modules")):
                yield 0, tuple(one.split(".")), ()
        at = data.find(b"import", match.end())


def _parts(name: bytes) -> tuple[str, ...]:
    return tuple(name.decode("utf-8", "replace").split(".")) if name else ()


def _names(text: bytes) -> Iterator[str]:
    """The names in `a as b, c`, brackets, comments and line breaks aside."""
    text = _COMMENT.sub(b"", text).replace(b"\\", b" ").replace(b"(", b" ")
    for item in text.split(b","):
        words = item.split()
        if words:
            yield words[0].decode("utf-8", "replace")


class Scan:
    """The project's files as far as they were looked at."""

    def __init__(self, overrides: Mapping[Path, str]) -> None:
        self._overrides = {self.key(path): text for path, text in overrides.items()}
        self._module_files: dict[str, str | None] = {}
        self._resolved: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._known: dict[tuple[str, str], bool] = {}
        self._roots: dict[str, tuple[str, ...]] = {}

    @staticmethod
    def key(path: Path | str) -> str:
        return os.path.realpath(path)

    def read(self, path: Path) -> bytes:
        """The file's content. Raises Unreadable."""
        text = self._overrides.get(self.key(path)) if self._overrides else None
        return read_bytes(path) if text is None else text.encode("utf-8", "surrogatepass")

    def importers(self, files: list[File], direct: set[str]) -> set[str]:
        """The files that mention FSDP (`direct` of those given) or import one that does."""
        queue = list(dict.fromkeys(self.key(file.path) for file in files))
        given = set(queue)
        seen = set(queue)
        matters = set(direct)
        importing: dict[str, list[str]] = {}
        for key in queue:  # grows while it is walked
            try:
                data = self.read(Path(key))
            except Unreadable:
                continue
            if key not in given and mentions(data):
                matters.add(key)
            for target in self.targets(key, data):
                importing.setdefault(target, []).append(key)
                if target not in seen:
                    seen.add(target)
                    queue.append(target)
        stack = list(matters)
        while stack:
            for importer in importing.get(stack.pop(), ()):
                if importer not in matters:
                    matters.add(importer)
                    stack.append(importer)
        return matters

    def targets(self, path: str, data: bytes) -> Iterator[str]:
        """The project's files that a file imports."""
        if path.endswith(NOTEBOOK):
            from fsdplint.notebooks import python_of

            data = python_of(data)
        folder = os.path.dirname(path)
        for one in imports(data):
            if (folder, one) not in self._resolved:
                self._resolved[folder, one] = self._resolve(folder, *one)
            yield from self._resolved[folder, one]

    def _resolve(
        self, folder: str, level: int, parts: tuple[str, ...], names: tuple[str, ...]
    ) -> tuple[str, ...]:
        """The files that `from parts import names` (or `import parts`, without names) means."""
        bases = self._search_path(folder)
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            bases = (folder,)
        for base in bases:
            if parts and not self._has_module(base, parts[0]):
                continue
            if not names:  # `import a.b.c` binds a, through which all of them are reached
                stems = [os.path.join(base, *parts[:end]) for end in range(1, len(parts) + 1)]
            else:
                package = os.path.join(base, *parts)
                stems = [os.path.join(package, name) for name in names]
                if any(self._module_file(stem) is None for stem in stems):
                    stems.append(package)
            files = tuple(file for stem in stems if (file := self._module_file(stem)) is not None)
            if files:
                return files
        return ()

    def _has_module(self, base: str, name: str) -> bool:
        known = self._known.get((base, name))
        if known is None:
            stem = os.path.join(base, name)
            known = os.path.isfile(stem + ".py") or os.path.isdir(stem)
            self._known[base, name] = known
        return known

    def _module_file(self, stem: str) -> str | None:
        if stem not in self._module_files:
            candidates = (os.path.join(stem, "__init__.py"), stem + ".py")
            file = next((path for path in candidates if os.path.isfile(path)), None)
            self._module_files[stem] = None if file is None else os.path.realpath(file)
        return self._module_files[stem]

    def _search_path(self, folder: str) -> tuple[str, ...]:
        """Where the absolute imports of a file in this folder are looked for, in order."""
        if folder not in self._roots:
            root = str(project_root(Path(folder)))
            # The folder itself (a script's), then the parents of the package it is a part of.
            found = dict.fromkeys([folder])
            parent = folder
            while os.path.isfile(os.path.join(parent, "__init__.py")):
                parent = os.path.dirname(parent)
                found.setdefault(parent)
            found.update(dict.fromkeys([root, os.path.join(root, "src")]))
            self._roots[folder] = tuple(found)
        return self._roots[folder]


def importing(
    files: Iterable[Path], targets: Iterable[Path]
) -> Iterator[tuple[Path, Path, tuple[str, ...], bytes]]:
    """Which of these files import one of the targets, and which of its names.

    Yields the importing file, the target, the names imported from it (none where the module itself
    is imported, or all of it) and the importing file's content. Unreadable files are left out.
    """
    scan = Scan({})
    yield from _importing(scan, _contents(scan, files), targets)


def callers(
    targets: Iterable[Path],
    files: Iterable[Path],
    limit: int,
    overrides: Mapping[Path, str] | None = None,
) -> list[Path]:
    """Those of these files that import one of the targets, however indirectly, the nearest first.

    limit: how many there may be; the farthest are left out.
    overrides: texts to take instead of what is on disk.
    """
    scan = Scan(overrides or {})
    contents = list(_contents(scan, files))
    nearest = {scan.key(target): target for target in targets}
    seen = set(nearest)
    found: list[Path] = []
    while nearest and len(found) < limit:
        importers = {
            scan.key(importer): importer
            for importer, *_ in _importing(scan, contents, nearest.values())
        }
        nearest = {key: path for key, path in importers.items() if key not in seen}
        seen.update(nearest)
        found += nearest.values()
    return found[:limit]


def _contents(scan: Scan, files: Iterable[Path]) -> Iterator[tuple[Path, bytes]]:
    for path in files:
        with contextlib.suppress(Unreadable):
            yield path, scan.read(path)


def _importing(
    scan: Scan, contents: Iterable[tuple[Path, bytes]], targets: Iterable[Path]
) -> Iterator[tuple[Path, Path, tuple[str, ...], bytes]]:
    wanted = {scan.key(target): target for target in targets}
    stems = {os.path.basename(key).removesuffix(".py") for key in wanted}
    stems |= {os.path.basename(os.path.dirname(key)) for key in wanted if "__init__" in key}
    for path, data in contents:
        if not any(stem.encode() in data for stem in stems):
            continue
        folder = os.path.dirname(scan.key(path))
        for level, parts, names in imports(data):
            for file in scan._resolve(folder, level, parts, names):
                if file not in wanted:
                    continue
                stem = Path(file).stem
                if stem == "__init__":
                    stem = Path(file).parent.name
                whole = stem in names or "*" in names
                yield path, wanted[file], () if whole else names, data
