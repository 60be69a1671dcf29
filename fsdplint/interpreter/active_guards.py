"""The guards of a run: the tests under which it executes code, and the decisions that led there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from fsdplint.interpreter.configurations import Decisions
from fsdplint.interpreter.frames import ENDED, Frame, GuardEntry
from fsdplint.trace import Guard, GuardKind, Ranks
from fsdplint.trace.predicates import Predicate

NO_GUARDS = nullcontext()


class ActiveGuards:
    """The guards that are active at the current point of a run, by frame and loop."""

    def __init__(self, decisions: Decisions) -> None:
        self.decisions = decisions
        self.frames: list[Frame] = []
        self.guards: list[GuardEntry] = []
        self.facts: list[Predicate] = []  # see `note_fact`
        self.in_turn = False  # of a loop in the function that is executed
        self.deciding: list[str] = []  # keys because of which this point is executed
        self.deciding_keys: frozenset[str] | None = None  # the same as a set, once it was asked for
        self.loop_guards: list[list[GuardEntry]] = []  # active at the start of each loop

    def under_guards(self, guards: Iterable[tuple[Guard, str]]) -> AbstractContextManager[None]:
        """A context whose code is executed under these guards."""
        entries = [GuardEntry(guard, key) for guard, key in guards]
        return self._under_entries(entries) if entries else NO_GUARDS

    @contextmanager
    def _under_entries(self, entries: Sequence[GuardEntry]) -> Iterator[None]:
        self.guards.extend(entries)
        try:
            yield
        finally:
            for entry in entries:
                self.guards = [e for e in self.guards if e is not entry]

    @contextmanager
    def without_guards(self, entries: Sequence[GuardEntry]) -> Iterator[None]:
        """A context whose code is executed also where these guards do not hold."""
        before = self.guards
        if entries:
            self.guards = [e for e in before if all(e is not one for one in entries)]
        try:
            yield
        finally:
            if entries:
                known = {id(entry) for entry in before}
                self.guards = [*before, *(e for e in self.guards if id(e) not in known)]

    def leave_guards(self, guards: Iterable[tuple[Guard, str]], until: str) -> None:
        """Keep guards until the end of the loop body or function."""
        self.guards.extend(GuardEntry(guard, key, until) for guard, key in guards)

    def note_fact(self, fact: Predicate | None) -> None:
        """Note what is known until the end of this turn of a loop, or of this function.

        Under another test, it would only be known where this test holds.
        """
        outside = self.loop_guards[-1] if self.in_turn else self.frames[-1].guards_outside
        known = {id(entry) for entry in outside}
        if fact is not None and all(id(entry) in known for entry in self.guards):
            self.facts.append(fact)

    def drop_guards(self, outer: list[GuardEntry], until: str) -> None:
        """Drop the guards that hold until the end of this turn of a loop, loop or function."""
        known = {id(entry) for entry in outer}
        ended = ENDED[until]
        self.guards = [e for e in self.guards if id(e) in known or e.until not in ended]

    def ranks(self) -> Ranks:
        """The ranks that execute this point."""
        result = Ranks.ALL
        for entry in self.guards:
            if entry.guard.kind is GuardKind.RANK:
                ranks = entry.guard.ranks
                if result is Ranks.ALL:
                    result = ranks
                elif ranks is Ranks.ONE:
                    result = Ranks.ONE
                elif result is not Ranks.ONE and ranks is not result:
                    result = Ranks.SOME
        return result

    def mark_relevant(self) -> None:
        """Mark the conditions that hold here as worth a configuration."""
        for entry in self.guards:
            if entry.guard.kind is GuardKind.CONFIG:
                self.decisions.relevant.add(entry.key)

    def keys_around(self) -> tuple[str, ...]:
        """The keys of the decisions because of which this point is executed."""
        known = self.decisions.values_by_key
        guards = (entry.key for entry in self.guards if entry.key)
        return tuple(dict.fromkeys((*guards, *(key for key in self.deciding if key in known))))

    def note_leaving(self, keys: Sequence[str] = ()) -> None:
        """The function is left early because of decisions: those of keys, and those under which
        this point is reached in it."""
        outside = {id(entry) for entry in self.frames[-1].guards_outside}
        inside = [entry.key for entry in reversed(self.guards) if id(entry) not in outside]
        self.decisions.note_leaving(filter(None, [*keys, *inside]))
