"""Rules over programs: the findings, each once and in order, with their fixes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fsdplint.config.options import DEFAULT, Options
from fsdplint.diagnostics.finding import Finding, Fix, finding_order, group_of, sorted_findings
from fsdplint.diagnostics.plugins import plugin_problem
from fsdplint.engine.requirements import bound_edits, raise_bound
from fsdplint.engine.sharding_conditions import (
    FoundIn,
    add_option_conditions,
    add_sharding_conditions,
)
from fsdplint.engine.workspace import COMPLETE, Effort, Workspace
from fsdplint.interpreter import load
from fsdplint.registry.rule import Rule
from fsdplint.source.debug import debugging
from fsdplint.source.source import NodeSite
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.trace import Guard, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program
    from fsdplint.source.files import Problem
    from fsdplint.source.source import Source
    from fsdplint.trace.torch_target import Target

T = TypeVar("T")
NEAREST_CALLS = 2  # around what a finding is about

Conditions = frozenset[tuple[str, bool]]  # the texts of conditions, and whether each holds


@dataclass(frozen=True)
class CheckedProgram:
    """A program and its findings.

    Attributes:
        program: the files given, what they import, and the files of `context`.
        found: all findings.
        importers: files that were read only because they import some of the others.
        context: the paths of all files that were read only because of `importers`.
        searched: further files that import some of the others, whose content decided that they are
            no `importers`.
        validated: programs that fixes make of this one, which are no worse.
    """

    program: Program
    found: list[Finding]
    importers: Sequence[Path] = ()
    context: frozenset[str] = frozenset()
    searched: frozenset[str] = frozenset()
    validated: Sequence[FixedProgram] = ()


@dataclass(frozen=True)
class FixedProgram:
    """A program with fixes in it: the texts that the fixes change, and what is loaded from them."""

    texts: Mapping[str, str]
    program: Program


def load_program(
    workspace: Workspace,
    importers: Sequence[Path] = (),
    overrides: Mapping[Path, str] | None = None,
    known: Mapping[str, Source] | None = None,
    earlier: Program | None = None,
    *,
    with_arguments: bool = False,
) -> Program:
    """Load the files of a workspace.

    Args:
        workspace: the files.
        importers: further files, which import them.
        overrides: texts to use besides those of the workspace.
        known: sources to use besides those of the workspace, where their texts are the same.
        earlier: a program of some of the files; what is the same is not worked out again.
        with_arguments: see `load`.
    """
    effort = workspace.effort
    program = load(
        [*workspace.paths, *importers],
        {**workspace.overrides, **(overrides or {})},
        known={**effort.known, **(known or {})},
        earlier=earlier,
        elsewhere=workspace.elsewhere,
        stop=effort.stop,
        max_bytes=workspace.max_bytes,
        with_arguments=with_arguments,
    )
    program.projects = workspace.projects or program.projects
    return program


def check(
    program: Program, rules: Sequence[Rule], options: Options = DEFAULT, effort: Effort = COMPLETE
) -> list[Finding]:
    """The findings in a program: sorted, each once, with their fixes.

    A fix that needs a newer torch than the oldest that the program has to run on is left out, and
    the finding says so.

    A finding of several configurations is given with the fewest conditions. One that the traces
    show both with and without conditions holds always.
    """
    target = options.target
    program.options = _without_vain_assistance(options, rules, program)
    found: list[FoundIn] = []
    rule_by_code = {rule.code: rule for rule in rules}
    for trace in program.traces:
        effort.poll()
        trace.target = options.target
        for rule, finding in findings(trace, rules):
            site = finding.site
            place = site.node if isinstance(site, NodeSite) else site.location()
            found.append(FoundIn((rule.code, place), finding, trace))
    add_sharding_conditions(found, program.traces)
    add_option_conditions(found, program.traces)
    selected: dict[tuple[str, object], tuple[Finding, Rule]] = {}
    traces: dict[tuple[str, object], Trace] = {}  # of the selected findings
    shown: dict[tuple[str, object], set[Conditions]] = {}
    for one in found:
        key, finding = one.key, one.finding
        shown.setdefault(key, set()).add(_conditions(finding.configuration))
        existing = selected.get(key)
        if existing is None or len(finding.configuration) < len(existing[0].configuration):
            selected[key] = (finding, rule_by_code[key[0]])
            traces[key] = one.trace
    for key, (finding, _) in selected.items():
        finding.configuration = _needed_conditions(finding.configuration, shown[key])
        needed = _conditions(finding.configuration)
        finding.one_of_several = any(not needed <= other for other in shown[key])
    for config in program.configs.values():
        for rule in rules:
            for finding in _ask(rule, rule.check_config, config):
                selected[rule.code, finding.site.location()] = (finding, rule)
    for key, (finding, rule) in list(selected.items()):
        if rule.all_configurations and not (
            all(_shows(trace, finding, rule) for trace in program.traces if _is_run(trace))
            and not _is_undecided(finding, traces[key])
        ):
            del selected[key]
    result = sorted(selected.values(), key=lambda pair: finding_order(pair[0]))
    for finding, rule in result if effort.fixes else ():
        effort.poll()
        offer_fix(rule, finding, program, target)
    return [finding for finding, _ in result]


def _conditions(configuration: Iterable[Guard]) -> Conditions:
    return frozenset((guard.text, guard.holds) for guard in configuration)


def _needed_conditions(
    configuration: tuple[Guard, ...], shown: Set[Conditions]
) -> tuple[Guard, ...]:
    """The conditions without those whose opposite shows the same finding, all else being equal."""
    for guard in configuration:
        rest = tuple(one for one in configuration if one is not guard)
        opposite = _conditions(rest) | {(guard.text, not guard.holds)}
        if any(other <= opposite for other in shown):
            return _needed_conditions(rest, shown)
    return configuration


def _without_vain_assistance(options: Options, rules: Sequence[Rule], program: Program) -> Options:
    """The options, without an assisted migration if the targeted torch has no FSDP2 anyway."""
    since = next((rule.fix_since for rule in rules if rule.grouped), None)
    target = options.target
    if options.assist is None or since is None or target is None or not target.predates(since):
        return options
    return options if bound_edits(program, target, since) else replace(options, assist=None)


def offer_fix(rule: Rule, finding: Finding, program: Program, target: Target | None) -> None:
    """Give a finding its fix, or the reason why it has none.

    A migration that needs a newer torch keeps its fix until it has been tried, so that all that is
    wrong with it is named: see `take_untargeted_fixes`.
    """
    finding.fix = _fix_of(rule, finding, program)
    if target is None or not target.predates(rule.fix_since):
        return
    reason = f"the fix needs torch {rule.fix_since}; {target.description()}"
    if not rule.grouped:
        if finding.fix is not None:
            finding.fix, finding.blocker = None, reason
        return
    if group_of(finding) is None:
        return
    fix = None
    if finding.fix is not None:
        fix = raise_bound(finding.fix, program, target, rule.fix_since)
    elif bound_edits(program, target, rule.fix_since):
        return
    if fix is not None:
        finding.fix = fix
    else:
        finding.missing_torch = reason


def take_untargeted_fixes(found: Iterable[Finding]) -> None:
    """Take the fixes away that the targeted torch does not allow, and say so.

    Where something else is in the way, too, that is said first.
    """
    blocked: dict[str | None, list[Finding]] = {}
    for one in found:
        if one.missing_torch and one.fix is not None:
            one.fix, one.blocker = None, one.missing_torch
        elif one.missing_torch and one.help:
            blocked.setdefault(group_of(one), []).append(one)
    for group in blocked.values():
        # Reports give the list of the blockers once; what blocks itself is only a part of them.
        for one in [one for one in group if one.blocker is None] or group[:1]:
            one.help += f" Besides, {one.missing_torch}."


def _fix_of(rule: Rule, finding: Finding, program: Program) -> Fix | None:
    """The fix of a finding. A defect of the rule's fix must not cost the finding."""
    try:
        return rule.fix(finding, program)
    except Exception as error:
        if debugging():
            raise
        finding.blocker = f"the fix could not be worked out ({type(error).__name__}: {error})"
        return None


