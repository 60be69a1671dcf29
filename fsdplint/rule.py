"""Rules, findings and fixes, and the registry through which the engine finds the rules.

A rule is one small file in the folder `rules`: a subclass of `Rule` whose docstring is its page,
with a check over a trace, perhaps a fix, and its examples. See `rules/README.md`.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

from fsdplint.trace import Event, Guard, Location, Site, Trace

if TYPE_CHECKING:
    from fsdplint.configs.source import ConfigSource
    from fsdplint.program import Program


class Severity(Enum):
    """What a finding means for the user's training run."""

    ERROR = "error"  # crashes, hangs, or trains wrongly
    WARNING = "warning"  # wastes memory or time, or breaks on another torch
    INFO = "info"


class Safety(Enum):
    """SAFE keeps meaning and comments; UNSAFE may not and needs --unsafe-fixes."""

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
        alias: the local name where it is not the plain one (`... as alias`).
        at: offset of the code that uses the name, which decides where it is imported (a file that
            imports lazily goes on doing so); None for the top of the module.
    """

    module: str
    name: str | None = None
    alias: str | None = None
    at: int | None = None


@dataclass(frozen=True)
class Note:
    """What a fix changes in cost or in a detail of behaviour.

    Attributes:
        text: what, in a few words.
        detail: how much, and what can be done about it.
        places: the lines that it is about, where there are some.
    """

    text: str
    detail: str = ""
    places: tuple[Location, ...] = ()


@dataclass(frozen=True)
class Fix:
    """A rewrite that mends a finding.

    Attributes:
        title: what it does, in the imperative: "Call the module".
        safety: SAFE or UNSAFE.
        edits: non-overlapping replacements, in any file of the program.
        imports: (path, import) pairs that the edited files need.
        group: fixes with the same group are applied together or not at all (a migration).
        unused: (path, local name) pairs of imports that the edits may have left without a use.
        relies_on: (path, start, end) spans of code that has to stay as it is for this fix to be
            right: what is done to it by another fix comes in another round.
        notes: what it changes besides what it mends.
    """

    title: str
    safety: Safety
    edits: tuple[Edit, ...]
    imports: tuple[tuple[str, Import], ...] = ()
    group: str | None = None
    unused: tuple[tuple[str, str], ...] = ()
    relies_on: tuple[tuple[str, int, int], ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass
class Finding:
    """One violation at one place.

    Attributes:
        rule: the rule that found it.
        site: where; the primary span.
        message: one sentence: what is wrong here, naming the objects in question.
        help: what to do about it, in words, also where there is a fix.
        events: the events that make the finding, the one at `site` first.
        related: further places with a word on each ("sharded here").
        configuration: the conditions under which it holds; empty where it always does.
        group: the group of fixes it belongs to (a migration), see `Fix.group`.
        blocker: why the group cannot be rewritten, where this finding is what prevents it.
        fix: filled in by the engine from `Rule.fix`.
    """

    rule: type[Rule]
    site: Site
    message: str
    help: str = ""
    events: tuple[Event, ...] = ()
    related: tuple[tuple[Site, str], ...] = ()
    configuration: tuple[Guard, ...] = ()
    group: str | None = None
    blocker: str | None = None
    fix: Fix | None = None


@dataclass(frozen=True)
class Symptom:
    """What a bad program shows when it is run on two ranks; at least one field is given.

    Attributes:
        raises: regular expression found in the exception that some rank ends with.
        prints: regular expression found in what some rank prints.
        hangs: some rank waits for ever in a collective (or is aborted by the transport because the
            other rank is elsewhere).
    """

    raises: str | None = None
    prints: str | None = None
    hangs: bool = False


@dataclass(frozen=True)
class Bad:
    """A whole program that violates the rule; its lines marked `# <- CODE` are the findings.

    Attributes:
        code: the program; the markers are stripped before it is checked or run.
        symptom: what two ranks show.
        fixed: the program's text after `--fix --unsafe-fixes`, if the rule can fix it.
        changes: the same in short: (old, new) parts of the text, each old one standing there once;
            `fixed` is worked out from them.
        healthy: regular expression that the fixed program prints.
        config_dependent: whether the finding must name a configuration.
        runs: False where it cannot run here; `why_not` says why (never for lack of proof).
        target_torch: the torch that it is checked for, as a setting says it.
        filename: its file's name, where it is no Python program.
    """

    code: str
    symptom: Symptom | None = None
    fixed: str | None = None
    healthy: str | None = None
    config_dependent: bool = False
    runs: bool = True
    why_not: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    target_torch: str | None = None
    filename: str = "program.py"

    def __post_init__(self) -> None:
        if not self.changes:
            return
        text = without_markers(self.code)
        for old, new in self.changes:
            if text.count(old) != 1:
                raise ValueError(f"not exactly once in the example: {old!r}")
            text = text.replace(old, new)
        object.__setattr__(self, "fixed", text)


_MARKER = re.compile(r"[ \t]*# <- (FSDP\d+(?: FSDP\d+)*)[ \t]*$", re.MULTILINE)


def without_markers(code: str) -> str:
    """An example's program as it is checked and run."""
    return _MARKER.sub("", code)


