"""Findings and fixes."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from fsdplint.trace import Event, Guard, GuardKind, Location, Site


class Severity(Enum):
    """The effect of a finding on the training run."""

    ERROR = "error"  # crashes, hangs, or trains wrongly
    WARNING = "warning"  # wastes memory or time, or breaks on another torch
    INFO = "info"


class Safety(Enum):
    """SAFE keeps behaviour and comments. UNSAFE may change them and needs --unsafe-fixes."""

    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True, order=True)
class Edit:
    """Replace the characters start..end (offsets into the file's text) of `path` by `text`."""

    path: str
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Import:
    """A name that a fix needs: `from module import name`, or `import module` where name is None.

    Attributes:
        alias: the local name, if the import renames (`... as alias`).
        at: offset of the code that uses the name, which decides where it is imported (a lazy import
            stays lazy); None for the top of the module.
    """

    module: str
    name: str | None = None
    alias: str | None = None
    at: int | None = None


@dataclass(frozen=True)
class Note:
    """A change in cost or in a detail of behaviour that a fix makes.

    Attributes:
        text: the change, in a few words.
        detail: its size, and what the user can do about it.
        places: the lines in question.
    """

    text: str
    detail: str = ""
    places: tuple[Location, ...] = ()


@dataclass(frozen=True)
class Fix:
    """A rewrite that mends a finding.

    Attributes:
        title: its effect, in the imperative: "Call the module".
        safety: SAFE or UNSAFE.
        edits: non-overlapping replacements, in any file of the program.
        imports: (path, import) pairs that the edited files need.
        group: fixes with the same group are applied together or not at all (a migration).
        maybe_unused_imports: (path, local name) pairs of imports that the edits may have left
            without a use.
        depends_on: (path, start, end) spans of code that must not change in the same round: the fix
            is right only for that code.
        notes: other changes in cost or behaviour that it makes.
        same_objects: whether it only names the same objects by other paths, so that the program
            does the same.
        undecided: (path, name) pairs of names that have no value until a person has decided about
            the code that the fix replaces by a `raise`.
        requirements: the files of the project's requirements that it changes. They may be changed
            wherever the code may be.
    """

    title: str
    safety: Safety
    edits: tuple[Edit, ...]
    imports: tuple[tuple[str, Import], ...] = ()
    group: str | None = None
    maybe_unused_imports: tuple[tuple[str, str], ...] = ()
    depends_on: tuple[tuple[str, int, int], ...] = ()
    notes: tuple[Note, ...] = ()
    same_objects: bool = False
    undecided: tuple[tuple[str, str], ...] = ()
    requirements: frozenset[str] = frozenset()


class RuleInfo:
    """The attributes of a rule; `fsdplint.registry.rule.Rule` adds the check.

    Attributes are set on the class.
    """

    code: ClassVar[str]
    name: ClassVar[str]  # kebab-case, e.g. "optimizer-before-shard"
    severity: ClassVar[Severity]
    fixable: ClassVar[Safety | None] = None  # the safety that its fixes usually have
    grouped: ClassVar[bool] = False  # its fixes belong to a group with those of other such rules
    since: ClassVar[str] = "2.0"  # the oldest torch with the defect
    fix_since: ClassVar[str] = "2.4"  # the oldest torch that has what its fixes use
    # Whether every configuration that reaches the place must show the finding. This is for costs
    # that are no mistake if the program offers them as a choice.
    all_configurations: ClassVar[bool] = False
    # Whether the rule needs a recorded run (`fsdplint run`); it does not check the interpreter's
    # traces.
    runtime_only: ClassVar[bool] = False
    static_only: ClassVar[bool] = False  # a record lacks what it needs
    # Whether its fix changes the data or the gradients of the steps on purpose, so that the runs
    # before and after it differ. A proof leaves these fixes out, and says so.
    changes_steps: ClassVar[bool] = False
    # Whether the initial weights of a program with a finding depend on the sharding. A migration
    # changes the sharding, so that runs before and after it differ.
    init_depends_on_sharding: ClassVar[bool] = False
    # Whether a finding makes the exit code 1.
    affects_exit_code: ClassVar[bool] = True
    # The entry point of a plug-in's rule, and the address of its page.
    plugin: ClassVar[str | None] = None
    url: ClassVar[str | None] = None


@dataclass
class Finding:
    """One violation at one place.

    Attributes:
        rule: the rule that found it.
        site: where; the primary span.
        message: one sentence that says what is wrong and names the objects in question.
        help: advice, also if there is a fix.
        why: why this finding is bad; empty if the first sentence of the rule's page says it.
        events: the events that make the finding, the one at `site` first.
        related: further places, each with a few words ("sharded here").
        cause: the code to change, if the rule finds one violation for all events that it affects.
        configuration: the conditions under which it holds; empty if it always holds.
        one_of_several: whether it also holds under other conditions, which are not given.
        group: the group of fixes it belongs to (a migration), see `Fix.group`.
        blocker: why the group cannot be rewritten, if this finding prevents it.
        blocker_codes: the stable codes of the reasons in `blocker`.
        missing_torch: why the torch that the program targets keeps it from being rewritten, besides
            all other reasons; empty if it does not.
        fix: filled in by the engine from `Rule.fix`.
    """

    rule: type[RuleInfo]
    site: Site
    message: str
    help: str = ""
    why: str = ""
    events: tuple[Event, ...] = ()
    related: tuple[tuple[Site, str], ...] = ()
    cause: Site | None = None
    configuration: tuple[Guard, ...] = ()
    one_of_several: bool = False
    group: str | None = None
    blocker: str | None = None
    blocker_codes: tuple[str, ...] = ()
    missing_torch: str = ""
    fix: Fix | None = None

    def __repr__(self) -> str:
        """The place and the message: its events hold the whole program."""
        return f"<{self.rule.code} at {self.site.location()}: {self.message}>"

    def with_test(self, guard: Guard | None, text: str = "test") -> Finding:
        """This finding, whose first related place is a test that decides, if the code has one."""
        if guard is not None and guard.site is not None:
            self.related = ((guard.site, text), *self.related)
        return self


def configuration_of(events: Iterable[Event]) -> tuple[Guard, ...]:
    """The config conditions of all of these events, each once, in order."""
    guards: dict[tuple[str, bool], Guard] = {}
    for event in events:
        for guard in event.guards:
            if guard.kind is GuardKind.CONFIG:
                guards.setdefault((guard.text, guard.holds), guard)
    return tuple(guards.values())


def group_of(finding: Finding) -> str | None:
    """The group that the finding is fixed with, if there is one."""
    return finding.group or (finding.fix.group if finding.fix else None)


def changed_files(fix: Fix) -> set[str]:
    """The files that a fix changes, without the project's requirements."""
    changed = {edit.path for edit in fix.edits} | {path for path, _ in fix.imports}
    return changed - fix.requirements


def sorted_findings(found: Iterable[Finding]) -> list[Finding]:
    """The findings in the order in which they are reported."""
    return sorted(found, key=finding_order)


def finding_order(finding: Finding) -> tuple[object, ...]:
    at = finding.site.location()
    return (at.path, at.line, at.column, finding.rule.code, finding.message)


def applicable(
    found: Sequence[Finding],
    enabled: Iterable[Finding],
    editable: Container[str],
    *,
    unsafe: Callable[[Finding], bool],
) -> list[Finding]:
    """The findings among `enabled` (some of `found`) whose fixes may be applied.

    A fix may be applied if it is safe or `unsafe` holds for the finding, and if the real paths of
    all files that it changes are in `editable`. A fix of a group may be applied only if all fixes
    of the group may be.
    """
    possible = [
        f
        for f in enabled
        if f.fix is not None
        and (f.fix.safety is Safety.SAFE or unsafe(f))
        and all(os.path.realpath(path) in editable for path in changed_files(f.fix))
    ]
    able = {id(f) for f in possible}
    blocked_groups = {group_of(f) for f in found if id(f) not in able} - {None}
    return [f for f in possible if group_of(f) not in blocked_groups]
