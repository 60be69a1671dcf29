"""Comments that turn nothing off, and how they are taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import TYPE_CHECKING

from fsdplint.diagnostics.codes import UnknownRuleError, resolve
from fsdplint.diagnostics.finding import Edit, Finding, Fix, Safety
from fsdplint.diagnostics.suppressions import EVERY, Directive, Suppressions, is_own
from fsdplint.registry.meta_rules import META_RULES, UnusedSuppression
from fsdplint.registry.rules import all_rules
from fsdplint.syntax.layout import PRAGMA
from fsdplint.trace import FixedSite, Location

if TYPE_CHECKING:
    from fsdplint.source.source import Source

_BETWEEN = " \t\f\r,;:-\u2013\u2014"  # between a directive and the reason for it
Used = Set[tuple[Directive, str]]


def unused_suppressions(
    source: Source, comments: Suppressions, used: Used, enabled: Callable[[str], bool]
) -> Iterator[Finding]:
    """The findings about the comments of a file.

    Args:
        source: the file.
        comments: its comments.
        used: what turned something off: comments, each with its selector.
        enabled: whether a rule, given by its code, is on in the file.
    """
    for directive in comments.directives:
        if directive.kind == "enable":
            idle = tuple(
                one for one in directive.selectors if (directive, one) in comments.unmatched
            )
            reason = "ends nothing"
        else:
            idle = tuple(
                one
                for one in directive.selectors
                if (directive, one) not in used and _can_be_judged(directive, one, enabled)
            )
            reason = "turns nothing off"
        if idle:
            yield _finding(source, directive, idle, reason)


def _can_be_judged(directive: Directive, selector: str, enabled: Callable[[str], bool]) -> bool:
    """Whether all rules that a selector means were checked."""
    if not is_own(directive, selector):
        return False
    try:
        prefix = resolve(selector or "ALL")
    except UnknownRuleError:
        return False  # there is a warning already
    if any(rule.code.startswith(prefix) for rule in META_RULES) and selector != EVERY:
        return False
    matching = [rule for rule in all_rules() if rule.code.startswith(prefix)]
    if selector == EVERY:
        matching = [rule for rule in matching if not rule.runtime_only]
    return all(enabled(rule.code) and not rule.runtime_only for rule in matching)


def _finding(source: Source, directive: Directive, idle: tuple[str, ...], reason: str) -> Finding:
    names = " and ".join(f"`{one}`" for one in idle) if idle != (EVERY,) else "the comment"
    verb = reason if len(idle) == 1 else reason.replace("turns", "turn").replace("ends", "end")
    line, column = source.position(directive.start)
    end = len(source.text[: directive.end].rstrip())
    end_line, end_column = source.position(end)
    return Finding(
        rule=UnusedSuppression,
        site=FixedSite(Location(source.path, line, column, end_line, end_column)),
        message=f"{names} {verb} here",
        help="Remove it.",
        fix=Fix("Remove it", Safety.SAFE, (_removal(source, directive, idle),)),
    )


def _removal(source: Source, directive: Directive, idle: tuple[str, ...]) -> Edit:
    remaining = [one for one in directive.selectors if one not in idle]
    if remaining and directive.codes is not None:
        return Edit(source.path, *directive.codes, ", ".join(remaining))
    text = source.text
    start, end = directive.start, directive.end
    words = text[directive.words : end].strip(_BETWEEN)
    if words and not PRAGMA.match(f"# {words}"):
        return Edit(source.path, start, text.index(words, directive.words), "# ")
    line_start = source.line_start(start)
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    before, after = text[line_start:start], text[end:line_end]
    if after.strip():  # another comment follows
        return Edit(source.path, start, end, "")
    if before.strip():
        return Edit(
            source.path, line_start + len(before.rstrip()), end + len(after.rstrip("\r")), ""
        )
    if text[:line_start].rstrip("\r\n").endswith("\\"):  # the line ends the statement before it
        return Edit(source.path, line_start, end + len(after.rstrip("\r")), "")
    return Edit(source.path, line_start, min(line_end + 1, len(text)), "")
