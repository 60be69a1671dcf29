"""The files of a project, each of which is read once, and what all runs keep of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from fsdplint.interpreter.module_files import FileAnswer, FileQuestion, ModuleFiles
from fsdplint.interpreter.numbering import Numbering
from fsdplint.interpreter.values import Const
from fsdplint.source.console_scripts import console_scripts
from fsdplint.source.files import MAX_BYTES, Problem, Unreadable, read_source
from fsdplint.source.folders import Folder, project_root
from fsdplint.source.fsdp_words import (
    CONTRACT_WORDS,
    FSDP_WORDS,
    MIGRATION_WORDS,
    MODEL_WORDS,
    REDUCING_WORDS,
    STRUCTURE_WORDS,
    mentions,
)
from fsdplint.source.launch_commands import Launch, find_launches
from fsdplint.source.reading import read
from fsdplint.source.source import Source
from fsdplint.syntax.keywords import Words

if TYPE_CHECKING:
    from fsdplint.interpreter.frames import Call
    from fsdplint.source.config_source import ConfigSource
    from fsdplint.trace.arguments import Arguments

MAX_FILES = 400  # files that imports may pull in
# Statements at the top level that may put something into a registry: a call or assignment to an
# element, and a decorator. Decorators of libraries, which keep nothing, are left out.
_REGISTERS = re.compile(
    r"^[\w.]*(?i:regist)\w*\b|^\w+\[.+\] *=|^[\w.]+\.(?:append|add|insert|update|setdefault)\("
    r"|^@(?!(?:dataclass|dataclasses|functools|torch|contextlib|contextmanager|typing|pytest)\b)\w",
    re.MULTILINE,
)
_BASES = re.compile(r"^class\s+\w+\s*\(([^)]*)\)", re.MULTILINE)
_NAME = re.compile(r"\w+")

Located = tuple[str, str]  # a file, and its shown path


class Signature(NamedTuple):
    """The parameters of a function.

    Attributes:
        positional: the names of those that a positional argument can be for.
        params: all but the starred ones, by name, in order.
        star: the name of `*args`; None if there is none.
        star_kwarg: the name of `**kwargs`; None if there is none.
    """

    positional: list[str]
    params: dict[str, cst.Param]
    star: str | None
    star_kwarg: str | None


class Project(ModuleFiles):
    """Reads files once; see `ModuleFiles` for the modules.

    Attributes:
        sources: every file read so far, by the path that is shown to the user.
        problems: the files that could not be read.
        configs: settings files that a program reads, by the path that is shown to the user.
        relevant: the real paths of the files that are relevant for FSDP, as far as it is known.
        numbering: the numbers of what statements make, in all runs.
        words: finds branches and functions that the FSDP contract may depend on.
        fsdp_words: finds branches and functions that name FSDP itself.
        model_words: finds functions and classes that make or get a model.
        structure_words: finds code of models on which a migration may depend.
        migration_words: finds such code of anything else.
        reducing_words: finds code that may give all ranks the same value.
        matters_to_migration: whether a migration depends on the code behind a class or function.
        describe: describes the calls that make events, for the traces to keep; None for none.
    """

    def __init__(
        self,
        overrides: Mapping[Path, str],
        root: Path | None = None,
        known: Mapping[str, Source] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        super().__init__(overrides, root)
        self._known = dict(known or {})
        self._max_bytes = max_bytes
        self.stop: Callable[[], bool] | None = None  # whether the caller cancelled the work
        self.describe: Callable[[Call], Arguments] | None = None
        self.sources: dict[str, Source] = {}
        self.problems: list[Problem] = []
        self.configs: dict[str, ConfigSource] = {}
        self._settings_files: dict[str, tuple[tuple[str, str], ...]] = {}  # by root
        self._launches: dict[str, tuple[Launch, ...]] = {}  # by root
        self._console_scripts: dict[str, tuple[tuple[str, str], ...]] = {}  # by root
        self.relevant: Set[str] = frozenset()
        self.numbering = Numbering()
        self.texts: dict[cst.CSTNode, str] = {}  # caches for all runs, by node
        self.bound: dict[cst.CSTNode, frozenset[str]] = {}  # the names that code assigns
        self.literals: dict[cst.CSTNode, Const] = {}
        self.joined_texts: dict[cst.CSTNode, str | bytes | None] = {}  # None: not all is constant
        self.generators: dict[cst.CSTNode, bool] = {}
        self.signatures: dict[cst.CSTNode, Signature] = {}
        self.shapes: dict[cst.CSTNode, Hashable] = {}  # see `similar_choices`
        self.fields: dict[cst.ClassDef, list[str]] = {}  # the annotated names in class bodies
        # Of classes: whether their statements may be executed later, and what that depends on.
        self.deferrals: dict[cst.ClassDef, tuple[bool, Mapping[FileQuestion, FileAnswer]]] = {}
        self.names_in: dict[cst.CSTNode, frozenset[str]] = {}
        self.matters_to_migration: dict[cst.CSTNode, bool] = {}
        self.expressions_below: dict[cst.CSTNode, list[cst.CSTNode]] = {}
        self.loops_in: dict[cst.CSTNode, tuple[cst.CSTNode, ...]] = {}  # of generator functions
        # Of methods: the attributes of their object that they read, in order, and that they set.
        self.own_attributes: dict[cst.FunctionDef, tuple[tuple[str, ...], frozenset[str]]] = {}
        self.words = Words(CONTRACT_WORDS)
        self.fsdp_words = Words(FSDP_WORDS)
        self.model_words = Words(MODEL_WORDS)
        self.structure_words = Words(STRUCTURE_WORDS)
        self.migration_words = Words(MIGRATION_WORDS)
        self.reducing_words = Words(REDUCING_WORDS)
        # By the paths of a program and a file, the files of the names that its `from` imports name.
        self.located: dict[tuple[str, str, str, str], tuple[Located | None, Located | None]] = {}
        self._uses_fsdp: dict[str, bool] = {}
        self._registers: dict[tuple[str, ...], bool] = {}
        self._no_python: dict[str, Problem] = {}  # imported files with a syntax error

    def source(self, path: Path, *, imported: bool = False) -> Source | None:
        """The source of a file; None if it cannot be read.

        imported: the user did not name the file, so it is not reported if it cannot be read.
        """
        source = self._source(path, imported=imported)
        if source is None:
            self.consulted["source", str(path)] = None
        return source

    def _source(self, path: Path, *, imported: bool) -> Source | None:
        key = self._realpath(str(path))
        if key in self._by_file:
            return self._by_file[key]
        if imported and len(self._by_file) >= MAX_FILES:
            return None
        try:
            source = read_source(
                path, self.overrides.get(key), self._known.get(str(path)), self._max_bytes
            )
        except Unreadable as error:
            if not imported:
                self.problems.append(error.problem)
            elif error.problem.is_syntax_error:
                self._no_python[key] = error.problem
            self._by_file[key] = None
            return None
        self._by_file[key] = source
        self.sources[source.path] = source
        return source

    def report_import(self, path: Path, importer: str) -> None:
        """A file that the program imports could not be read: report it, once, if it is not Python.

        What the program does with it is not checked, and the import fails.
        """
        problem = self._no_python.pop(self._realpath(str(path)), None)
        if problem is not None:
            self.problems.append(replace(problem, hint=f"{importer} imports this file"))

    def config(self, name: str, file: str) -> ConfigSource | None:
        """The settings file that a program names; None if there is none that can be read.

        It is searched from the folder of the program, the root of the project and the current
        folder.
        """
        source = self._config(name, file)
        answer = None if source is None else (source.path, source.text)
        self.consulted["config", name, file] = answer
        return source

    def _config(self, name: str, file: str) -> ConfigSource | None:
        from fsdplint.source.config_files import is_config
        from fsdplint.source.files import read_config

        if not is_config(Path(name)):
            return None
        root = self.root or project_root(Path(file))
        for folder in (Path(file).parent, root, Path()):
            path = folder / name
            key = self._realpath(str(path))
            known = [one for one in self.configs if self._realpath(one) == key]
            if known:
                return self.configs[known[0]]
            if key in self.overrides or self._is_file(key):
                try:
                    source = read_config(path, self.overrides.get(key))
                except Unreadable:
                    return None
                self.configs[source.path] = source
                return source
        return None

    def registers(self, path: str, *collectors: str) -> bool:
        """Whether the statements of a file, or the files that it imports, may fill a registry.

        collectors: the names of classes that collect their subclasses.
        """
        if os.path.basename(path) == "__init__.py":
            return True
        question = path, *collectors
        if question not in self._registers:
            text = self.override(Path(path))
            try:
                text = read(path).decode("utf-8", "replace") if text is None else text
            except OSError:
                text = ""
            bases = {name for one in _BASES.findall(text) for name in _NAME.findall(one)}
            found = _REGISTERS.search(text) is not None or not bases.isdisjoint(collectors)
            self._registers[question] = found
        answer = self._registers[question]
        consulted: FileQuestion = ("registers", *question)
        self.consulted[consulted] = answer
        return answer

    def may_use_fsdp(self, path: str) -> bool:
        """Whether a file is relevant for FSDP, or mentions it."""
        if path not in self._uses_fsdp:
            relevant = self._realpath(path) in self.relevant
            self._uses_fsdp[path] = relevant or mentions(self._content(Path(path)))
        self.consulted["may_use_fsdp", path] = self._uses_fsdp[path]
        return self._uses_fsdp[path]

    def gives_same_answers(self, consulted: Mapping[FileQuestion, FileAnswer]) -> bool:
        """Whether the files of an earlier project, which were not executed, are still the same."""
        return all(self._answer(*question) == answer for question, answer in consulted.items())

    def _answer(self, what: str, *arguments: str) -> FileAnswer:
        if what == "registers":
            return self.registers(*arguments)
        if what == "may_use_fsdp":
            return self.may_use_fsdp(*arguments)
        if what == "modules_like":
            return tuple(
                self.modules_like(
                    arguments[0], arguments[1], arguments[2] or None, arguments[3]
                ).items()
            )
        if what == "modules_with":
            return tuple(self.modules_with(*arguments).items())
        if what == "settings_files":
            return self.settings_files(*arguments)
        if what == "launches":
            return self.launches(*arguments)
        if what == "config_names":
            return self.config_names(*arguments)
        if what == "config":
            config = self.config(*arguments)
            return None if config is None else (config.path, config.text)
        source = self.source(Path(*arguments), imported=True)
        return None if source is None else (source.path, source.text)

    def config_names(self, name: str, file: str) -> tuple[str, ...]:
        """The names of the settings files in a folder that a program names, searched as a file."""
        from fsdplint.source.config_files import is_config

        root = self.root or project_root(Path(file))
        names: tuple[str, ...] = ()
        for folder in (Path(file).parent, root, Path()):
            found = Folder(str(folder / name)).names
            names = tuple(sorted(one for one in found if is_config(Path(one))))
            if names:
                break
        self.consulted["config_names", name, file] = names
        return names

    def settings_files(self, file: str) -> tuple[tuple[str, str], ...]:
        """The settings files of the project of a file, by path from the root, with their texts."""
        from fsdplint.source.config_files.search import find_settings

        root = str(self.root or project_root(Path(file)))
        if root not in self._settings_files:
            self._settings_files[root] = tuple(find_settings(root))
        self.consulted["settings_files", file] = self._settings_files[root]
        return self._settings_files[root]

    def launches(self, file: str) -> tuple[Launch, ...]:
        """The commands of `accelerate launch` in the scripts of its project that start a file."""
        root = str(self.root or project_root(Path(file)))
        if root not in self._launches:
            self._launches[root] = find_launches(root)
        found = tuple(one for one in self._launches[root] if one.starts(file, root))
        self.consulted["launches", file] = found
        return found

    def settings_paths(self) -> tuple[str, ...]:
        """The paths of the settings files and scripts that runs asked for."""
        settings = [(root, one) for root, files in self._settings_files.items() for one, _ in files]
        scripts = [(root, one.file) for root, found in self._launches.items() for one in found]
        return tuple(dict.fromkeys(os.path.join(*one) for one in (*settings, *scripts)))

    def console_scripts(self, file: str) -> frozenset[str]:
        """The functions of a file that console scripts of its project call."""
        root = str(self.root or project_root(Path(file)))
        if root not in self._console_scripts:
            self._console_scripts[root] = console_scripts(root)
        module, _ = self.module_name(file)
        return frozenset(name for home, name in self._console_scripts[root] if home == module)

    def is_read(self, path: str) -> bool:
        """Whether the project tried to read a file."""
        return self._realpath(path) in self._by_file
