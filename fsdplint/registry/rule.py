"""The base class of the rules.

A rule is one small file in the folder `rules`: a subclass of `Rule` whose docstring is its page,
with a check over a trace and possibly a fix. Its examples are files. See `rules/README.md`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from fsdplint.diagnostics.finding import Finding, Fix, RuleInfo, configuration_of
from fsdplint.registry.examples import Bad, Good
from fsdplint.registry.refusal import Refusal
from fsdplint.trace import Event, Location, Site, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program
    from fsdplint.source.config_source import ConfigSource


class Rule(RuleInfo, ABC):
    """Base of all rules; the subclass's docstring is its page (first line: the summary).

    The page has sections ("What it does", "Why is this bad?", "Fix safety" if it fixes, "Since",
    "References"), each headed by a line `## Title`.
    """

    # Examples in the class; `examples_of` returns all examples of a rule.
    bad: ClassVar[tuple[Bad, ...]] = ()
    good: ClassVar[tuple[Good, ...]] = ()

    failure: Exception | None = None  # exception of a plug-in's rule, which then has no findings

    @abstractmethod
    def check(self, trace: Trace) -> Iterable[Finding]:
        """The findings in one trace, static or recorded."""

    def concerns(self, trace: Trace, finding: Finding) -> bool:
        """Whether a trace reaches the object of a finding of another trace.

        A finding that all configurations have to show (`all_configurations`) is not reported if
        such a trace does not show it.
        """
        kind = type(finding.events[0])
        return any(type(event) is kind and event.site == finding.site for event in trace)

    def check_config(self, config: ConfigSource) -> Iterable[Finding]:
        """The findings in a settings file (YAML or JSON)."""
        return ()

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        """A rewrite of the program's source that mends the finding, or None.

        The engine calls it only for findings in interpreted programs. Returns None if the rewrite
        may be wrong.
        """
        return None

    def incomplete(self, before: Program, after: Program, fix: Fix) -> tuple[str, Location] | None:
        """Code that a trial fix failed to change, besides the findings after it.

        Returns:
            A description of the code, and its place in the program after the fix.
        """
        return None

    def refuse(self, finding: Finding, program: Program, refusal: Refusal) -> None:
        """Record that a finding's fix is not offered because its trial failed.

        Args:
            finding: the finding; its fix is already removed.
            program: the program of the finding.
            refusal: why.
        """
        at = refusal.at
        where = "" if at is None else f", at {at.path}:{at.line}"
        finding.blocker = f"the fix is not offered: it {refusal.reason}{where}"

    def finding(
        self,
        event: Event,
        message: str,
        *,
        help: str = "",
        why: str = "",
        because: Iterable[tuple[Event, str]] = (),
        site: Site | None = None,
    ) -> Finding:
        """A finding at an event; `because` lists other events that cause it, each with a comment.

        `why` says why it is bad, where the first sentence of the page does not fit it.
        The configuration consists of the config guards of all of these events.
        """
        others = tuple(because)
        events = (event, *(other for other, _ in others))
        return Finding(
            rule=type(self),
            site=site or event.site,
            message=message,
            help=help,
            why=why,
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
    """An instance of a finding's rule, to query its fixes."""
    return class_of(finding)()
