"""From files to traces: finds the programs and runs each in its configurations."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import libcst as cst

import fsdplint.interpreter.semantics  # noqa: F401 (registers all that a run can follow)
from fsdplint.discovery.relevance import RelevantCode
from fsdplint.interpreter import lazy
from fsdplint.interpreter.argument_descriptions import described_call
from fsdplint.interpreter.cuts import Cut
from fsdplint.interpreter.entry_points import (
    definitions,
    entry_order,
    entry_point,
    is_package,
)
from fsdplint.interpreter.entry_runs import Entry, EntryRuns
from fsdplint.interpreter.exploration_results import Explored
from fsdplint.interpreter.frames import Call, Frame
from fsdplint.interpreter.program import Program
from fsdplint.interpreter.project import Project
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.search_targets import Shown
from fsdplint.interpreter.unreached_functions import MAX_FUNCTION_STEPS, UnreachedFunctions
from fsdplint.source.config_files import is_config
from fsdplint.source.files import MAX_BYTES, Unreadable, read_config
from fsdplint.source.fsdp_words import mentions, names_fsdp1
from fsdplint.source.nesting import deep_stack
from fsdplint.source.reading import read
from fsdplint.source.source import Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.kinds_of_files import MAIN_TEST, only_defines
from fsdplint.syntax.named_sites import TOP, reachable_sites
from fsdplint.syntax.qualified_names import walk

MAX_PROGRAM_STEPS = 800_000  # nodes evaluated for one program, over all of its configurations
MAX_PROGRAMS_STEPS = 2_000_000  # for all of them; each is run once in any case
ROUNDS = 2  # in which programs get shares; the second one has what others left
MIN_SHARE = 250_000  # for one of many programs, as long as there are steps for all of them


def load(
    paths: Sequence[Path],
    overrides: Mapping[Path, str] | None = None,
    *,
    root: Path | None = None,
    known: Mapping[str, Source] | None = None,
    earlier: Program | None = None,
    elsewhere: Container[str] = (),
    stop: Callable[[], bool] | None = None,
    max_bytes: int = MAX_BYTES,
    with_arguments: bool = False,
) -> Program:
    """Read and interpret files (see the package's docstring).

    Args:
        paths: the relevant files that the user named.
        overrides: texts to use instead of what is on disk.
        root: the root of the project; by default it is searched from each file.
        known: sources of an earlier program; a file with an unchanged text is not parsed again.
        earlier: an earlier program; its files are known, too, and an entry whose files are
            unchanged is not run again.
        elsewhere: the real paths of files whose functions another load runs.
        stop: polled; `Stopped` is raised once it returns True.
        max_bytes: the largest size of code that is read.
        with_arguments: whether the traces keep the arguments of the calls that make events. Those
            of programs that name FSDP1 keep them in any case, for the validation of a migration.
    """
    loader = ProgramLoader(
        paths,
        overrides,
        root=root,
        known=known,
        earlier=earlier,
        elsewhere=elsewhere,
        max_bytes=max_bytes,
    )
    loader.project.stop = stop
    loader.describes = with_arguments
    program = deep_stack(loader.run)
    program.load_again = partial(
        _load_again,
        paths=paths,
        overrides=overrides or {},
        root=root,
        elsewhere=elsewhere,
        stop=stop,
        max_bytes=max_bytes,
    )
    return program


def _load_again(
    earlier: Program,
    texts: Mapping[Path, str],
    *,
    paths: Sequence[Path],
    overrides: Mapping[Path, str],
    **arguments: Any,
) -> Program:
    program = load(paths, {**overrides, **texts}, earlier=earlier, **arguments)
    program.projects, program.options = earlier.projects, earlier.options
    return program


class ProgramLoader:
    """Interprets files; see `load` for its arguments."""

    def __init__(
        self,
        paths: Sequence[Path],
        overrides: Mapping[Path, str] | None = None,
        *,
        root: Path | None = None,
        known: Mapping[str, Source] | None = None,
        earlier: Program | None = None,
        elsewhere: Container[str] = (),
        max_bytes: int = MAX_BYTES,
    ) -> None:
        overrides = overrides or {}
        before = {} if earlier is None else earlier.sources
        self.project = Project(overrides, root, {**before, **(known or {})}, max_bytes)
        self.earlier = earlier
        self.elsewhere = elsewhere
        self.paths = [path for path in paths if not is_config(path)]
        self.config_paths = [path for path in paths if is_config(path)]
        self.relevant = RelevantCode.among(self.paths, overrides, max_bytes)
        self.project.relevant = self.relevant.files
        self.program = Program(max_bytes=max_bytes)
        if earlier is not None:
            self.program.executed = earlier.executed.copy()
            self.project.file_queries.update(earlier.file_queries)
            self.project.numbering = earlier.numbering.of(earlier.sources.values())
        self.shown: set[Shown] = set()
        self.reached: set[cst.CSTNode] = set()
        self.instantiated: set[cst.CSTNode] = set()
        self.executed: set[str] = set()
        self.named_by_user: set[str] = set()
        self.has_runs = False
        self.steps = 0
        self.rest = UnreachedFunctions(self)
        self.describes = False

    def run(self) -> Program:
        given = [s for s in (self.project.source(path) for path in self.paths) if s is not None]
        self.named_by_user = {source.path for source in given}
        if self.describes or any(names_fsdp1(source.text) for source in given):
            self.program.has_arguments = True
            self.project.describe = described_call
        self._explore_programs(sorted(given, key=entry_order))
        for source in given:
            self.rest.explore(source)
        if any(names_fsdp1(source.text) for source in given):
            self.elsewhere = ()  # a migration changes all uses together
        self._read_unreached()
        self.rest.finish()
        self.program.sources = self.project.sources
        self.program.problems = self.project.problems
        self.program.relevant = frozenset(
            path for path, source in self.program.sources.items() if self._is_relevant(source)
        )
        self.program.configs = dict(self.project.configs)
        self.program.file_queries = self.project.file_queries
        self.program.settings_files = self.project.settings_paths()
        self.program.numbering = self.project.numbering
        known = {os.path.realpath(path) for path in self.program.configs}
        for path in self.config_paths:
            if os.path.realpath(path) in known:
                continue
            try:
                self.program.configs[str(path)] = read_config(path, self.project.override(path))
            except Unreadable as error:
                self.program.problems.append(error.problem)
        return self.program

    # Programs ----------------------------------------------------------------------------------

    def _is_relevant(self, source: Source) -> bool:
        return os.path.realpath(source.path) in self.relevant.files

    def _explore_programs(self, given: Sequence[Source]) -> None:
        """Run files as programs in every relevant configuration.

        Each program gets one run at first. The steps that are left go first to the programs with
        the most sites that no run has reached: they are shared equally, but each gets enough to
        show something. Programs that do not use up theirs leave the rest to the others.
        """
        unfinished: list[EntryRuns] = []
        for source in given:
            if not MAIN_TEST.search(source.text) and source.path in self.executed:
                continue
            runs = self.begin(_program(source, partial(self._run_entry, source=source)))
            if runs is not None:
                self.advance(runs, 0)
                (self.close if runs.finished else unfinished.append)(runs)
        for source in given:
            for script in self._scripts(source):
                runs = self.begin(script)
                if runs is not None:
                    self.advance(runs, 0)
                    (self.close if runs.finished else unfinished.append)(runs)
        for _ in range(ROUNDS):
            waiting = {runs: _sites_of(runs) for runs in unfinished}
            unfinished = []
            while waiting:
                runs = max(waiting, key=lambda one: self.program.executed.count_left(waiting[one]))
                self.advance(runs, self._share(len(waiting)))
                (self.close if runs.finished else unfinished.append)(runs)
                del waiting[runs]
        for runs in unfinished:
            self.close(runs)

    def _share(self, number: int) -> int:
        """The steps that one of several programs may take; few steps show next to nothing."""
        budget = max(0, MAX_PROGRAMS_STEPS - self.steps)
        return min(budget, max(budget // number, MIN_SHARE))

    def _run_entry(self, run: Run, source: Source) -> None:
        name = os.path.splitext(os.path.basename(source.path))[0]
        run.trace.entry = source.path
        run.module_scope(name, source, main=True)

    def _scripts(self, source: Source) -> Iterator[Entry]:
        """The functions of a file that commands of the project call, and that no run reached."""
        names = self.project.console_scripts(source.path)
        for owner, function in definitions(source.tree) if names else ():
            if owner is None and function.name.value in names and function not in self.reached:
                body = partial(_run_script, source=source, function=function)
                called = frozenset([TOP, function.name.value])
                yield Entry(function, body, source, function, complete=True, names=called)

    def begin(self, entry: Entry) -> EntryRuns | None:
        """The runs of an entry; None if it is known what they show, which is added."""
        explored = self._earlier_result(entry.key)
        if explored is not None:
            self.steps += explored.steps
            self._add(entry.key, explored)
            return None
        first = not self.program.traces and not self.has_runs
        self.has_runs = True
        return EntryRuns(self.project, entry, self.shown, self.program.executed, first=first)

    def advance(self, runs: EntryRuns, steps: int) -> None:
        """Make runs of an entry that take so many steps more."""
        before = runs.result.steps
        most = MAX_PROGRAM_STEPS if runs.entry.complete else MAX_FUNCTION_STEPS
        runs.advance(min(most, before + steps))
        self.steps += runs.result.steps - before
        self._note(runs.result)

    def close(self, runs: EntryRuns) -> None:
        before = runs.result.steps
        explored = runs.close()
        self.steps += explored.steps - before
        self._add(runs.entry.key, explored)

    def _earlier_result(self, key: cst.CSTNode) -> Explored | None:
        """What an earlier program shows of an entry; None if what it depends on changed."""
        known = None if self.earlier is None else self.earlier.explored.get(key)
        if known is None:
            return None
        now = [self.project.source(Path(one.path), imported=True) for one in known.sources]
        same = known.sources.issuperset(now) and self.project.gives_same_answers(known.consulted)
        return known if same else None

    def _add(self, key: cst.CSTNode, explored: Explored) -> None:
        """Add what the runs of an entry have shown to the program."""
        self.program.explored[key] = explored
        self.program.traces += explored.traces
        self.program.evaluations.add(explored.values)
        self._note(explored)
        for cut in explored.cuts:
            self.cut(cut)

    def _note(self, explored: Explored) -> None:
        """Note what need not be shown again."""
        self.reached |= explored.reached
        self.instantiated |= explored.instantiated
        self.executed |= {source.path for source in explored.sources}
        self.shown |= explored.shown

    def cut(self, cut: Cut) -> None:
        path = cut.site.source.path
        cut = replace(cut, named_by_user=path in self.named_by_user)
        known = self.program.cuts.setdefault(path, cut)
        if (cut.unfinished, cut.untried) > (known.unfinished, known.untried):
            self.program.cuts[path] = cut

    # What no program reaches -------------------------------------------------------------------

    def _read_unreached(self) -> None:
        """Read the imported files that no run reached and whose code may get a model."""
        todo = list(self.project.sources.values())
        while todo:
            source = todo.pop()
            if not self._leads_on(source.path):
                continue
            for file, shown in self._imported_files(source):
                if self.project.is_read(file) or not self._may_get_a_model(file):
                    continue
                found = self.project.source(Path(shown), imported=True)
                if found is not None:
                    todo.append(found)
                    if os.path.realpath(file) not in self.elsewhere:
                        self.rest.explore(found)

    def _leads_on(self, file: str) -> bool:
        """Whether a file is relevant for FSDP, or is a package."""
        return is_package(file) or os.path.realpath(file) in self.relevant.files

    def _may_get_a_model(self, file: str) -> bool:
        """Whether a file mentions FSDP anywhere, or is a package."""
        if is_package(file):
            return True
        text = self.project.override(Path(file))
        try:
            return mentions(read(file) if text is None else text.encode("utf-8", "surrogatepass"))
        except OSError:
            return False

    def _imported_files(self, source: Source) -> Iterator[tuple[str, str]]:
        """The project files that `from` imports of a file resolve to: real and shown paths."""
        for node in walk(source):
            if not isinstance(node, cst.ImportFrom):
                continue
            base = dotted_name(node.module) if node.module is not None else ""
            level = len(node.relative)
            names = [base]
            if not isinstance(node.names, cst.ImportStar):
                names += [f"{base}.{item.evaluated_name}".lstrip(".") for item in node.names]
            for name in filter(None, names):
                if level:
                    found = self.project.find_relative(level, name, source.path)
                else:
                    found = self.project.find(name, source.path)
                if found is not None:
                    yield found


def _sites_of(runs: EntryRuns) -> set[cst.CSTNode]:
    """The sites to which the names in a program and in the files that it executed lead."""
    return reachable_sites(runs.entry.source, runs.result.sources)


def _run_script(run: Run, source: Source, function: cst.FunctionDef) -> None:
    """Import a file, and call a function of it as a command of the project does."""
    run.trace.entry = source.path
    scope = run.module_scope(run.project.module_name(source.path)[0], source)
    called = scope.names.get(function.name.value)
    if called is not None:
        run.source = source
        run.frames.append(Frame(None, scope))
        try:
            lazy.consume(run, run.call(called, Call(function)))
        finally:
            run.frames.pop()


def _program(source: Source, body: Callable[[Run], None]) -> Entry:
    """A file that is run as a program; one that only defines may be a part of another."""
    complete = bool(MAIN_TEST.search(source.text)) or not only_defines(source)
    return Entry(source.tree, body, source, entry_point(source), complete, frozenset([TOP]))
