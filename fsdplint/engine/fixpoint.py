"""Rules over programs: findings, and fixes applied until nothing is left to fix."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fsdplint.config.options import DEFAULT, Options
from fsdplint.diagnostics.finding import Finding, Fix, Safety, changed_files, group_of
from fsdplint.discovery.importers import Projects
from fsdplint.registry.rule import Rule, rule_of
from fsdplint.trace import Trace

if TYPE_CHECKING:
    from fsdplint.engine.validation import Result as Tried
    from fsdplint.interpreter import Program
    from fsdplint.source.files import Problem
    from fsdplint.source.source import Source
    from fsdplint.trace.torch_target import Target

T = TypeVar("T")

FSDP1 = re.compile(r"FullyShardedDataParallel|torch\.distributed\.fsdp\b(?!\._)")
MAX_WIDENINGS = 3  # times that further files are looked at, which turn out to be concerned
MAX_ROUNDS = 10  # of fixing: one fix may uncover the next


@dataclass
class FixResult:
    """What fixing came to.

    Attributes:
        texts: the new text of every file that changes. Nothing is written.
        applied: the findings whose fixes are in these texts, with locations in the original files
            where the fix was found in the first round.
        remaining: what is found in the new texts and counts.
        found: all that is found there.
        problems: files that could not be read.
        sources: the files as they are in the new texts.
        originals: every file that changes, as it was read.
        context: files of `sources` that were looked at only because they call the others.
        examined: the program as it was, and what was found in it.
    """

    texts: dict[Path, str] = field(default_factory=dict)
    applied: list[Finding] = field(default_factory=list)
    remaining: list[Finding] = field(default_factory=list)
    found: list[Finding] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    originals: dict[Path, Source] = field(default_factory=dict)
    context: frozenset[str] = frozenset()
    examined: Examined | None = None


@dataclass(frozen=True)
class Effort:
    """How much is to be done.

    Attributes:
        fixes: whether the fixes are worked out, too; who calls the files matters only for them.
        known: sources of an earlier program; those that are still the same are not parsed again.
        stop: asked now and then; where it says yes, `Stopped` is raised.
    """

    fixes: bool = True
    known: Mapping[str, Source] = field(default_factory=dict)
    stop: Callable[[], bool] | None = None

    def go_on(self) -> None:
        """Raises Stopped."""
        if self.stop is not None and self.stop():
            from fsdplint.interpreter.frames import Stopped

            raise Stopped


WHOLE = Effort()


@dataclass(frozen=True)
class Examined:
    """A program and what was found in it.

    Attributes:
        program: the files given, what they import, and the files of `context`.
        found: all findings.
        callers: files that were read only because they import some of the others.
        context: the paths of all files that are there only because of those.
        tried: programs that fixes make of this one, which are no worse.
    """

    program: Program
    found: list[Finding]
    callers: Sequence[Path] = ()
    context: frozenset[str] = frozenset()
    tried: Sequence[Tried] = ()


Callers = Callable[[Iterable[Path]], Sequence[Path]]


def examine(
    paths: Sequence[Path],
    rules: Sequence[Rule],
    options: Options = DEFAULT,
    *,
    overrides: Mapping[Path, str] | None = None,
    callers: Callers | None = None,
    projects: Projects | None = None,
    effort: Effort = WHOLE,
) -> Examined:
    """Load files and check them.

    Where fixes go together over files (those of a migration), it also matters who calls what is
    in them, so they are looked at together with the files that import them.

    callers: of some files, those of their project that import them, however indirectly.
    projects: the files of their projects.
    """
    from fsdplint.interpreter import load

    program = load(paths, overrides, known=effort.known, stop=effort.stop)
    program.projects = projects or program.projects
    found = check(program, rules, options, effort)
    grouped = {one.site.path for one in found if one.rule.grouped}
    if any(rule.grouped for rule in rules):
        # What gets a model from somebody unseen is no finding yet.
        grouped |= {str(path) for path in paths if _may_get_wrapped(program, path)}
    examined = Examined(program, found)
    if callers is None or not grouped or not effort.fixes:
        return _validated(examined, paths, rules, options, overrides, effort)
    # What has to change along is judged with those that use it, too.
    wanted = sorted(program.wanted)
    wanted = [*callers([*map(Path, sorted(grouped)), *wanted]), *wanted]
    for _ in range(MAX_WIDENINGS):
        more = _unread(examined.program, wanted, paths[0])
        if not more:
            break
        files = [*examined.callers, *more]
        examined = _widened(paths, rules, options, overrides, program, files, effort)
        wanted = sorted(examined.program.wanted)
        wanted = [*callers(wanted), *wanted]
    return _validated(examined, paths, rules, options, overrides, effort)


def _validated(
    examined: Examined,
    paths: Sequence[Path],
    rules: Sequence[Rule],
    options: Options,
    overrides: Mapping[Path, str] | None,
    effort: Effort,
    candidates: Sequence[Finding] | None = None,
) -> Examined:
    """The same without the fixes that would make the program worse.

    candidates: the findings whose fixes are tried; all by default.
    """
    if all(one.fix is None for one in examined.found):
        return examined
    from fsdplint.engine.validation import Validation
    from fsdplint.interpreter import load

    program = examined.program
    judging = replace(effort, fixes=False)

    def changed(texts: Mapping[Path, str], sources: Mapping[str, Source]) -> Program:
        together = {**(overrides or {}), **texts}
        known = {**program.sources, **sources}
        result = load([*paths, *examined.callers], together, known=known, stop=effort.stop)
        result.projects = program.projects
        return result

    def found(program: Program, rules: Sequence[Rule]) -> list[Finding]:
        return check(program, rules, options, judging)

    def offer(finding: Finding, program: Program) -> None:
        _offer(rule_of(finding), finding, program, options.target)

    validation = Validation(program, examined.found, rules, changed, found, offer, candidates)
    validation.settle()
    return replace(examined, tried=[*examined.tried, *validation.results])


def _unread(program: Program, files: Iterable[Path], like: Path) -> list[Path]:
    """Of some files those that were not read yet, relative to the current folder as `like` is."""
    seen = {os.path.realpath(path) for path in program.sources}
    result = []
    for path in files:
        if os.path.realpath(path) not in seen:
            seen.add(os.path.realpath(path))
            result.append(path if like.is_absolute() else Path(os.path.relpath(path)))
    return result


def _widened(
    paths: Sequence[Path],
    rules: Sequence[Rule],
    options: Options,
    overrides: Mapping[Path, str] | None,
    program: Program,
    callers: Sequence[Path],
    effort: Effort,
) -> Examined:
    """The files together with those that call them."""
    from fsdplint.interpreter import load

    known = {**effort.known, **program.sources}
    whole = load([*paths, *callers], overrides, known=known, stop=effort.stop)
    whole.projects = program.projects
    context = frozenset(whole.sources) - frozenset(program.sources)
    return Examined(whole, check(whole, rules, options, effort), callers, context)


def _may_get_wrapped(program: Program, path: Path) -> bool:
    source = program.sources.get(str(path))
    return source is not None and FSDP1.search(source.text) is not None


def check(
    program: Program, rules: Sequence[Rule], options: Options = DEFAULT, effort: Effort = WHOLE
) -> list[Finding]:
    """The findings in a program: sorted, each once, with their fixes.

    Fixes that need a newer torch than the oldest that the program is for are left out, with a
    word on it.

    A finding that several configurations show is given with the fewest conditions; one that the
    traces show both with and without conditions holds always.
    """
    from fsdplint.source.source import NodeSite

    program.options, target = options, options.target
    chosen: dict[tuple[str, object], tuple[Finding, Rule]] = {}
    for trace in program.traces:
        effort.go_on()
        trace.target = options.target
        for rule, finding in findings(trace, rules):
            site = finding.site
            key: tuple[str, object] = (
                rule.code,
                site.node if isinstance(site, NodeSite) else site.location(),
            )
            known = chosen.get(key)
            if known is None or len(finding.configuration) < len(known[0].configuration):
                chosen[key] = (finding, rule)
    for config in program.configs.values():
        for rule in rules:
            for finding in _asked(rule, rule.check_config, config):
                chosen[rule.code, finding.site.location()] = (finding, rule)
    for key, (finding, rule) in list(chosen.items()):
        if rule.unanimous and not all(_shown(trace, finding, rule) for trace in program.traces):
            del chosen[key]
    result = sorted(chosen.values(), key=lambda pair: _order(pair[0]))
    for finding, rule in result if effort.fixes else ():
        effort.go_on()
        _offer(rule, finding, program, target)
    return [finding for finding, _ in result]


def _offer(rule: Rule, finding: Finding, program: Program, target: Target | None) -> None:
    """Give a finding its fix, or say what the fix lacks."""
    finding.fix = _fix_of(rule, finding, program)
    if finding.fix is not None and target is not None and target.predates(rule.fix_since):
        finding.fix = None
        finding.blocker = f"the fix needs torch {rule.fix_since}; {target.said()}"


def _fix_of(rule: Rule, finding: Finding, program: Program) -> Fix | None:
    """The fix of a finding. A defect in working it out must not cost the finding."""
    try:
        return rule.fix(finding, program)
    except Exception as error:
        if os.environ.get("FSDPLINT_DEBUG"):
            raise
        finding.blocker = f"the fix could not be worked out ({type(error).__name__}: {error})"
        return None


def _shown(trace: Trace, finding: Finding, rule: Rule) -> bool:
    """Whether a trace that comes to what a finding is about shows the finding as well."""
    kind = type(finding.events[0])
    if not any(type(event) is kind and event.site == finding.site for event in trace):
        return True
    return any(other.site == finding.site for other in _asked(rule, rule.check, trace))


def check_recorded(trace: Trace, rules: Sequence[Rule]) -> list[Finding]:
    """The findings in a recorded trace: sorted, each once, without fixes."""
    chosen: dict[tuple[str, object], Finding] = {}
    for rule, finding in findings(trace, rules):
        chosen.setdefault((rule.code, finding.site.location()), finding)
    return sorted_findings(chosen.values())


def findings(trace: Trace, rules: Sequence[Rule]) -> Iterable[tuple[Rule, Finding]]:
    """What the rules find in one trace, static or recorded.

    Rules about what only a real run can show are not asked about the interpreter's traces.
    """
    for rule in rules:
        if rule.runtime_only and trace.producer != "runtime":
            continue
        for finding in _asked(rule, rule.check, trace):
            if not _mixes_callbacks(finding):
                yield rule, finding


def _mixes_callbacks(finding: Finding) -> bool:
    """Whether a finding rests on what happens for certain and on what a callback does, which may
    not be called at all, or at another time."""
    return len({event.callbacks for event in finding.events}) > 1


def _asked(rule: Rule, ask: Callable[[T], Iterable[Finding]], about: T) -> Iterable[Finding]:
    """What a rule finds. One of a plug-in that raises is not asked again, and says so itself."""
    if rule.plugin is None:
        return ask(about)
    if rule.failure is not None:
        return ()
    try:
        found = list(ask(about))
        wrong = next((one for one in found if not isinstance(one, Finding)), None)
        if wrong is not None:
            raise TypeError(f"{wrong!r} is no Finding")
    except Exception as error:
        if os.environ.get("FSDPLINT_DEBUG"):
            raise
        rule.failure = error
        return ()
    return found


def sorted_findings(found: Iterable[Finding]) -> list[Finding]:
    """The findings in the order in which they are shown."""
    return sorted(found, key=_order)


def _order(finding: Finding) -> tuple[object, ...]:
    at = finding.site.location()
    return (at.path, at.line, at.column, finding.rule.code, finding.message)


def fix(
    paths: Sequence[Path],
    rules: Sequence[Rule],
    *,
    unsafe: bool = False,
    overrides: Mapping[Path, str] | None = None,
    wanted: Iterable[str] | None = None,
    keep: Callable[[Sequence[Finding], Mapping[str, Source]], Sequence[Finding]] | None = None,
    also: Callable[[Sequence[Finding], Program], Sequence[Finding]] | None = None,
    editable: Callable[[str], bool] | None = None,
    callers: Callers | None = None,
    projects: Projects | None = None,
    options: Options = DEFAULT,
) -> FixResult:
    """Apply the fixes of what is found in files, again and again until none is left.

    Args:
        paths: the files that are checked.
        rules: the rules to check.
        unsafe: apply unsafe fixes too.
        overrides: texts to use instead of what is on disk.
        wanted: codes of the rules whose fixes are applied; all by default.
        keep: of findings in files those that count (the settings and comments of a file may turn
            some off). One that does not is neither fixed nor given back, and its group is not
            fixed either.
        also: further findings in a program, besides those of the rules.
        editable: whether a file, given by its real path, may be changed (by default those of
            `paths`); fixes that would change any other are not applied.
        callers: see `examine`.
        projects: see `examine`.
        options: what the result has to run on, and how to fix.
    """
    from fsdplint.edits import apply
    from fsdplint.edits.annotations import without_annotations
    from fsdplint.interpreter import load

    codes = None if wanted is None else set(wanted)
    given = {os.path.realpath(path) for path in paths}
    result = FixResult()
    texts: dict[Path, str] = dict(overrides or {})
    seen_texts: list[dict[Path, str]] = [dict(texts)]

    def whole(found: list[Finding], program: Program) -> list[Finding]:
        return found if also is None else sorted_findings([*found, *also(found, program)])

    examined = examine(paths, rules, options, overrides=texts, callers=callers, projects=projects)
    program, found = examined.program, whole(examined.found, examined.program)
    result.context, result.examined = examined.context, examined
    for _ in range(MAX_ROUNDS):
        kept = found if keep is None else keep(found, program.files)
        counted = [f for f in kept if codes is None or f.rule.code in codes]
        usable = applicable(
            found,
            counted,
            editable or given.__contains__,
            unsafe=lambda _: unsafe,
        )
        if len(usable) < sum(one.fix is not None for one in examined.found):
            # Some of what was tried together is not wanted: the rest has to do without it.
            tried = _validated(examined, paths, rules, options, texts, WHOLE, usable)
            examined = replace(examined, tried=tried.tried)
        applied = apply.apply(program.files, [f.fix for f in usable if f.fix is not None])
        migrated = {file for fix in applied.applied if fix.group for file in changed_files(fix)}
        for name in migrated & applied.sources.keys() & program.sources.keys():
            applied.texts[name] = without_annotations(applied.sources[name])
        if not applied.texts:
            break
        for path, text in applied.texts.items():
            result.originals.setdefault(Path(path), program.files[path])
            texts[Path(path)] = text
            result.texts[Path(path)] = text
        done = set(applied.applied)  # findings of one migration may share a fix
        result.applied.extend(f for f in usable if f.fix in done)
        again = next((x for x in examined.tried if x.texts == applied.texts), None)
        if again is not None:  # what was tried has come about
            program = again.program
        else:
            program = load([*paths, *examined.callers], texts, known=program.sources)
            program.projects = examined.program.projects
        found = check(program, rules, options)
        examined = replace(examined, program=program, found=found, tried=())
        examined = _validated(examined, paths, rules, options, texts, WHOLE)
        found = whole(examined.found, program)
        if texts in seen_texts:  # two fixes undo each other: stop rather than go round
            break
        seen_texts.append(dict(texts))
    result.found = found
    result.remaining = list(found if keep is None else keep(found, program.files))
    result.problems = program.problems
    result.sources = program.files
    return result


def applicable(
    found: Sequence[Finding],
    counted: Iterable[Finding],
    editable: Callable[[str], bool],
    *,
    unsafe: Callable[[Finding], bool],
) -> list[Finding]:
    """Of `counted` (some of `found`), the findings whose fixes may be applied.

    A fix may be if it is safe or `unsafe` ones are wanted for the finding, and if all files that it
    changes are `editable` (asked with their real paths); one that belongs to a group only if all of
    the group may be.
    """
    possible = [
        f
        for f in counted
        if f.fix is not None
        and (f.fix.safety is Safety.SAFE or unsafe(f))
        and all(editable(os.path.realpath(path)) for path in changed_files(f.fix))
    ]
    able = {id(f) for f in possible}
    broken = {group_of(f) for f in found if id(f) not in able} - {None}
    return [f for f in possible if group_of(f) not in broken]
