"""The result of the static producer: sources, traces, and what was evaluated at each node."""

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
    from fsdplint.interpreter.values import Value
    from fsdplint.source.config_source import ConfigSource
    from fsdplint.source.files import Problem


@dataclass(frozen=True)
class Cut:
    """Where the work on a program met its bound.

    Attributes:
        site: the place in the program's file.
        reason: what was not followed to its end, and the bound, in words.
        inner: the last place that was come to, where that is another one.
        named_by_user: whether the user named the file.
        unfinished: whether the run of the file as a program that takes every branch ended there.
    """

    site: NodeSite
    reason: str
    inner: NodeSite | None = None
    named_by_user: bool = True
    unfinished: bool = False


@dataclass(eq=False)
class Program:
    """What the static producer found out about some files.

    Attributes:
        sources: every file that was read, by the path that is shown to the user.
        traces: one per configuration of each entry.
        evaluations: for each expression node that was reached and is more than Unknown or a
            constant, its values in the traces (and on a single rank, where a program leaves its
            model plain there). Names and attributes are there as well as calls.
        problems: files that could not be read or parsed.
        files_to_fix: files of the project that a fix would have to change as well.
        options: how its findings are to be fixed.
        projects: the files of its project, those that were not read among them.
        file_queries: whether there are the files that decide what an import means.
        configs: the files of settings among those given, and those that a program reads, by their
            paths.
        cuts: where it was too large to be followed to its end, by the file whose program it is.
        cut_short: whether it was anywhere.
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
    cache: dict[str, Any] = field(default_factory=dict)
    max_bytes: int = MAX_BYTES

    @property
    def cut_short(self) -> bool:
        return bool(self.cuts)

    @property
    def files(self) -> dict[str, Source]:
        """Every file that was read, those of settings among them."""
        return {**self.sources, **self.configs}

    def values(self, node: cst.CSTNode) -> list[Value]:
        """The distinct values that a node had, over all traces; empty where it was not reached."""
        seen: dict[int, Value] = {}
        for value in self.evaluations.get(node, ()):
            seen.setdefault(id(value), value)
        return list(seen.values())

    def references(self, prefix: str) -> Iterator[tuple[Source, cst.CSTNode, str]]:
        """Every Name or Attribute node (imports' own names not among them), reached or not, that
        names something of a library whose canonical name starts with `prefix`, with that name.
        """
        from fsdplint.syntax.qualified_names import references

        for source in self.sources.values():
            yield from references(source, prefix)