def markers(code: str) -> set[tuple[int, str]]:
    """The findings that an example expects: (line, rule code) pairs."""
    return {
        (number, rule)
        for number, line in enumerate(code.splitlines(), 1)
        for match in _MARKER.finditer(line)
        for rule in match.group(1).split()
    }


@dataclass(frozen=True)
class Good:
    """A program that a naive rule would flag and this one must not; run on two ranks if `runs`.

    It is checked for `target_torch` where one is given.
    """

    code: str
    why: str = ""
    runs: bool = True
    target_torch: str | None = None
    filename: str = "program.py"


class Rule(ABC):
    """Base of all rules; the subclass's docstring is its page (first line: the summary).

    The page has sections ("What it does", "Why is this bad?", "Fix safety" if it fixes, "Since",
    "References"), each headed by a line `## Title`.
    """

    code: ClassVar[str]
    name: ClassVar[str]  # kebab-case, e.g. "optimizer-before-shard"
    severity: ClassVar[Severity]
    fixable: ClassVar[Safety | None] = None  # the safety that its fixes usually have
    grouped: ClassVar[bool] = False  # its fixes belong to a group with those of other such rules
    fix_since: ClassVar[str] = "2.4"  # the oldest torch that has what its fixes use
    # Whether a finding counts only if every configuration that comes to its place shows it: for
    # what costs and is no mistake where a program has it as one of its choices.
    unanimous: ClassVar[bool] = False
    # Whether only a real run can show it (`fsdplint run`): the interpreter's traces are not given
    # to the rule.
    runtime_only: ClassVar[bool] = False
    # Whether its fix gives the steps other data, on purpose: no run after it can agree with one
    # before. A proof leaves these fixes out, and says so.
    reorders: ClassVar[bool] = False
    # Whether the weights that a program with a finding starts with depend on how its model is cut:
    # a migration, which cuts it in another way, does not train the same model then.
    blends: ClassVar[bool] = False
    # Whether a finding makes the exit code 1.
    counts: ClassVar[bool] = True
    # The entry point that a rule of another package comes from, and the address of its page.
    plugin: ClassVar[str | None] = None
    url: ClassVar[str | None] = None
    bad: ClassVar[tuple[Bad, ...]] = ()
    good: ClassVar[tuple[Good, ...]] = ()

    failure: Exception | None = None  # what a rule of a plug-in raised, which then found nothing

    @abstractmethod
    def check(self, trace: Trace) -> Iterable[Finding]:
        """The findings in one trace, static or recorded."""

    def check_config(self, config: ConfigSource) -> Iterable[Finding]:
        """The findings in a file of settings (YAML or JSON)."""
        return ()

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        """A rewrite of the program's source that mends the finding, or None.

        Called on findings of the static producer only. Returns None rather than a doubtful rewrite.
        """
        return None

    def incomplete(self, before: Program, after: Program, fix: Fix) -> tuple[str, Location] | None:
        """Code that a fix that was tried should have changed, besides what the rules find after
        it: the code in words, and its place in the program after the fix."""
        return None

    def refuse(self, finding: Finding, program: Program, reason: str, at: Location | None) -> None:
        """Note that a finding's fix, which was tried, is not offered.

        Args:
            finding: the finding, which has no fix any more.
            program: the program that it was found in.
            reason: the rest of a sentence about the fix: "would bring an error ...".
            at: the line that this is about, where the program as it is has it.
        """
        where = "" if at is None else f", at {at.path}:{at.line}"
        finding.blocker = f"the fix is not offered: it {reason}{where}"

    def finding(
        self,
        event: Event,
        message: str,
        *,
        help: str = "",
        because: Iterable[tuple[Event, str]] = (),
        site: Site | None = None,
    ) -> Finding:
        """A finding at an event; `because` are other events that it rests on, with a word on each.

        The configuration is worked out from the config guards of all of these events.
        """
        others = tuple(because)
        events = (event, *(other for other, _ in others))
        return Finding(
            rule=type(self),
            site=site or event.site,
            message=message,
            help=help,
            events=events,
            related=tuple((other.site, text) for other, text in others if text),
            configuration=configuration_of(events),
        )


