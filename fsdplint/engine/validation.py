"""The fixes of a program's findings, tried before they are offered.

A fix is not offered where the program after it has an error that it does not have now, reads a name
that nothing binds any more, or still uses FSDP1 on what the fix has migrated. All fixes are tried
together, as `--fix` applies them; only where the result is worse are they tried in smaller parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity, group_of
from fsdplint.edits import apply
from fsdplint.edits.unbound import lost_names
from fsdplint.engine.check import (
    CheckedProgram,
    FixedProgram,
    check,
    load_program,
    offer_fix,
    take_untargeted_fixes,
)
from fsdplint.engine.known_findings import Known
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.refusal import Harm, Refusal
from fsdplint.registry.rule import Rule, rule_of
from fsdplint.registry.rules import own_rules
from fsdplint.trace import Location

if TYPE_CHECKING:
    from fsdplint.interpreter import Program
    from fsdplint.source.source import Source


@dataclass(frozen=True)
class Trial(Refusal):
    """A refusal with what the trial found.

    Attributes:
        program, errors: the program after the fix, and the errors that are new in it.
    """

    program: Program | None = None
    errors: Sequence[Finding] = ()


@dataclass(eq=False)
class Unit:
    """The findings whose fixes are applied together or not at all."""

    findings: list[Finding]

    @property
    def fixes(self) -> list[Fix]:
        return [one.fix for one in self.findings if one.fix is not None]

    @property
    def migrates(self) -> bool:
        """Whether the fixes are a migration."""
        return any(group_of(one) is not None for one in self.findings)

    @property
    def safe(self) -> bool:
        return all(fix.safety is Safety.SAFE for fix in self.fixes)


class Validation:
    """Tries the fixes of one program.

    Attributes:
        results: the programs that were tried and are no worse.
    """

    def __init__(
        self,
        workspace: Workspace,
        checked: CheckedProgram,
        rules: Sequence[Rule],
        candidates: Sequence[Finding] | None = None,
    ) -> None:
        """
        Args:
            workspace: the files of the program.
            checked: the program as it is, and its findings.
            rules: the rules that found them.
            candidates: the findings whose fixes are tried; all by default.
        """
        found = checked.found
        self.program = checked.program
        self.results: list[FixedProgram] = []
        self._workspace = workspace
        self._importers = checked.importers
        self._last: tuple[list[Fix], apply.Applied] | None = None
        self._tried_alone: dict[tuple[Fix, ...], Refusal | None] = {}
        self._culprit: Unit | None = None  # of the last refusal, where it is known
        self._units = _units(found if candidates is None else candidates)
        given = [rule for rule in rules if _judges(type(rule))]
        codes = {rule.code for rule in rules}
        others = [cls() for cls in own_rules() if _judges(cls) and cls.code not in codes]
        self._rules = [*given, *others]
        needed = self._units and others
        self._before = [*found, *(self._check(self.program, others) if needed else ())]

    def _load(self, texts: Mapping[Path, str], sources: Mapping[str, Source]) -> Program:
        """The program with other texts in some of its files, whose sources are these."""
        program = load_program(
            self._workspace,
            self._importers,
            texts,
            sources,
            self.program,
            with_arguments=self.program.has_arguments,
        )
        program.projects = self.program.projects
        return program

    def _check(self, program: Program, rules: Sequence[Rule]) -> list[Finding]:
        """The findings of rules in a program, without fixes."""
        judging = replace(self._workspace.effort, fixes=False)
        return check(program, rules, self._workspace.options, judging)

    def settle(self) -> None:
        """Take the fixes away that would make the program worse, and say why in the findings."""
        safe = self._valid_units([one for one in self._units if one.safe], [])
        self._valid_units([one for one in self._units if not one.safe], safe)

    def _valid_units(self, units: list[Unit], base: list[Unit]) -> list[Unit]:
        """The units that do no harm on top of others; the fixes of the rest are taken away."""
        sound: list[Unit] = []
        while units:
            included, later = self._split_by_conflict(base, units)
            if not included and base:  # each of them clashes with the base
                base = []
                continue
            sound += self._harmless(base, included)
            units = later if included else later[1:]
        return sound

    def _split_by_conflict(
        self, base: list[Unit], units: list[Unit]
    ) -> tuple[list[Unit], list[Unit]]:
        """Of some units those that one text can hold with the base, and those that it cannot."""
        applied = self._apply(_fixes([*base, *units]))
        broken = dict(applied.broken)
        for unit in units:
            reason = next((broken[fix] for fix in unit.fixes if fix in broken), None)
            if reason is not None:
                self._refuse(unit, Refusal(f"cannot be put together ({reason})"))
        units = [one for one in units if one.fixes]
        accepted = set(applied.applied)
        included = [one for one in units if accepted.issuperset(one.fixes)]
        return included, [one for one in units if one not in included]

    def _apply(self, fixes: list[Fix]) -> apply.Applied:
        if self._last is None or self._last[0] != fixes:
            self._last = fixes, apply.apply(self.program.files, fixes)
        return self._last[1]

    def _harmless(self, base: list[Unit], units: list[Unit]) -> list[Unit]:
        """Of units that go together, those that do no harm on top of the base."""
        refusal = self._refusal_of(base, units) if units else None
        if refusal is None:
            return units
        if len(units) == 1:
            if self._completes(base, units[0], refusal):
                return units
            self._refuse(units[0], self._cause(refusal))
            return []
        if self._culprit in units:
            self._refuse(self._culprit, refusal)
            return self._harmless(base, [one for one in units if one is not self._culprit])
        first, rest = _bisect(units, refusal.at)
        sound = self._harmless(base, first)
        return [*sound, *self._harmless([*base, *sound], rest)]

    def _refuse(self, unit: Unit, refusal: Refusal) -> None:
        for one in unit.findings:
            one.fix = None
        for one in unit.findings:
            rule_of(one).refuse(one, self.program, refusal)

    def _completes(self, base: list[Unit], unit: Unit, refusal: Refusal) -> bool:
        """Whether the fixes of the errors that a unit brings complete it, so that all is well. They
        are a part of it then."""
        repairs = list(self._repairs(refusal)) if isinstance(refusal, Trial) else []
        if not repairs or None in repairs:
            return False
        before = [(one, one.fix) for one in unit.findings]
        for one, fix in before:
            if fix is not None:
                one.fix = extend_fix(fix, [repair for repair in repairs if repair is not None])
        if self._refusal_of(base, [unit]) is None:
            return True
        for one, fix in before:
            one.fix = fix
        return False

    def _repairs(self, refusal: Trial) -> Iterator[Fix | None]:
        """The fixes of the errors that were found after a fix, in the program as it is; None for
        one that cannot be taken over."""
        assert refusal.program is not None
        known = Known(self.program, self._before, refusal.program)
        for one in refusal.errors:
            offer_fix(rule_of(one), one, refusal.program, self._workspace.options.target)
            sound = one.fix is not None and one.fix.safety is Safety.SAFE and one.fix.group is None
            yield known.moved_back(one.fix) if one.fix is not None and sound else None

    def _cause(self, refusal: Refusal) -> Refusal:
        """The refusal for the first new error that has no fix, rather than for one that has."""
        if not isinstance(refusal, Trial) or len(refusal.errors) < 2:
            return refusal
        for error, repair in zip(refusal.errors, self._repairs(refusal), strict=True):
            if repair is None:
                assert refusal.program is not None
                known = Known(self.program, self._before, refusal.program)
                return _trial(known, error, refusal.program, refusal.errors)
        return refusal

    # What is worse ----------------------------------------------------------------------------

    def _refusal_of(self, base: list[Unit], units: list[Unit]) -> Refusal | None:
        """What is wrong with the program once the fixes are in it."""
        fixes = _fixes([*base, *units])
        applied = self._apply(fixes)
        texts, sources = applied.texts, self.program.sources
        changed = {path: one for path, one in applied.sources.items() if path in sources}
        undecided = {name for fix in fixes for name in fix.undecided}
        unbound = next(lost_names(sources, changed, undecided), None)
        if unbound is not None:
            what, at = unbound
            return Refusal(f"would leave {what}", at)
        if all(fix.same_objects for fix in fixes):
            return None
        program = self._load({Path(path): text for path, text in texts.items()}, changed)
        self._culprit = None
        refusal = next(self._regressions(program, base, units), None)
        if refusal is None:
            self.results.append(FixedProgram(texts, program))
        return refusal

    def _regressions(
        self, program: Program, base: Sequence[Unit], units: Sequence[Unit]
    ) -> Iterator[Refusal]:
        """What is wrong with the program that the fixes of units, on top of a base, make."""
        migrated = {group_of(one) for unit in units for one in unit.findings} - {None}
        known = Known(self.program, self._before, program)
        errors: list[Finding] = []
        left: list[Finding] = []
        for one in self._check(program, self._rules):
            before = known.match(one)
            if before is None and one.rule.severity is Severity.ERROR:
                errors.append(one)
            elif before is not None and one.rule.grouped and group_of(before) in migrated:
                left.append(one)
        named = sorted(errors, key=lambda one: _is_named_by(one, errors), reverse=True)
        for one in named:
            yield _trial(known, one, program, named)
        for one in left:
            at = known.place(one.site.location())
            text = f"would leave a use of FSDP1: {one.message} ({one.rule.code})"
            yield Refusal(text, at, Harm.USE_LEFT)
        for unit in units:
            rule = rule_of(unit.findings[0])
            use = rule.incomplete(self.program, program, unit.fixes[0])
            if use is not None:
                code, where = use
                text = f"would leave {code} as it is"
                yield Refusal(text, known.place(where), Harm.USE_LEFT)
        if migrated:
            from fsdplint.engine.translation import use_left

            fixes = [fix for unit in units if unit.migrates for fix in unit.fixes]
            changed = {edit.path for fix in fixes for edit in fix.edits}
            left_use = use_left(self.program, program, changed)
            if left_use is not None:
                at = None if left_use.at is None else known.place(left_use.at)
                yield replace(left_use, at=at)
        yield from self._differences(program, base, units)

    def _differences(
        self, program: Program, base: Sequence[Unit], units: Sequence[Unit]
    ) -> Iterator[Refusal]:
        """What a program with migrations does otherwise.

        Other fixes may change what it does. Where they are in the program, too, each migration is
        tried alone.
        """
        migrations = [one for one in units if one.migrates]
        if not migrations:
            return
        from fsdplint.engine.translation import difference

        refusal = difference(self.program, program)
        if refusal is None:
            return
        if all(one.migrates for one in (*base, *units)):
            yield refusal
            return
        for unit in migrations:
            key = tuple(unit.fixes)
            if key not in self._tried_alone:
                alone = self._with_unit(unit)
                self._tried_alone[key] = None if alone is None else difference(self.program, alone)
            refusal = self._tried_alone[key]
            if refusal is not None:
                self._culprit = unit
                yield refusal

    def _with_unit(self, unit: Unit) -> Program | None:
        """The program with the fixes of one unit; None if they cannot be applied."""
        applied = apply.apply(self.program.files, unit.fixes)
        if applied.broken:
            return None
        sources = {
            path: one for path, one in applied.sources.items() if path in self.program.sources
        }
        return self._load({Path(path): text for path, text in applied.texts.items()}, sources)


def _trial(known: Known, error: Finding, program: Program, errors: Sequence[Finding]) -> Trial:
    """The refusal of fixes that bring errors, which names one of them."""
    old = known.error_behind(error)
    if old is not None:
        reason = f"would turn an error that the program has now into {error.rule.code}"
        text = f"{reason}: {old.message} ({old.rule.code})"
        return Trial(text, old.site.location(), Harm.OLD_ERROR, program, errors)
    at = known.place(error.site.location())
    reason = "would bring an error that the program does not have now"
    text = f"{reason}: {error.message} ({error.rule.code})"
    return Trial(text, at, Harm.NEW_ERROR, program, errors)


def _is_named_by(finding: Finding, others: Sequence[Finding]) -> bool:
    """Whether other findings name the place of a finding as one that they are about, too."""
    at = finding.site.location()
    return any(
        (site.location().path, site.location().line) == (at.path, at.line)
        for other in others
        if other is not finding
        for site, _ in other.related
    )


def _bisect(units: list[Unit], at: Location | None) -> tuple[list[Unit], list[Unit]]:
    """Two parts of some units, of which the second one is likely to do the harm.

    at: where the harm is; those that change this file are the second part.
    """
    paths = {at.path} if at is not None else set[str]()
    accused = [
        one for one in units if any(edit.path in paths for fix in one.fixes for edit in fix.edits)
    ]
    if 0 < len(accused) < len(units):
        return [one for one in units if one not in accused], accused
    return units[: len(units) // 2], units[len(units) // 2 :]


def without_harmful_fixes(
    workspace: Workspace,
    checked: CheckedProgram,
    rules: Sequence[Rule],
    candidates: Sequence[Finding] | None = None,
) -> CheckedProgram:
    """The same findings without the fixes that would make the program worse.

    candidates: the findings whose fixes are tried; all by default.
    """
    if all(one.fix is None for one in checked.found):
        take_untargeted_fixes(checked.found)
        return checked
    validation = Validation(workspace, checked, rules, candidates)
    validation.settle()
    take_untargeted_fixes(checked.found)
    return replace(checked, validated=[*checked.validated, *validation.results])


def extend_fix(fix: Fix, others: Iterable[Fix]) -> Fix:
    """A fix with others as parts of it."""
    for other in others:
        fix = replace(
            fix,
            edits=(*fix.edits, *(edit for edit in other.edits if edit not in fix.edits)),
            imports=tuple(dict.fromkeys([*fix.imports, *other.imports])),
            maybe_unused_imports=tuple(
                dict.fromkeys([*fix.maybe_unused_imports, *other.maybe_unused_imports])
            ),
        )
    return fix


def _judges(rule: type[Rule]) -> bool:
    """Whether what a rule finds after a fix speaks against the fix."""
    return rule.severity is Severity.ERROR or rule.grouped


def _units(found: Iterable[Finding]) -> list[Unit]:
    """What is fixed together, in the order of the findings."""
    units: dict[object, Unit] = {}
    for one in found:
        if one.fix is not None:
            units.setdefault(group_of(one) or id(one.fix), Unit([])).findings.append(one)
    return list(units.values())


def _fixes(units: Iterable[Unit]) -> list[Fix]:
    return [fix for unit in units for fix in unit.fixes]
