"""A migration that somebody made, compared with the program that it migrates."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fsdplint.comparison.changed_code import changed_lines
from fsdplint.comparison.compare import ABSENT, Compared, Outcome
from fsdplint.comparison.joined_gaps import join_units
from fsdplint.comparison.remaining_uses import class_by_name, fsdp1_uses
from fsdplint.comparison.result import Result
from fsdplint.config.command_line import CommandLine
from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.engine.check import check
from fsdplint.engine.migration import MigrationRun
from fsdplint.engine.program_facts import ALONE, Half, compared_facts
from fsdplint.engine.session import Session
from fsdplint.engine.workspace import Effort
from fsdplint.interpreter import Program, load
from fsdplint.registry.rules import all_rules
from fsdplint.report.cells import in_cell
from fsdplint.source.files import PROGRAM_SUFFIXES, Problem
from fsdplint.source.source import Source
from fsdplint.trace import Location

# Code with these words is about sharding; facts, rules and leftover names judge it.
_WORDS = re.compile(r"FSDP|fsdp|shard|StateDict|MixedPrecision|mesh|[gs]et_\w*state_dict")


@dataclass
class Side:
    """One of the two programs.

    Attributes:
        root: the file or folder that is compared.
        folder: the folder that the label stands for.
        label: how the folder is called in reports; empty for its path.
        program: what the interpreter made of it.
        found: the findings in it.
        problems: what could not be read.
    """

    root: Path
    folder: Path
    label: str
    program: Program
    found: list[Finding]
    problems: list[Problem]

    def key(self, path: str) -> str:
        """The name of a file that it shares with its counterpart."""
        if self.root.is_file():
            same = os.path.realpath(path) == os.path.realpath(self.root)
            return "" if same else os.path.relpath(path, self.root.parent)
        return os.path.relpath(path, self.root)

    @property
    def half(self) -> Half:
        """The program, with the names that its files share with their counterparts."""
        return Half(self.program, self.key)

    @cached_property
    def migrated(self) -> dict[str, str]:
        """The texts that the migration of fsdplint makes of the files, by their keys.

        It is made once for all programs that this one is compared with.
        """
        contents = MigrationRun([self.root], project=True).migrate(fix=True).contents
        return {
            self.key(str(path)): new.decode("utf-8", "replace")
            for path, (_, new) in contents.items()
        }

    def displayed_path(self, path: str) -> str | None:
        """The path for reports; None for a file of the other program."""
        if not self.label:
            return None
        relative = os.path.relpath(path, self.folder)
        return None if relative.startswith(os.pardir) else f"{self.label}:{relative}"


def side(
    root: Path, paths: Iterable[Path] = (), label: str = "", before: Side | None = None
) -> Side:
    """Read and interpret a program.

    Args:
        root: a file or folder.
        paths: the files and folders in it that are compared; by default all. If it is one, it has
            its counterpart in the file or folder of the other program, whatever their names are.
        label: how the root is called in reports; empty for its path.
        before: the other program; the files that it runs are read here even if they have lost all
            names of FSDP.

    Raises:
        SettingsError: the settings are wrong.
    """
    folder, inside = root, [*paths] or [root]
    if len(inside) == 1:
        root = inside[0]
    session = Session(inside, CommandLine(no_baseline=True))
    files = [path for path in session.paths if path.suffix in PROGRAM_SUFFIXES]
    if before is not None:
        files += [path for path in _counterparts(root, before) if path not in files]
    program = load(files, max_bytes=session.settings.max_file_size, with_arguments=True)
    rules = [rule() for rule in all_rules() if rule.plugin is None]
    found = check(program, rules, session.options_of(files), Effort(fixes=False))
    session.add_problems(program.problems)
    return Side(root, folder, label, program, found, session.problems)


def _counterparts(root: Path, before: Side) -> Iterator[Path]:
    """The files of a program that the other program runs to shard a model."""
    for key in before.half.entries():
        path = root / key if root.is_dir() else root
        if (root.is_dir() or not key) and key != ALONE and path.is_file():
            if path.suffix in PROGRAM_SUFFIXES:
                yield path


def compare_sides(before: Side, after: Side) -> Result:
    """What a migration keeps and what it changes."""

    def displayed_path(path: str) -> str:
        return before.displayed_path(path) or after.displayed_path(path) or path

    result = Result(shown=displayed_path)
    both = (*before.problems, *after.problems)
    problems = [f"{displayed_path(one.path)}: {one.message}" for one in both]
    broken = {after.key(one.path): one for one in after.problems}
    lost = [one for key, one in broken.items() if key in {"", *_sources(before)}]
    if not any(trace.shardings() for trace in before.program.traces):
        result.errors = [*problems, "no run of the program before shards a model"]
        return result
    if lost:
        result.errors = [f"{displayed_path(one.path)}: {one.message}" for one in lost]
        return result
    result.facts += [
        Compared("file", "", Outcome.NOT_FOLLOWED, ABSENT, ABSENT, reason=one) for one in problems
    ]
    result.facts += compared_facts(before.half, after.half)
    places = {at for one in result.facts for at in (one.before_at, one.after_at) if at is not None}
    result.facts = join_units(result.facts)
    result.facts += _new_findings(before, after)
    result.facts += _remaining_uses(before, after)
    result.facts += _changes(before, after, places)
    result.facts = [_with_cells(one, before, after) for one in result.facts]
    return result


def _with_cells(fact: Compared, before: Side, after: Side) -> Compared:
    """The fact, with its places in notebooks as places in their cells."""
    one, two = fact.before_at, fact.after_at
    return replace(
        fact,
        before_at=None if one is None else in_cell(before.program.sources, one),
        after_at=None if two is None else in_cell(after.program.sources, two),
    )


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


def _remaining_uses(before: Side, after: Side) -> Iterator[Compared]:
    """The uses of FSDP1 in the files that the migration changed."""
    old = _sources(before)
    for key, source in _sources(after).items():
        if key in old and old[key].text == source.text:
            continue
        for name, at in (*fsdp1_uses(source), *class_by_name(source)):
            yield Compared("FSDP1 is left", name, Outcome.DIFFERS, ABSENT, "used", None, at)


def _changes(before: Side, after: Side, places: set[Location]) -> Iterator[Compared]:
    """The changed code that nothing here judges, and that `fsdplint migrate` would not write."""
    old = _sources(before)
    new = {key: source for key, source in _sources(after).items() if key in old}
    if not any(any(changed_lines(old[key], one, places, _WORDS)) for key, one in new.items()):
        return
    own = before.migrated
    for key, source in new.items():
        for one in changed_lines(old[key], source, places, _WORDS, own.get(key)):
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
