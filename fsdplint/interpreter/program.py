"""The result of the interpreter: sources, traces, and the values of each node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libcst as cst

from fsdplint.config.options import DEFAULT, Options
from fsdplint.discovery.importers import ProjectIndex
from fsdplint.interpreter.coverage import Coverage
from fsdplint.interpreter.cuts import Cut
from fsdplint.interpreter.exploration_results import Evaluations, Explored
from fsdplint.interpreter.numbering import Numbering
from fsdplint.source.files import MAX_BYTES
from fsdplint.source.source import Source
from fsdplint.trace import Sharded, Trace, Wrapped

if TYPE_CHECKING:
    from fsdplint.interpreter.gaps import SiteCoverage
    from fsdplint.interpreter.values import Value
    from fsdplint.source.config_source import ConfigSource
    from fsdplint.source.files import Problem
    from fsdplint.source.requirements_source import RequirementsSource


@dataclass(eq=False)
class Program:
    """The result of interpreting some files.

    Attributes:
        sources: every file that was read, by the path that is shown to the user.
        traces: one per configuration of each entry point.
        evaluations: the values in all traces of each expression that was reached, except constants
            and unknown values. If a program does not wrap its model on a single rank, the values of
            such a run are included.
        explored: what the runs of each entry have shown, by the node where it begins.
        executed: what the runs executed.
        relevant: the paths of the sources that are relevant for FSDP.
        problems: files that could not be read or parsed.
        files_to_fix: further files of the project that a fix has to change.
        options: how its findings are fixed.
        projects: the files of its project, unread ones included.
        settings_files: the paths of the settings files among which a run chose.
        file_queries: for each path that decides how an import resolves, whether the file exists.
        configs: the settings files that the user named or a program reads, by path.
        requirements: the files of the project's requirements that fixes change, by path.
        cuts: the bounds that were reached, by the file of the program.
        cut_short: whether any bound was reached.
        has_arguments: whether the traces keep the arguments of the calls that make events.
        numbering: the numbers of what statements make, in all traces.
        cache: results computed from this program, by the name of what computed them.
        max_bytes: the largest size of code that is read.
        load_again: loads the same files as `load` did, with other texts.
    """

    sources: dict[str, Source] = field(default_factory=dict)
    traces: list[Trace] = field(default_factory=list)
    evaluations: Evaluations = field(default_factory=Evaluations)
    explored: dict[cst.CSTNode, Explored] = field(default_factory=dict)
    executed: Coverage = field(default_factory=Coverage)
    problems: list[Problem] = field(default_factory=list)
    files_to_fix: set[Path] = field(default_factory=set)
    options: Options = DEFAULT
    projects: ProjectIndex = field(default_factory=ProjectIndex)
    file_queries: dict[str, bool] = field(default_factory=dict)
    settings_files: tuple[str, ...] = ()
    configs: dict[str, ConfigSource] = field(default_factory=dict)
    requirements: dict[str, RequirementsSource] = field(default_factory=dict)
    cuts: dict[str, Cut] = field(default_factory=dict)
    relevant: Set[str] = frozenset()
    has_arguments: bool = False
    numbering: Numbering = field(default_factory=Numbering)
    cache: dict[str, Any] = field(default_factory=dict)
    max_bytes: int = MAX_BYTES
    load_again: Callable[[Program, Mapping[Path, str]], Program] | None = None

    def with_texts(self, texts: Mapping[Path, str]) -> Program | None:
        """The program with other texts in some of its files; None if no files made it."""
        return None if self.load_again is None else self.load_again(self, texts)

    @property
    def cut_short(self) -> bool:
        return bool(self.cuts)

    @property
    def files(self) -> dict[str, Source]:
        """Every file that was read, settings and requirements included."""
        return {**self.sources, **self.configs, **self.requirements}

    def values(self, node: cst.CSTNode) -> list[Value]:
        """The distinct values of a node over all traces; empty if no run reached it."""
        return self.evaluations.of(node)

    @cached_property
    def coverage(self) -> tuple[SiteCoverage, ...]:
        """The sites of the contract's API in the relevant files, and in those that take part in a
        run which shards a model."""
        taking_part = {
            source.path
            for explored in self.explored.values()
            if any(True for trace in explored.traces for _ in trace.of(Sharded, Wrapped))
            for source in explored.sources
        }
        counted = self.relevant | taking_part
        sources = [source for path, source in self.sources.items() if path in counted]
        return tuple(self.executed.of(sources, self.cuts, self.sources.values()))

    def references(self, prefix: str) -> Iterator[tuple[Source, cst.CSTNode, str]]:
        """The Name and Attribute nodes whose canonical name starts with `prefix`, with that name.

        Includes code that no run reached. Excludes the names in import statements.
        """
        from fsdplint.syntax.qualified_names import references

        for source in self.sources.values():
            yield from references(source, prefix)
