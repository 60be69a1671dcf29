"""What two programs do, run by run and entry by entry: facts that agree, differ or are unknown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsdplint.comparison.compare import (
    ABSENT,
    Compared,
    Configuration,
    Outcome,
    compare,
    without_untried,
)
from fsdplint.comparison.compare import configurations as configurations_of
from fsdplint.engine.unseen_calls import unseen_calls, without_unseen
from fsdplint.interpreter import Program
from fsdplint.syntax.api_sites import SiteKind
from fsdplint.syntax.qualified_names import symbols_in
from fsdplint.trace import Escaped, Trace

ALONE = "/"  # the entry of functions that no program calls
Entries = Mapping[str, Sequence[Trace]]


@dataclass(frozen=True)
class Half:
    """One of two programs that are compared.

    Attributes:
        program: what the interpreter made of it. Its traces have arguments.
        key: gives the name of a file that it shares with its counterpart.
    """

    program: Program
    key: Callable[[str], str] = str

    def entries(self) -> Entries:
        """The traces of each program that shards, by its file.

        Functions on their own are an entry only where no whole program shards.
        """
        found: dict[str, list[Trace]] = {}
        for trace in self.program.traces:
            if trace.shardings():
                name = ALONE if trace.entry is None else self.key(trace.entry)
                found.setdefault(name, []).append(trace)
        whole = {name: traces for name, traces in found.items() if name != ALONE}
        return whole or found


def compared_facts(
    before: Half, after: Half, outcomes: Container[Outcome] = frozenset(Outcome)
) -> Iterator[Compared]:
    """The facts, with one of some outcomes, of all programs that shard before."""
    others = after.entries()
    for name, traces in before.entries().items():
        yield from _of_entry(name, traces, others, before, after, outcomes)


def _of_entry(
    name: str,
    traces: Sequence[Trace],
    others: Entries,
    before: Half,
    after: Half,
    outcomes: Container[Outcome],
) -> Sequence[Compared]:
    runs = configurations_of(traces)
    if name not in others and len(others) == 1:
        (partner,) = others.values()
    else:
        partner = others.get(name, ())
    if not partner:
        return [_compare_unsharded(name, traces, runs, before, after)]
    if partner is traces or [*partner] == [*traces]:
        return []  # the run of an entry whose files are the same is not repeated
    facts = compare(runs, configurations_of(partner), outcomes)
    if before.program.cut_short or after.program.cut_short:
        facts = without_untried(facts)
    if not any(one.outcome is Outcome.DIFFERS for one in facts):
        return facts
    unseen = unseen_calls(before.program, traces), unseen_calls(after.program, partner)
    return without_unseen(facts, *unseen)


def _compare_unsharded(
    name: str, traces: Sequence[Trace], runs: Sequence[Configuration], before: Half, after: Half
) -> Compared:
    """A program that shards before, and of which no run shards after.

    That is not certain where the program after has code out of sight that may shard.
    """
    first = next(fact for run in runs for facts in run.plan.facts.values() for fact in facts)
    others = [
        trace
        for trace in after.program.traces
        if trace.entry is not None and after.key(trace.entry) == name
    ]
    reached = bool(others) and all(trace.complete for trace in others)
    hidden = (
        _escapes(after.program, others) - _escapes(before.program, traces)
        or _library_names(after.program) - _library_names(before.program)
        or unseen_calls(after.program, others).get(SiteKind.SHARDING)
    )
    outcome = Outcome.DIFFERS if reached and not hidden else Outcome.NOT_FOLLOWED
    reason = "" if outcome is Outcome.DIFFERS else "no run of the program after shards a model"
    return Compared("sharding", name.strip("/"), outcome, "done", ABSENT, first.at, None, reason)


def _escapes(program: Program, traces: Sequence[Trace]) -> set[str]:
    """The lines that hand a module to code out of sight."""
    places = {event.site.location() for trace in traces for event in trace.of(Escaped)}
    return {program.sources[at.path].line(at.line).strip() for at in places}


def _library_names(program: Program) -> set[str]:
    """The names of libraries, without torch and Python's own, that the files use.

    A library that is new in a program may shard models out of sight. The names in the text suffice:
    they include those in code that no run reached, and they only make a fact unknown.
    """
    names = {one for source in program.sources.values() for one in symbols_in(source).values()}
    known = {"torch", *sys.stdlib_module_names}
    return {one for one in names if one.partition(".")[0] not in known}
