"""One run over what the user named: files found, checked or fixed, and what came of it.

libcst, the rules and the engine are imported only when some file can matter.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fsdplint.config.options import Options
from fsdplint.config.settings import CommandLine, Settings, SettingsError, SettingsFinder
from fsdplint.diagnostics.baseline import Baseline, BaselineError
from fsdplint.diagnostics.baseline import read as read_baseline
from fsdplint.discovery import prefilter
from fsdplint.discovery.importers import Notes, Projects
from fsdplint.discovery.walk import File, beyond, discover
from fsdplint.edits.recovery import Recovered, recover
from fsdplint.engine.filter import Counting
from fsdplint.engine.scope import Scope
from fsdplint.report.result import Result
from fsdplint.source.decoding import decode
from fsdplint.source.files import NOTEBOOK, Limits, Problem, Unreadable, decode_or_refuse, missing
from fsdplint.source.folders import project_root
from fsdplint.source.nesting import deep_stack
from fsdplint.source.reading import read
from fsdplint.trace import FixedSite, Site

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Finding
    from fsdplint.engine.cache import Cache
    from fsdplint.engine.fixpoint import Effort, FixResult
    from fsdplint.engine.outcome import Outcome
    from fsdplint.interpreter import Program
    from fsdplint.registry.rule import Rule
    from fsdplint.source.source import Source
    from fsdplint.trace import Trace

DEBUG = "FSDPLINT_DEBUG"  # set in the environment: a defect shows its traceback and ends the run
STDIN = Path("<stdin>")
CALLERS = 100  # files that a migration is judged with because they import those that it changes

T = TypeVar("T")


@dataclass
class Changes:
    """What fixing came to.

    Attributes:
        texts: the old and new text of every file that changes, in the order of the names.
        contents: the old content of those files, as bytes, and the new one.
        result: what remains, and how much was fixed.
        applied: the findings whose fixes were applied.
    """

    texts: dict[Path, tuple[str, str]] = field(default_factory=dict)
    contents: dict[Path, tuple[bytes, bytes]] = field(default_factory=dict)
    result: Result = field(default_factory=Result)
    applied: list[Finding] = field(default_factory=list)


class Run:
    """The files and settings of one run.

    Attributes:
        settings: those of the first argument (without any, of the current folder); they decide
            what holds for the whole run.
    """

    def __init__(
        self,
        arguments: Sequence[Path],
        command_line: CommandLine | None = None,
        *,
        stdin: bytes | None = None,
        overlays: Mapping[Path, str] | None = None,
        effort: Effort | None = None,
        processes: int = 1,
        cache: Cache | None = None,
        writes: bool = False,
    ) -> None:
        """Find the files that can matter.

        Args:
            arguments: files and folders.
            command_line: what the command line says about the settings.
            stdin: the content of the only argument, where it is not to be read from disk.
            overlays: texts to take instead of what is on disk, of any files of the project.
            effort: what of the work is wanted; all of it by default.
            processes: how many processes may be used.
            cache: what was found before.
            writes: whether source files will be written, so that an interrupted write is completed.

        Raises:
            SettingsError: the settings are wrong.
            Interrupted: an earlier run was killed while it wrote, and that can't be completed, or
                this run writes nothing.
        """
        self.command_line = command_line or CommandLine()
        self._finder = SettingsFinder(command_line)
        self._scope = Scope(self._finder, self._note_unreadable)
        self._root = arguments[0] if arguments else Path()
        self.settings: Settings = self._finder.of(self._root)
        Limits.max_bytes = self.settings.max_file_size
        self.problems: list[Problem] = []
        self.stdin = stdin
        self._effort = effort
        self._recovered = Recovered()
        self.overrides: dict[Path, str] = dict(overlays or {})
        self._processes = processes
        self._cache = cache
        folders = [path for path in arguments if path.is_dir()]
        if stdin is None:
            wanted = [path for path in arguments if not self._left_out(path)]
            journals: list[str] = []
            unsaved = {path for path in wanted if path in self.overrides and not path.exists()}
            wanted = [path for path in wanted if path not in unsaved]
            files, self.problems = discover(wanted, self._excluded, journals)
            files += [File(path, named=True) for path in sorted(unsaved)]
            self._recovered = recover(arguments, journals, writes=writes)
        else:
            files = self._from_stdin(arguments[0], stdin)
        selection = prefilter.select(files, searched=folders, overrides=self.overrides)
        self.problems += selection.problems
        self.paths = selection.paths
        self.projects = Projects(self._excluded, self.overrides)
        self.projects.seed(selection.users, selection.scanned)
        self._groups = selection.groups
        self.files = [file.path for file in files]
        self.given = {file.real for file in files}
        self.beyond = beyond(arguments, files) if folders else set()
        for path in self.paths:
            self._finder.of(path)  # a mistake in any of the settings ends the run before it begins
        self.counting = Counting(self._finder, self.given, self.callers, self._baseline())

    def _from_stdin(self, path: Path, data: bytes) -> list[File]:
        if self._left_out(path):
            return []
        try:
            text, _, _ = decode_or_refuse(str(path), data)
        except Unreadable as error:
            self.problems.append(error.problem)
            return []
        self.overrides[path] = text
        return [File(path, named=True)]

    def _excluded(self, path: Path, is_folder: bool) -> bool:
        return self._finder.of_folder(path.absolute().parent).excludes(path, is_folder)

    def _left_out(self, path: Path) -> bool:
        """Whether the settings leave out even what the user names, and this."""
        settings = self._finder.of_folder(path.absolute().parent)
        return settings.force_exclude and settings.excludes(path, path.is_dir())

    def settings_of(self, path: Path) -> Settings:
        """What holds for a file or folder."""
        return self._finder.of(path)

    def _baseline(self) -> Baseline | None:
        file = self.settings.baseline
        if file is None:
            return None
        try:
            return read_baseline(file)
        except BaselineError as error:
            raise SettingsError(str(error)) from error

    # Checking -------------------------------------------------------------------------------

    def check(self) -> Result:
        """The findings."""
        result = Result(problems=self.problems, files=len(self.files))
        self._show(result, self._outcomes())
        result.problems = self._sorted_problems()
        return result

    def _outcomes(self) -> list[Outcome]:
        """What examining the files comes to, group by group."""
        from fsdplint.engine.cached import Remembering
        from fsdplint.engine.workers import examined

        self._report_plugins()
        if self._cache is None:
            outcomes = examined(self._groups, self.examine, self._processes)
        else:
            outcomes = Remembering(self, self._cache).outcomes(self._groups, self._processes)
        return outcomes

    def examine(self, paths: Sequence[Path]) -> Outcome:
        """Examine files that belong together."""
        return self._deep(paths, self._examine_whole)

    def _examine_whole(self, paths: Sequence[Path], defects: Sequence[Problem]) -> Outcome:
        from fsdplint.engine import fixpoint as engine
        from fsdplint.engine.outcome import Outcome, frozen

        rules = self._rules()
        self.projects.notes = notes = Notes()
        seen = engine.examine(
            paths,
            rules,
            self.options_of(paths),
            overrides=self.overrides,
            callers=self.callers,
            projects=self.projects,
            effort=self._effort or engine.WHOLE,
        )
        found = [*seen.found, *self._unused(rules)(seen.found, seen.program)]
        return Outcome(
            [frozen(one) for one in found],
            list(seen.program.files),
            sorted(seen.context),
            [*defects, *seen.program.problems, *_failures(rules)],
            seen.program.asked,
            notes,
            seen.program.files,
        )

    def _show(self, result: Result, outcomes: Sequence[Outcome]) -> None:
        if not outcomes:
            result.warnings = self._completion()
            return
        from fsdplint.engine.outcome import merged, sources

        for outcome in outcomes:
            self._add_problems(outcome.problems)
        seen = {path for one in outcomes for path in one.files if path not in one.context}
        context = {path for one in outcomes for path in one.context} - seen
        files = [
            (self.unsafe_in(g), one.files) for g, one in zip(self._groups, outcomes, strict=True)
        ]
        wary = {path for unsafe, several in files for path in several if not unsafe}
        found = merged(outcomes)
        self._set_findings(result, found, sources(outcomes, self.overrides), context, wary)

    def check_recorded(self, trace: Trace, contents: Mapping[str, bytes] | None = None) -> Result:
        """The findings in a recorded run of the program that was given.

        contents: the files as they were run, where that is not what is on disk.
        """
        from fsdplint.diagnostics.plugins import plugins
        from fsdplint.engine import fixpoint as engine
        from fsdplint.registry.rules import all_rules

        trace.target = self.options_of(self.paths or [self._root]).target
        self._add_problems(plugins().problems)
        rules = [rule() for rule in all_rules()]
        found = engine.check_recorded(trace, rules)
        self._add_problems(_failures(rules))
        found = [_shown(finding) for finding in found]
        result = Result(files=len(self.files), problems=self._sorted_problems())
        self._set_findings(result, found, _sources(found, contents or {}))
        return result

    def fix(self) -> Changes:
        """What fixing changes; nothing is written."""
        changes = Changes(result=Result(problems=self.problems, files=len(self.files)))
        self._report_plugins()
        outcomes = self._outcomes() if len(self._groups) > 1 else None
        left: list[Outcome] = []
        for number, group in enumerate(self._groups):
            outcome = None if outcomes is None else outcomes[number]
            if outcome is None or any(one.fix is not None for one in outcome.found):
                outcome = self._fix_group(group, changes)
            left.append(outcome)
        changes.texts = dict(sorted(changes.texts.items()))
        changes.contents = dict(sorted(changes.contents.items()))
        changes.result.fixed = len(changes.applied)
        changes.result.changed_outside = [
            str(path) for path in changes.texts if os.path.realpath(path) not in self.given
        ]
        self._show(changes.result, left)
        changes.result.problems = self._sorted_problems()
        return changes

    def _fix_group(self, paths: Sequence[Path], changes: Changes) -> Outcome:
        """Fix files that belong together; gives what remains."""
        return self._deep(paths, lambda sound, defects: self._fix(sound, defects, changes))

    def _fix(self, paths: Sequence[Path], defects: Sequence[Problem], changes: Changes) -> Outcome:
        from fsdplint.engine.outcome import Outcome, frozen

        rules = self._rules()
        fixed = self._fixed(paths, rules, changes)
        return Outcome(
            [frozen(one) for one in fixed.found],
            list(fixed.sources),
            sorted(fixed.context),
            [*defects, *fixed.problems, *_failures(rules)],
            known=fixed.sources,
        )

    def _fixed(self, paths: Sequence[Path], rules: Sequence[Rule], changes: Changes) -> FixResult:
        """Fix files that belong together, and add to the changes what this comes to."""
        from fsdplint.engine import fixpoint as engine

        fixed = engine.fix(
            paths,
            rules,
            unsafe=self.unsafe_in(paths),
            overrides=self.overrides,
            keep=self.counting.counted,
            also=self._unused(rules),
            editable=self.editable,
            callers=self.callers,
            projects=self.projects,
            options=self.options_of(paths),
        )
        for path in sorted(fixed.texts):
            source, after = fixed.originals[path], fixed.texts[path]
            before = source.text
            if after != before:
                contents = self._bytes(source, before), self._bytes(source, after)
                changes.contents[path] = contents
                if path.suffix == NOTEBOOK:  # what is shown and patched is the file
                    before, after = (one.decode("utf-8", "surrogateescape") for one in contents)
                else:
                    self.overrides[path] = after  # what other groups read is fixed now
                changes.texts[path] = (before, after)
        changes.applied += fixed.applied
        return fixed

    def _unused(
        self, rules: Sequence[Rule]
    ) -> Callable[[Sequence[Finding], Program], list[Finding]]:
        """What finds programs that are too large, and comments that turn nothing off. Where a file
        or a rule is missing, none of these is found: it may have been what they are there for."""

        def unused(found: Sequence[Finding], program: Program) -> list[Finding]:
            from fsdplint.registry.meta_rules import CutShort

            cuts = CutShort.of(program)
            missing = self.problems or program.problems or any(rule.failure for rule in rules)
            return cuts if missing else [*cuts, *self.counting.unused(found, program)]

        return unused

    def _bytes(self, source: Source, text: str) -> bytes:
        if self.stdin is None or source.path.endswith(NOTEBOOK):
            return source.to_bytes(text)
        _, encoding, bom = decode(self.stdin)
        return (self.stdin[:3] if bom else b"") + text.encode(encoding)

    def _set_findings(
        self,
        result: Result,
        found: Sequence[Finding],
        sources: Mapping[str, Source],
        context: Set[str] = frozenset(),
        wary: Set[str] = frozenset(),
    ) -> None:
        """Put the findings that count into the result, with what is known about fixing them.

        context: files looked at for the sake of others; what is found in them is not shown. wary:
            files that unsafe fixes may not be applied to.
        """
        from fsdplint.diagnostics.finding import changed_files, group_of
        from fsdplint.engine.fixpoint import applicable

        counted = self.counting.counted(found, sources)
        result.warnings = [*self._completion(), *self.counting.warnings(sources)]
        result.warnings += self._behind_links(counted)
        result.findings = [one for one in counted if one.site.path not in context]
        result.elsewhere = [one for one in counted if one.site.path in context]
        result.sources = sources
        result.fixable = {
            id(one)
            for one in applicable(
                found, counted, self.editable, unsafe=lambda one: one.site.path not in wary
            )
        }
        result.fixable_unsafe = {
            id(one) for one in applicable(found, counted, self.editable, unsafe=lambda _: True)
        }
        outside: dict[str, set[str]] = {}
        for one in found:
            files = changed_files(one.fix) if one.fix else ()
            missing = {path for path in files if not self.editable(os.path.realpath(path))}
            outside.setdefault(group_of(one) or str(id(one)), set()).update(missing)
        result.outside = {
            id(one): sorted(outside[group_of(one) or str(id(one))]) for one in counted
        }

    # What holds where -----------------------------------------------------------------------

    def unsafe_in(self, paths: Sequence[Path]) -> bool:
        """Whether unsafe fixes may be applied to files that belong together."""
        return self._scope.unsafe_fixes(paths)

    def options_of(self, paths: Sequence[Path]) -> Options:
        """How files that belong together are fixed."""
        return self._scope.options(paths or [self._root])

    def _note_unreadable(self, path: Path, error: OSError) -> None:
        self._add_problems([missing(str(path), error)])

    def editable(self, path: str) -> bool:
        """Whether a file, given by its real path, may be changed."""
        if path in self.given and path not in self.beyond:
            return True
        if not self.command_line.project or self.stdin is not None:
            return False
        found = Path(path)
        return found.is_relative_to(self._project) and not self._left_out_of_search(found)

    def _left_out_of_search(self, path: Path) -> bool:
        """Whether a search of the project for files would leave out a file."""
        from fsdplint.discovery.walk import DEFAULT_EXCLUDES

        folders = path.relative_to(self._project).parents
        return any(folder.name in DEFAULT_EXCLUDES for folder in folders) or any(
            self._excluded(part, part != path)
            for part in (path, *path.parents)
            if part.is_relative_to(self._project) and part != self._project
        )

    @cached_property
    def _project(self) -> Path:
        return Path(os.path.realpath(project_root(self._root)))

    def callers(self, targets: Iterable[Path]) -> list[Path]:
        """The files of the targets' projects that import them, however indirectly."""
        targets = list(targets)
        roots = {self.projects.root(path): path for path in targets}
        files = [file for path in roots.values() for file in self.projects.files(path)]
        if all(self.projects.real(path) in self.given for path in files):
            found = []  # those that have to do with FSDP are in the group
        else:
            found = self.projects.callers(targets, files, CALLERS)
        self.projects.notes.callers.append((list(map(str, targets)), list(map(str, found))))
        return found

    def _rules(self) -> list[Rule]:
        """The rules that are on in some file, and those whose fixes go together with theirs: what
        such a rule finds is not shown where it is off, but then its group is not fixed either."""
        return [rule() for rule in self._wanted]

    @cached_property
    def _wanted(self) -> list[type[Rule]]:
        from fsdplint.registry.rules import all_rules

        selections = {id(s): s.selection for s in (self._finder.of(path) for path in self.paths)}
        on = [
            rule
            for rule in all_rules()
            if any(selection.has(rule.code) for selection in selections.values())
        ]
        grouped = any(rule.grouped for rule in on)
        return [rule for rule in all_rules() if rule in on or (grouped and rule.grouped)]

    def _report_plugins(self) -> None:
        """Say what is wrong with plug-ins: before anything is examined, for that may happen in
        other processes. Where nothing is examined, no rule is wanted."""
        if self._groups:
            from fsdplint.diagnostics.plugins import plugins

            self._add_problems(plugins().problems)
            for group in self._groups:
                self.options_of(group)  # this names the requirements that cannot be read

    def _behind_links(self, found: Sequence[Finding]) -> list[str]:
        """What is said of files that are not changed because a link leads out to them."""
        paths = {one.site.path for one in found if one.fix is not None} if self.beyond else set()
        return [
            f"{path}: warning: a link leads out of the given paths to it, so that it is not "
            "changed; name it to have it changed"
            for path in sorted(paths)
            if not self.editable(os.path.realpath(path)) and os.path.realpath(path) in self.beyond
        ]

    def _completion(self) -> list[str]:
        return [
            *self._recovered.foreign,
            *(
                f"{path}: written now; an earlier run was interrupted before it could"
                for path in self._recovered.written
            ),
        ]

    # Trouble --------------------------------------------------------------------------------

    def _deep(
        self, paths: Sequence[Path], job: Callable[[Sequence[Path], Sequence[Problem]], T]
    ) -> T:
        """Do a job on a deep stack. Files on which it breaks down are left out; it gets the others
        and what is to be said about these."""

        def whole() -> T:
            try:
                return job(paths, ())
            except Exception:
                if os.environ.get(DEBUG):
                    raise
                sound, problems = self._without_defects(paths)
                self._add_problems(problems)
            try:
                return job(sound, problems)
            except Exception as error:  # each of the files is sound, all of them together are not
                problems += [_defect(path, error) for path in sound]
                self._add_problems(problems)
                return job((), problems)

        return deep_stack(whole)

    def _without_defects(self, paths: Sequence[Path]) -> tuple[list[Path], list[Problem]]:
        """The files that can be checked by themselves; the others become problems."""
        from fsdplint.engine import fixpoint as engine
        from fsdplint.interpreter import load

        sound, problems = [], []
        for path in paths:
            try:
                engine.check(load([path], self.overrides), self._rules())
            except Exception as error:
                problems.append(_defect(path, error))
            else:
                sound.append(path)
        return sound, problems

    def _add_problems(self, problems: Sequence[Problem]) -> None:
        self.problems.extend(one for one in problems if one not in self.problems)

    def _sorted_problems(self) -> list[Problem]:
        return sorted(self.problems, key=lambda one: (one.path, one.line or 0, one.message))