def _is_undecided(finding: Finding, trace: Trace) -> bool:
    """Whether a test near what a finding is about has another outcome, which no run tried.

    That is one in the function that does it, or in the functions that call this one.
    """
    if not trace.untried_tests or not finding.events:
        return False
    event = finding.events[0]
    sites = [
        site for site in (event.site, *event.stack[-NEAREST_CALLS:]) if isinstance(site, NodeSite)
    ]
    around = {function_around(site.source, site.node): site.source for site in sites}
    return any(
        function is not source.tree
        and any(function in ancestors(source, test) for test in trace.untried_tests)
        for function, source in around.items()
    )


def _is_run(trace: Trace) -> bool:
    """Whether a trace is one of the program, and not of a function that no run of it calls."""
    return trace.complete or trace.entry is not None


def _shows(trace: Trace, finding: Finding, rule: Rule) -> bool:
    """Whether a trace shows a finding, too, or does not reach the object of the finding."""
    if _fails_before(trace, finding) or not rule.concerns(trace, finding):
        return True
    return any(other.site == finding.site for other in _ask(rule, rule.check, trace))


def _fails_before(trace: Trace, finding: Finding) -> bool:
    """Whether the program ends with an error before it comes to the object of a finding."""
    if trace.fails_at is None or not finding.events:
        return False
    about = finding.events[0]
    same = [event for event in trace.of(type(about)) if event.site == about.site]
    return bool(same) and same[0].index >= trace.fails_at


