"""Configurations: the decisions of the conditions that depend on the environment of a program.

One run of the interpreter follows one configuration. The first run takes every branch with which
the program continues, the second run none. Further runs decide each relevant condition the other
way, against both. So every pair of conditions occurs in all four combinations, at linear cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fsdplint.interpreter.values import Condition
from fsdplint.source.fsdp_words import names_strategy

MAX_RUNS = 40


def _key_order(key: str) -> tuple[bool, str]:
    """The order of keys: keys whose name means the choice of a parallelism strategy come first."""
    return not names_strategy(key), key


class Question(NamedTuple):
    """A condition that a run reached for the first time.

    Attributes:
        prefer: the value of its key with which the program continues.
        leaving: see `Decisions`.
        answer: how its key was decided.
    """

    condition: Condition
    prefer: bool
    leaving: bool
    answer: bool


@dataclass
class Decisions:
    """The decisions of one run.

    Attributes:
        base: the decision of conditions that are not `forced` (True: the preferred one).
        forced: conditions that are decided in advance, with the values of their keys.
        single_rank: the program runs on a single rank, and without a launcher.
        world_size_tested: a test of the number of ranks, or of the launcher, was decided.
        leaving: the current condition chooses between continuing and leaving the function; then
            both bases continue, and only a forced decision leaves.
        values_by_key: every decision, by key.
        conditions: the conditions decided, by key.
        relevant: the keys that the FSDP contract depends on.
        urgent: the relevant keys that choose between FSDP code and other code; they are tried
            first, since the number of runs is bounded.
        questions: the conditions in the order of the run, by key.
    """

    base: bool = True
    forced: tuple[tuple[Condition, bool], ...] = ()
    single_rank: bool = False
    world_size_tested: bool = False
    leaving: bool = False
    values_by_key: dict[str, bool] = field(default_factory=dict)
    conditions: dict[str, Condition] = field(default_factory=dict)
    relevant: set[str] = field(default_factory=set)
    urgent: set[str] = field(default_factory=set)
    questions: dict[str, Question] = field(default_factory=dict)
    _equal: dict[str, object] = field(default_factory=dict)
    _none: dict[str, bool] = field(default_factory=dict)
    _lower_bounds: dict[str, int] = field(default_factory=dict)  # it is greater than this
    _upper_bounds: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for condition, value in self.forced:
            self._record(condition, value)

    def decide(self, condition: Condition, prefer: bool = True) -> bool:
        """Whether the condition holds in this run.

        prefer: the value with which the program continues, rather than returns or raises.
        """
        value = self._decide_key(condition, prefer != condition.negated)
        return value != condition.negated

    def _decide_key(self, condition: Condition, prefer: bool) -> bool:
        known = self.values_by_key.get(condition.key)
        if known is not None and condition.key in self.questions:
            return known
        value = self._infer(condition) if known is None else known
        if value is None:
            value = prefer if self.base or self.leaving else not prefer
        if known is None:
            self._record(condition, value)
        self.questions[condition.key] = Question(condition, prefer, self.leaving, value)
        return value

    def repeat(self, earlier: Decisions) -> bool:
        """Whether a run with these decisions would repeat an earlier run: each answer is the same.

        If so, they take the state that they would have at its end.
        """
        made = Decisions(self.base, self.forced)
        for question in earlier.questions.values():
            made.leaving = question.leaving
            if made._decide_key(question.condition, question.prefer) != question.answer:
                return False
        self.values_by_key, self.conditions, self.questions = (
            made.values_by_key,
            made.conditions,
            made.questions,
        )
        self.relevant, self.urgent = set(earlier.relevant), set(earlier.urgent)
        self.world_size_tested = earlier.world_size_tested
        return True

    def _record(self, condition: Condition, value: bool) -> None:
        self.values_by_key[condition.key] = value
        self.conditions[condition.key] = condition
        if condition.relation == "==" and value:
            self._equal[condition.subject] = condition.operand
        if condition.relation == ">":
            bounds, choose = (self._lower_bounds, max) if value else (self._upper_bounds, min)
            known = bounds.get(condition.subject, condition.operand)
            bounds[condition.subject] = choose(known, condition.operand)
        if condition.relation == "is None":
            self._none[condition.subject] = value
        if condition.relation == "truth" and value:
            self._none[condition.subject] = False

    def _infer(self, condition: Condition) -> bool | None:
        """The value that earlier decisions about the same subject imply; None if they do not."""
        subject = condition.subject
        if not subject:
            return None
        truth = self.values_by_key.get(subject)
        if condition.relation == "==":
            if subject in self._equal:
                return self._equal[subject] == condition.operand
            if self._none.get(subject):
                return condition.operand is None
            if truth is not None and truth != bool(condition.operand):
                return False
            if not self._within_bounds(subject, condition.operand):
                return False
        if condition.relation == ">":
            equal = self._equal.get(subject)
            if isinstance(equal, int):
                return equal > condition.operand
            if self._lower_bounds.get(subject, condition.operand - 1) >= condition.operand:
                return True
            if self._upper_bounds.get(subject, condition.operand + 1) <= condition.operand:
                return False
        if condition.relation == "truth":
            if self._none.get(subject):
                return False
            if subject in self._equal:
                return bool(self._equal[subject])
        if condition.relation == "is None":
            if subject in self._equal:
                return self._equal[subject] is None
            if truth:
                return False
        return None

    def _within_bounds(self, subject: str, number: object) -> bool:
        if not isinstance(number, int):
            return True
        return (
            self._lower_bounds.get(subject, number - 1)
            < number
            <= self._upper_bounds.get(subject, number)
        )


@dataclass
class Exploration:
    """Plans the runs, given the conditions that earlier runs reached."""

    max_runs: int = MAX_RUNS
    untried: int = 0  # configurations beyond `max_runs`
    _known: set[frozenset[tuple[str, bool]]] = field(default_factory=set)

    def runs(self) -> Iterator[Decisions]:
        """The decisions to run with; the caller runs each before asking for the next."""
        queue: list[tuple[bool, tuple[tuple[Condition, bool], ...]]] = [(True, ()), (False, ())]
        planned: set[tuple[bool, frozenset[tuple[str, bool]]]] = set()
        base_keys: dict[bool, set[str]] = {}
        for _ in range(self.max_runs):
            if not queue:
                return
            base, forced = queue.pop(0)
            decisions = Decisions(base, forced)
            yield decisions
            if not decisions.values_by_key:
                return
            if not forced:
                base_keys[base] = set(decisions.values_by_key)
            first = sum(1 for entry in queue if not entry[1])  # the two bases come before all
            for key in sorted(decisions.relevant & decisions.values_by_key.keys(), key=_key_order):
                turned = (decisions.conditions[key], not decisions.values_by_key[key])
                candidates: list[tuple[bool, tuple[tuple[Condition, bool], ...]]] = [
                    (other, (turned,)) for other in (base, not base)
                ]
                if len(forced) == 1 and key not in base_keys.get(base, {key}):
                    # only reached after the first forced decision
                    candidates.append((base, (*forced, turned)))
                for candidate in candidates:
                    name = (
                        candidate[0],
                        frozenset((condition.key, value) for condition, value in candidate[1]),
                    )
                    if name in planned:
                        continue
                    planned.add(name)
                    if key in decisions.urgent:
                        queue.insert(first, candidate)
                        first += 1
                    else:
                        queue.append(candidate)
        self.untried = len(queue)

    def is_new(self, decisions: Decisions) -> bool:
        """Whether this run differs from earlier ones in a relevant decision."""
        made = frozenset(
            (k, v) for k, v in decisions.values_by_key.items() if k in decisions.relevant
        )
        if made in self._known:
            return False
        self._known.add(made)
        return True