def _defect(path: Path, error: Exception) -> Problem:
    """What is said of a file on which the examination broke down."""
    if isinstance(error, RecursionError):
        hint = "leave the file out with `exclude` in [tool.fsdplint]"
        return Problem(str(path), None, "nested too deeply to be followed", hint)
    text = f"internal error: {type(error).__name__}: {error}"
    hint = f"a defect of fsdplint, please report it; {DEBUG}=1 shows where"
    return Problem(str(path), None, text, hint)


def _failures(rules: Sequence[Rule]) -> list[Problem]:
    """The rules of plug-ins that raised."""
    from fsdplint.diagnostics.plugins import broken

    return [
        broken(f"{rule.plugin} ({rule.code})", "raised", rule.failure)
        for rule in rules
        if rule.failure is not None
    ]


# Findings of a real run ---------------------------------------------------------------------------


def _shown(finding: Finding) -> Finding:
    """The finding with its files named from the current folder, as those of a check are."""
    related = tuple((_near(site), word) for site, word in finding.related)
    return replace(finding, site=_near(finding.site), related=related)


def _near(site: Site) -> FixedSite:
    at = site.location()
    here = os.getcwd() + os.sep
    return FixedSite(replace(at, path=at.path.removeprefix(here)))


def _sources(found: Sequence[Finding], contents: Mapping[str, bytes]) -> dict[str, Source]:
    """The files that the findings are in, as far as they can be read."""
    from fsdplint.source.source import Source

    sources: dict[str, Source] = {}
    for path in {finding.site.path for finding in found}:
        with contextlib.suppress(OSError, SyntaxError, UnicodeDecodeError):
            data = contents.get(os.path.realpath(path))
            sources[path] = Source.from_bytes(path, read(path) if data is None else data)
    return sources
