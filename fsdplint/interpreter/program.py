"""The result of the interpreter: sources, traces, and the values of each node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libcst as cst

from fsdplint.config.options import DEFAULT, Options
from fsdplint.discovery.importers import ProjectIndex
from fsdplint.source.files import MAX_BYTES
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import Trace

if TYPE_CHECKING:
    from fsdplint.interpreter.gaps import SiteCoverage
    from fsdplint.interpreter.values import Value
    from fsdplint.source.config_source import ConfigSource
    from fsdplint.source.files import Problem


@dataclass(frozen=True)
class Cut:
    """The place where the interpretation of a program reached a bound.

    Attributes:
        site: the place in the file of the program.
        reason: the code that was not followed to its end, and the bound, as text for messages.
        inner: the last place that was reached, if it is another one.
        named_by_user: whether the user named the file.
        unfinished: whether the first run of the file, which takes every branch, ended there, or
            values that a name may choose were not tried.
    """

    site: NodeSite
    reason: str
    inner: NodeSite | None = None
    named_by_user: bool = True
    unfinished: bool = False


@dataclass(eq=False)
class Program:
    """The result of interpreting some files.

    Attributes:
        sources: every file that was read, by the path that is shown to the user.
        traces: one per configuration of each entry point.
        evaluations: the values in all traces of each expression that was reached, except constants
            and unknown values. If a program does not wrap its model on a single rank, the values of
            such a run are included.
        problems: files that could not be read or parsed.
        files_to_fix: further files of the project that a fix has to change.
        options: how its findings are fixed.
        projects: the files of its project, unread ones included.
        file_queries: for each path that decides how an import resolves, whether the file exists.
        configs: the settings files that the user named or a program reads, by path.
        cuts: the bounds that were reached, by the file of the program.
        cut_short: whether any bound was reached.
        cache: results computed from this program, by the name of what computed them.
        max_bytes: the largest size of code that is read.
    """

    sources: dict[str, Source] = field(default_factory=dict)
    traces: list[Trace] = field(default_factory=list)
    evaluations: dict[cst.CSTNode, list[Value]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    files_to_fix: set[Path] = field(default_factory=set)
    options: Options = DEFAULT
    projects: ProjectIndex = field(default_factory=ProjectIndex)
    file_queries: dict[str, bool] = field(default_factory=dict)
    configs: dict[str, ConfigSource] = field(default_factory=dict)
    cuts: dict[str, Cut] = field(default_factory=dict)
    coverage: tuple[SiteCoverage, ...] = ()
    cache: dict[str, Any] = field(default_factory=dict)
    max_bytes: int = MAX_BYTES

    @property
    def cut_short(self) -> bool:
        return bool(self.cuts)

    @property
    def files(self) -> dict[str, Source]:
        """Every file that was read, settings files included."""
        return {**self.sources, **self.configs}

    def values(self, node: cst.CSTNode) -> list[Value]:
        """The distinct values of a node over all traces; empty if no run reached it."""
        seen: dict[int, Value] = {}
        for value in self.evaluations.get(node, ()):
            seen.setdefault(id(value), value)
        return list(seen.values())

    def references(self, prefix: str) -> Iterator[tuple[Source, cst.CSTNode, str]]:
        """The Name and Attribute nodes whose canonical name starts with `prefix`, with that name.

        Includes code that no run reached. Excludes the names in import statements.
        """
        from fsdplint.syntax.qualified_names import references

        for source in self.sources.values():
            yield from references(source, prefix)