def configuration_of(events: Iterable[Event]) -> tuple[Guard, ...]:
    """The config conditions that all of these events stand under, each once, in order."""
    from fsdplint.trace import GuardKind

    seen: dict[tuple[str, bool], Guard] = {}
    for event in events:
        for guard in event.guards:
            if guard.kind is GuardKind.CONFIG:
                seen.setdefault((guard.text, guard.holds), guard)
    return tuple(seen.values())


@lru_cache(maxsize=1)
def all_rules() -> tuple[type[Rule], ...]:
    """Every rule class, in the order of the codes: those of fsdplint, then those of plug-ins."""
    from fsdplint.plugins import plugins

    return (*own_rules(), *sorted(plugins().rules, key=lambda rule: rule.code))


@lru_cache(maxsize=1)
def own_rules() -> tuple[type[Rule], ...]:
    """The rule classes of fsdplint itself, in the order of the codes.

    Raises:
        RuntimeError: two rules share a code or a name.
    """
    found: dict[str, type[Rule]] = {}
    for name in _rule_modules():
        for rule in _rules_of(name):
            if rule.code in found:
                raise RuntimeError(f"two rules have the code {rule.code}")
            found[rule.code] = rule
    return tuple(found[code] for code in sorted(found))


@lru_cache(maxsize=1)
def _rule_modules() -> tuple[str, ...]:
    package = importlib.import_module("fsdplint.rules")
    names = [info.name for info in pkgutil.iter_modules(package.__path__)]
    return tuple(name for name in names if name.startswith("fsdp"))


def _rules_of(name: str) -> list[type[Rule]]:
    return rules_in(importlib.import_module(f"fsdplint.rules.{name}"))


def rules_in(module: ModuleType) -> list[type[Rule]]:
    """The rule classes that a module defines."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Rule)
        and value.__module__ == module.__name__
        and "code" in vars(value)
    ]


def documented_rules() -> tuple[type[Rule], ...]:
    """All rules that have a page: also those that report on the check itself."""
    from fsdplint.meta_rules import META_RULES

    return (*all_rules(), *META_RULES)


def rule_by_code(code: str) -> type[Rule] | None:
    """The rule with this code or name, if there is one."""
    wanted = code.strip()
    # To import one rule is several times faster than all of them; its module has its code.
    for name in _rule_modules():
        if name.startswith(f"{wanted.lower()}_"):
            return next((rule for rule in _rules_of(name) if rule.code == wanted.upper()), None)
    for rule in documented_rules():
        if wanted.upper() == rule.code or wanted.lower() == rule.name:
            return rule
    return None
