"""The base class of the rules.

A rule is one small file in the folder `rules`: a subclass of `Rule` whose docstring is its page,
with a check over a trace and perhaps a fix. Its examples are files. See `rules/README.md`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from fsdplint.diagnostics.finding import Finding, Fix, RuleInfo, configuration_of
from fsdplint.registry.examples import Bad, Good
from fsdplint.trace import Event, Location, Site, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program
    from fsdplint.source.config_source import ConfigSource


class Rule(RuleInfo, ABC):
    """Base of all rules; the subclass's docstring is its page (first line: the summary).

    The page has sections ("What it does", "Why is this bad?", "Fix safety" if it fixes, "Since",
    "References"), each headed by a line `## Title`.
    """

    # Examples that are no files; `examples_of` gives all of a rule.
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


def class_of(finding: Finding) -> type[Rule]:
    """The class of a finding's rule."""
    if not issubclass(finding.rule, Rule):
        raise TypeError(f"{finding.rule.__name__} is not a Rule")
    return finding.rule


def rule_of(finding: Finding) -> Rule:
    """The rule of a finding, to ask it about fixes."""
    return class_of(finding)()
