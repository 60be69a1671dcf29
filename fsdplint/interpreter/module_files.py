"""The files that the modules of a project are in: what an import resolves to."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fsdplint.discovery.module_index import LIBRARY, ModuleIndex
from fsdplint.discovery.module_resolver import absolute, search_path
from fsdplint.source.files import read_bytes
from fsdplint.source.folders import Folder
from fsdplint.source.fsdp_words import mentions
from fsdplint.source.source import Source

FileQuestion = tuple[str, ...]  # the name of a method of `Project`, and its arguments
FileAnswer = tuple[object, ...] | bool | None
HOLE = "_unknown_part_"  # stands for the unknown part of a module's name


class NamedModule(NamedTuple):
    """A module of the project that a name with an unknown part may mean.

    Attributes:
        name: its full name.
        mentions_fsdp: whether its file mentions FSDP.
    """

    name: str
    mentions_fsdp: bool


class ModuleFiles:
    """Finds the files of modules, and keeps what it has asked of the file system.

    Attributes:
        namespaces: dotted names of folders of the project that are packages without a file.
        consulted: what an entry asked about files that it does not execute, with the answers.
        file_queries: for each path that decides how an import resolves, whether the file exists.
    """

    def __init__(self, overrides: Mapping[Path, str], root: Path | None = None) -> None:
        self.overrides = {os.path.realpath(path): text for path, text in overrides.items()}
        self.root = root
        self.namespaces: set[str] = set()
        self.consulted: dict[FileQuestion, FileAnswer] = {}
        self.file_queries: dict[str, bool] = {}
        self._found: dict[tuple[str, str], tuple[str, str] | None] = {}
        self._elsewhere: dict[tuple[str, str, str | None], str | None] = {}
        self._is_folder: dict[str, bool] = {}
        self._like: dict[FileQuestion, dict[str, NamedModule]] = {}
        self._relative: dict[tuple[int, str, str], str | None] = {}
        self._real: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._by_file: dict[str, Source | None] = {}
        self._roots: dict[str, tuple[str, ...]] = {}
        self._index = ModuleIndex(self._content)

    def override(self, path: Path) -> str | None:
        """The text that replaces the content of a file, if any."""
        return self.overrides.get(self._realpath(str(path)))

    def _realpath(self, path: str) -> str:
        if path not in self._real:
            self._real[path] = os.path.realpath(path)
        return self._real[path]

    def search_path(self, file: str) -> tuple[str, ...]:
        """The folders in which absolute imports of a file are looked up."""
        folder = os.path.dirname(os.path.abspath(file))
        if folder not in self._roots:
            root = str(self.root.absolute()) if self.root else None
            self._roots[folder] = search_path(folder, root)
        return self._roots[folder]

    def module_name(self, file: str) -> tuple[str, str]:
        """The dotted name of a file, counted from the outermost package around it, and that of its
        package."""
        path = Path(os.path.abspath(file))
        packages: list[str] = []
        folder = path.parent
        while self._is_file(str(folder / "__init__.py")) and folder.name:
            packages.insert(0, folder.name)
            folder = folder.parent
        package = ".".join(packages)
        name = package if path.name == "__init__.py" else ".".join([*packages, path.stem])
        return name, package

    def module_file(self, base: str, parts: list[str]) -> str | None:
        """The file of a dotted module under a folder."""
        stem = os.path.join(base, *parts)
        for candidate in (stem + ".py", os.path.join(stem, "__init__.py")):
            if self._is_file(candidate):
                return candidate
        return None

    def _is_file(self, path: str) -> bool:
        known = self.file_queries.get(path)
        if known is None:
            known = self.file_queries[path] = os.path.isfile(path)
        return known

    def _is_dir(self, path: str) -> bool:
        known = self._is_folder.get(path)
        if known is None:
            known = self._is_folder[path] = os.path.isdir(path)
        return known

    def find(self, name: str, importer: str) -> tuple[str, str] | None:
        """The file of an absolute module name and its shown path; None for a library module."""
        key = (name, self._folder(importer))
        if key not in self._found:
            self._found[key] = self._find(name, importer)
        return self._found[key]

    def _folder(self, file: str) -> str:
        folder = self._folders.get(file)
        if folder is None:
            folder = self._folders[file] = os.path.dirname(file)
        return folder

    def _find(self, name: str, importer: str) -> tuple[str, str] | None:
        parts = name.split(".")
        if parts[0] == LIBRARY:
            return None
        for base in self.search_path(importer):
            file = self.module_file(base, parts)
            if file is not None and self._realpath(file) != self._realpath(importer):
                return file, self.shown_path(file, importer)
            if len(parts) == 1 and self._is_dir(os.path.join(base, name)):
                self.namespaces.add(name)
        return None

    def modules_like(
        self, before: str, after: str, package: str | None, importer: str
    ) -> dict[str, NamedModule]:
        """The modules that a name with an unknown part may mean, by this part.

        Args:
            before: the text before the unknown part.
            after: the text after it.
            package: the package that a relative name starts from.
            importer: the file that imports the module.
        """
        question = ("modules_like", before, after, package or "", importer)
        if question not in self._like:
            full = absolute(f"{before}{HOLE}{after}", package)
            self._like[question] = {} if full is None else self._modules_like(full, importer)
        found = self._like[question]
        self.consulted[question] = tuple(found.items())
        return found

    def _modules_like(self, name: str, importer: str) -> dict[str, NamedModule]:
        parts = name.split(".")
        place = next(number for number, part in enumerate(parts) if HOLE in part)
        before, after = parts[place].split(HOLE)
        for base in self.search_path(importer):
            found: dict[str, NamedModule] = {}
            for entry in sorted(Folder(os.path.join(base, *parts[:place])).names):
                stem = entry.removesuffix(".py")
                text = stem[len(before) : len(stem) - len(after)]
                if stem != f"{before}{text}{after}" or not re.fullmatch(r"\w+", text):
                    continue
                whole = [*parts[:place], stem, *parts[place + 1 :]]
                file = self.module_file(base, whole)
                if file is not None and stem != "__init__":
                    found[text] = NamedModule(".".join(whole), mentions(self._content(Path(file))))
            if found:
                return found
        return {}

    def modules_with(self, member: str, importer: str) -> dict[str, NamedModule]:
        """The modules of the project that define a member at their top level, by their names."""
        question = ("modules_with", member, importer)
        if question not in self._like:
            files = self._index.defining(self._realpath(importer), member)
            named = {self._name_below(file, importer): file for file in files}
            self._like[question] = {
                name: NamedModule(name, mentions(self._content(Path(file))))
                for name, file in named.items()
                if name
            }
        found = self._like[question]
        self.consulted[question] = tuple(found.items())
        return found

    def _name_below(self, file: str, importer: str) -> str:
        """The name by which a file can import another one; "" if its search path lacks it."""
        for base in self.search_path(importer):
            parts = os.path.relpath(file, self._realpath(base)).removesuffix(".py").split(os.sep)
            if all(part.isidentifier() for part in parts):
                return ".".join(parts)
        return ""

    def find_elsewhere(
        self, module: str, importer: str, name: str | None = None
    ) -> tuple[str, str] | None:
        """The file of a module, and its shown path, that only a longer search path has.

        name: what the file has to define (see `ModuleIndex`).
        """
        key = module, importer, name
        if key not in self._elsewhere:
            found = self._index.find(self._realpath(importer), module.split("."), name)
            self._elsewhere[key] = found
        file = self._elsewhere[key]
        return None if file is None else (file, self.shown_path(file, importer))

    def _content(self, path: Path) -> bytes:
        text = self.override(path)
        return read_bytes(path) if text is None else text.encode("utf-8", "surrogatepass")

    def find_relative(self, level: int, name: str, importer: str) -> tuple[str, str] | None:
        key = (level, name, self._folder(importer))
        if key not in self._relative:
            self._relative[key] = self._find_relative(level, name, importer)
        file = self._relative[key]
        return None if file is None else (file, self.shown_path(file, importer))

    def _find_relative(self, level: int, name: str, importer: str) -> str | None:
        folder = os.path.dirname(os.path.abspath(importer))
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        parts = [part for part in name.split(".") if part]
        file = self.module_file(folder, parts) if parts else os.path.join(folder, "__init__.py")
        return file if file is not None and self._is_file(file) else None

    def shown_path(self, file: str, importer: str) -> str:
        """The path for messages: relative if the path of the importing file is relative."""
        known = self._by_file.get(self._realpath(file))
        if known is not None:
            return known.path
        if os.path.isabs(importer):
            return file
        return os.path.relpath(file)
