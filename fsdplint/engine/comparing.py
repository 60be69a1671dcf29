"""A migration that somebody made, compared with the program that it migrates."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fsdplint.comparison.compare import ABSENT, Compared, Configuration, Outcome, compare
from fsdplint.comparison.compare import configurations as configurations_of
from fsdplint.comparison.leftovers import changed_lines, fsdp1_uses
from fsdplint.comparison.result import Result
from fsdplint.config.command_line import CommandLine
from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.engine.check import check
from fsdplint.engine.session import Session
from fsdplint.engine.unseen_calls import unseen_calls, without_unseen
from fsdplint.engine.workspace import Effort
from fsdplint.interpreter import Program, load
from fsdplint.registry.rules import all_rules
from fsdplint.source.source import Source
from fsdplint.trace import Location, Trace

# Code with these words is about sharding; facts, rules and leftover names judge it.
_WORDS = re.compile(r"FSDP|fsdp|shard|StateDict|MixedPrecision|mesh|[gs]et_\w*state_dict")


@dataclass
class Side:
    """One of the two programs.

    Attributes:
        root: the file or folder.
        label: how the root is called in reports; empty for its path.
        program: what the interpreter made of it.
        found: the findings in it.
        problems: what could not be read.
    """

    root: Path
    label: str
    program: Program
    found: list[Finding]
    problems: list[str]

    def key(self, path: str) -> str:
        """The name of a file that it shares with its counterpart."""
        if self.root.is_file():
            same = os.path.realpath(path) == os.path.realpath(self.root)
            return "" if same else os.path.relpath(path, self.root.parent)
        return os.path.relpath(path, self.root)

    def shown(self, path: str) -> str | None:
        """The path for reports; None for a file of the other program."""
        if not self.label:
            return None
        relative = os.path.relpath(path, self.root)
        return None if relative.startswith(os.pardir) else f"{self.label}:{relative}"


def side(root: Path, paths: Iterable[Path] = (), label: str = "") -> Side:
    """Read and interpret a program.

    Args:
        root: a file or folder.
        paths: the files and folders in it that are compared; by default all.
        label: how the root is called in reports; empty for its path.

    Raises:
        SettingsError: the settings are wrong.
    """
    session = Session([*paths] or [root], CommandLine(no_baseline=True))
    files = [path for path in session.paths if path.suffix == ".py"]
    program = load(files, max_bytes=session.settings.max_file_size, with_arguments=True)
    rules = [rule() for rule in all_rules() if rule.plugin is None]
    found = check(program, rules, session.options_of(files), Effort(fixes=False))
    problems = [f"{one.path}: {one.message}" for one in (*session.problems, *program.problems)]
    return Side(root, label, program, found, problems)


def compare_sides(before: Side, after: Side) -> Result:
    """What a migration keeps and what it changes."""

    def shown(path: str) -> str:
        return before.shown(path) or after.shown(path) or path

    result = Result(shown=shown)
    problems = [*before.problems, *after.problems]
    if not any(trace.shardings() for trace in before.program.traces):
        result.errors = [*problems, "no run of the program before shards a model"]
        return result
    result.facts += [
        Compared("file", "", Outcome.NOT_FOLLOWED, ABSENT, ABSENT, reason=one) for one in problems
    ]
    for name, runs in _entries(before).items():
        result.facts += _compared(name, runs, _entries(after), before, after)
    places = {at for one in result.facts for at in (one.before_at, one.after_at) if at is not None}
    result.facts += _new_findings(before, after)
    result.facts += _leftovers(before, after)
    result.facts += _changes(before, after, places)
    return result


# Programs ----------------------------------------------------------------------------------------


def _entries(one: Side) -> dict[str, list[Trace]]:
    """The traces of each program that shards, by its file; "" for functions on their own."""
    found: dict[str, list[Trace]] = {}
    for trace in one.program.traces:
        if trace.shardings():
            found.setdefault("/" if trace.entry is None else one.key(trace.entry), []).append(trace)
    whole = {name: traces for name, traces in found.items() if name != "/"}
    return whole or found


def _compared(
    name: str, traces: list[Trace], others: dict[str, list[Trace]], before: Side, after: Side
) -> list[Compared]:
    runs = configurations_of(traces)
    if name not in others and len(others) == 1:
        (partner,) = others.values()
    else:
        partner = others.get(name, [])
    if not partner:
        return [_unsharded(name, traces, runs, after)]
    facts = compare(runs, configurations_of(partner))
    unseen = unseen_calls(before.program, traces), unseen_calls(after.program, partner)
    return without_unseen(facts, *unseen)


def _unsharded(name: str, traces: list[Trace], runs: list[Configuration], after: Side) -> Compared:
    """A program that shards before, and of which no run shards after."""
    first = next(fact for run in runs for facts in run.plan.facts.values() for fact in facts)
    reached = any(
        trace.entry is not None and after.key(trace.entry) == name and trace.complete
        for trace in after.program.traces
    )
    outcome = Outcome.DIFFERS if reached else Outcome.NOT_FOLLOWED
    reason = "" if reached else "no run of the program after shards a model"
    return Compared("sharding", name.strip("/"), outcome, "done", ABSENT, first.at, None, reason)


# Rules and leftovers -----------------------------------------------------------------------------


def _new_findings(before: Side, after: Side) -> Iterator[Compared]:
    """The errors that the rules find after and not before, but for uses of FSDP1."""
    known = Counter(one.rule.code for one in before.found)
    messages = {(one.rule.code, one.message) for one in before.found}
    errors = [
        one
        for one in after.found
        if one.rule.severity is Severity.ERROR and not one.rule.code.startswith("FSDP2")
    ]
    counts = Counter(one.rule.code for one in errors)
    for one in errors:
        code = one.rule.code
        if counts[code] > known[code] and (code, one.message) not in messages:
            at = one.site.location()
            yield Compared("rule", code, Outcome.DIFFERS, "no finding", one.message, None, at)


def _sources(one: Side) -> dict[str, Source]:
    return {one.key(path): source for path, source in one.program.sources.items()}


def _leftovers(before: Side, after: Side) -> Iterator[Compared]:
    """The uses of FSDP1 in the files that the migration changed."""
    old = _sources(before)
    for key, source in _sources(after).items():
        if key in old and old[key].text == source.text:
            continue
        for name, at in fsdp1_uses(source):
            yield Compared("FSDP1 is left", name, Outcome.DIFFERS, ABSENT, "used", None, at)


def _changes(before: Side, after: Side, places: set[Location]) -> Iterator[Compared]:
    """The changed code that nothing here judges."""
    old = _sources(before)
    for key, source in _sources(after).items():
        if key not in old:
            continue
        for one in changed_lines(old[key], source, places, _WORDS):
            texts = _excerpt(old[key], one.before), _excerpt(source, one.after)
            if one.in_numbers:
                yield Compared("number", "", Outcome.DIFFERS, *texts, one.before, one.after)
                continue
            reason = "no fact is about it"
            outcome = Outcome.NOT_FOLLOWED
            yield Compared("changed code", "", outcome, *texts, one.before, one.after, reason)


def _excerpt(source: Source, at: Location | None) -> str:
    """The first of some lines."""
    if at is None:
        return ABSENT
    more = " ..." if at.end_line > at.line else ""
    return f"`{source.line(at.line).strip()}`{more}"
