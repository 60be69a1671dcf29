"""Configurations: which way each condition that the program cannot know beforehand is decided.

One run of the interpreter follows one configuration. The first run takes every branch that lets the
program go on, the second run none; then each condition that mattered is flipped on its own against
both. So every pair of conditions is seen in all four combinations at a cost that grows linearly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fsdplint.program.values import Condition

MAX_RUNS = 40


@dataclass
class Decisions:
    """The decisions of one run.

    Attributes:
        base: how conditions are decided that are not in `flipped` (True: as the program prefers).
        leaving: the condition being decided chooses between going on and leaving the function; then
            every base goes on, and only a flip leaves.
        flipped: keys decided the other way.
        made: every decision, by key.
        relevant: the keys on which something depended that the contract cares about.
    """

    base: bool = True
    flipped: frozenset[str] = frozenset()
    leaving: bool = False
    made: dict[str, bool] = field(default_factory=dict)
    relevant: set[str] = field(default_factory=set)
    _equal: dict[str, object] = field(default_factory=dict)
    _none: dict[str, bool] = field(default_factory=dict)

    def decide(self, condition: Condition, prefer: bool = True) -> bool:
        """Whether the condition holds in this run; `prefer`: the value with which the program
        goes on (rather than returns or raises)."""
        value = self._decide_key(condition, prefer != condition.negated)
        return value != condition.negated

    def _decide_key(self, condition: Condition, prefer: bool) -> bool:
        key = condition.key
        if key in self.made:
            return self.made[key]
        value = self._implied(condition)
        if value is None:
            value = prefer if self.base or self.leaving else not prefer
            if key in self.flipped:
                value = not value
        self.made[key] = value
        if condition.relation == "==" and value:
            self._equal[condition.subject] = condition.operand
        if condition.relation == "is None":
            self._none[condition.subject] = value
        if condition.relation == "truth" and value:
            self._none[condition.subject] = False
        return value

    def _implied(self, condition: Condition) -> bool | None:
        subject = condition.subject
        if condition.relation == "==":
            if subject in self._equal:
                return self._equal[subject] == condition.operand
            if self._none.get(subject):
                return condition.operand is None
        if condition.relation == "truth":
            if self._none.get(subject):
                return False
            if subject in self._equal:
                return bool(self._equal[subject])
        if condition.relation == "is None":
            if subject in self._equal:
                return self._equal[subject] is None
            if self.made.get(subject):
                return False
        return None


@dataclass
class Exploration:
    """The runs that are still to be made, given what earlier ones met."""

    max_runs: int = MAX_RUNS
    _done: set[tuple[bool, frozenset[str]]] = field(default_factory=set)
    _seen: set[frozenset[tuple[str, bool]]] = field(default_factory=set)

    def runs(self) -> Iterator[Decisions]:
        """The decisions to run with; the caller runs each before asking for the next."""
        queue: list[tuple[bool, frozenset[str]]] = [(True, frozenset()), (False, frozenset())]
        while queue and len(self._done) < self.max_runs:
            base, flipped = queue.pop(0)
            if (base, flipped) in self._done:
                continue
            self._done.add((base, flipped))
            decisions = Decisions(base, flipped)
            yield decisions
            if not decisions.made and base:
                return
            for key in sorted(decisions.relevant):
                for other in (True, False):
                    candidate = (other, frozenset({key}))
                    if candidate not in self._done and candidate not in queue:
                        queue.append(candidate)
                if len(flipped) == 1 and key not in flipped:
                    # met only behind the first flip: flip both
                    candidate = (base, flipped | {key})
                    if key not in self._base_keys.get(base, set()) and candidate not in queue:
                        queue.append(candidate)
            if not flipped:
                self._base_keys[base] = set(decisions.made)

    _base_keys: dict[bool, set[str]] = field(default_factory=dict)

    def is_new(self, decisions: Decisions) -> bool:
        """Whether this run differs from earlier ones in what mattered."""
        made = frozenset((k, v) for k, v in decisions.made.items() if k in decisions.relevant)
        if made in self._seen:
            return False
        self._seen.add(made)
        return True