def check_recorded(trace: Trace, rules: Sequence[Rule]) -> list[Finding]:
    """The findings in a recorded trace: sorted, each once, without fixes."""
    selected: dict[tuple[str, object], Finding] = {}
    for rule, finding in findings(trace, rules):
        selected.setdefault((rule.code, finding.site.location()), finding)
    return sorted_findings(selected.values())


def findings(trace: Trace, rules: Sequence[Rule]) -> Iterable[tuple[Rule, Finding]]:
    """The findings in one trace, static or recorded.

    A rule about what only a real run can show does not check the interpreter's traces, and a rule
    about a defect of newer versions of torch does not check programs for older ones. Only a
    migration is about code for a torch without FSDP2.
    """
    for rule in rules:
        if rule.runtime_only and trace.producer != "runtime":
            continue
        if trace.lacks(rule.since):
            continue
        for finding in _ask(rule, rule.check, trace):
            if not (_mixes_callbacks(finding) or (_is_before_fsdp2(finding) and not rule.grouped)):
                yield rule, finding


def _mixes_callbacks(finding: Finding) -> bool:
    """Whether a finding needs both an event that happens for certain and one of a callback. The
    callback may not be called at all, or at another time."""
    return len({event.callbacks for event in finding.events}) > 1


def _is_before_fsdp2(finding: Finding) -> bool:
    """Whether a finding needs code that runs only with a torch that has no FSDP2."""
    return any(guard.before_fsdp2 for event in finding.events for guard in event.guards)


def _ask(rule: Rule, ask: Callable[[T], Iterable[Finding]], about: T) -> Iterable[Finding]:
    """The findings of a rule. A rule of a plug-in that raises keeps the error and finds no more."""
    if rule.plugin is None:
        return ask(about)
    if rule.failure is not None:
        return ()
    try:
        result = list(ask(about))
        wrong = next((one for one in result if not isinstance(one, Finding)), None)
        if wrong is not None:
            raise TypeError(f"{wrong!r} is no Finding")
    except Exception as error:
        if debugging():
            raise
        rule.failure = error
        return ()
    return result


def rule_failures(rules: Sequence[Rule]) -> list[Problem]:
    """The problems of the rules of plug-ins that raised."""
    return [
        plugin_problem(f"{rule.plugin} ({rule.code})", "raised", rule.failure)
        for rule in rules
        if rule.failure is not None
    ]
