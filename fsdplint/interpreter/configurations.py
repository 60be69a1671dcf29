"""Configurations: the decisions of the conditions that depend on the environment of a program.

One run of the interpreter follows one configuration. `fsdplint.interpreter.search` chooses the
configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import libcst as cst

from fsdplint.interpreter.values import Condition
from fsdplint.trace.decided_tests import DecidedTest

Choice = tuple[str, bool]  # a condition's key, and how it is decided

# Tests of a text, by the relation of their condition: each gets the text and the operand.
TEXT_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "contains": lambda text, part: part in text,
    "startswith": str.startswith,
    "endswith": str.endswith,
}

# Keys that say whether the machine has accelerators. The machines for which a program is written
# have them, so a run decides otherwise only if that is its target.
_OF_ACCELERATORS = {"torch.cuda.is_available()", "torch.accelerator.is_available()"}


class Question(NamedTuple):
    """A condition that a run reached for the first time.

    Attributes:
        prefer: the value of its key with which the program continues.
        leaving: see `Decisions`.
        answer: how its key was decided.
        under: the keys because of which the run came to it.
    """

    condition: Condition
    prefer: bool
    leaving: bool
    answer: bool
    under: tuple[str, ...] = ()


class BranchTaken(NamedTuple):
    """A branch that a run came to.

    Attributes:
        holds: whether its test was true.
        keys: the keys that decided it, in order.
        goals: the outcomes of its test with which the contract's API is reached.
        under: the keys because of which the run came to it.
        skipped: the code of the other side, if calls in it may lead to the contract's API.
        left_out: the code of the other side that the run left out, if a goal is there.
    """

    holds: bool
    keys: tuple[str, ...]
    goals: frozenset[bool]
    under: tuple[str, ...] = ()
    skipped: tuple[cst.CSTNode, ...] = ()
    left_out: tuple[cst.CSTNode, ...] = ()


@dataclass
class Decisions:
    """The decisions of one run.

    Attributes:
        base: the decision of conditions that are not `forced` (True: the preferred one).
        forced: conditions that are decided in advance, with the values of their keys.
        preferred: how keys are decided, before the base is used, where the program continues with
            either value.
        going_on: how keys are decided because of which an earlier run left a function.
        fixed: keys for which `preferred` holds also where the program leaves a function with it.
        places: the nodes of the tests of each key.
        branches: how the run took each branch with goals, by its node.
        left_by: for each time that this run left a function early, the keys because of which it
            did, without those that are forced.
        single_rank: the program runs on a single rank, and without a launcher.
        world_size_tests: the tests of the number of ranks, or of the launcher, that were decided.
        leaving: the current condition chooses between continuing and leaving the function; then
            both bases continue, and only a forced decision leaves.
        values_by_key: every decision, by key.
        conditions: the conditions decided, by key.
        relevant: the keys that the FSDP contract depends on.
        urgent: the relevant keys that choose between FSDP code and other code; they are tried
            first, since the number of runs is bounded.
        shards: a model was wrapped or sharded.
        sharding: the keys under which a model was wrapped or sharded.
        of_options: the keys that decided the options with which a model was wrapped or sharded, or
            which of its parts were.
        questions: the conditions in the order of the run, by key.
        tested_keys: the keys of all tests in the order of the run.
        usual: each setting has its default, but for those that shard a model.
        by_default: how keys are decided whose subject has its default, as far as it is known.
    """

    base: bool = True
    forced: tuple[tuple[Condition, bool], ...] = ()
    preferred: Mapping[str, bool] = field(default_factory=dict)
    going_on: Mapping[str, bool] = field(default_factory=dict)
    fixed: Set[str] = frozenset()
    single_rank: bool = False
    world_size_tests: set[object] = field(default_factory=set)
    leaving: bool = False
    values_by_key: dict[str, bool] = field(default_factory=dict)
    conditions: dict[str, Condition] = field(default_factory=dict)
    relevant: set[str] = field(default_factory=set)
    urgent: set[str] = field(default_factory=set)
    places: dict[str, set[object]] = field(default_factory=dict)
    branches: dict[object, list[BranchTaken]] = field(default_factory=dict)
    left_by: dict[tuple[str, ...], None] = field(default_factory=dict)
    shards: bool = False
    sharding: set[str] = field(default_factory=set)
    of_options: set[str] = field(default_factory=set)
    questions: dict[str, Question] = field(default_factory=dict)
    tested_keys: list[str] = field(default_factory=list)
    by_default: dict[str, bool] = field(default_factory=dict)
    usual: bool = False
    _equal: dict[str, object] = field(default_factory=dict)
    _unequal: dict[str, list[object]] = field(default_factory=dict)
    _none: dict[str, bool] = field(default_factory=dict)
    _members: dict[str, list[tuple[tuple[object, ...], bool]]] = field(default_factory=dict)
    _parts: dict[str, list[Condition]] = field(default_factory=dict)  # tests of a part of a text
    _lower_bounds: dict[str, int] = field(default_factory=dict)  # it is greater than this
    _upper_bounds: dict[str, int] = field(default_factory=dict)
    _read_from: set[str] = field(default_factory=set)  # objects whose attributes were read
    # What `get` returns for keys that a dict does not have, with the name of the dict.
    _absent: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for condition, value in self.forced:
            self._record(condition, value)

    def decide(
        self,
        condition: Condition,
        prefer: bool = True,
        place: object = None,
        under: Iterable[str] = (),
    ) -> bool:
        """Whether the condition holds in this run.

        Args:
            condition: the condition.
            prefer: the value with which the program continues, rather than returns or raises.
            place: the node of the test.
            under: the keys because of which the run comes to the test.
        """
        self.places.setdefault(condition.key, set()).add(place)
        self.tested_keys.append(condition.key)
        value = self._decide_key(condition, prefer != condition.negated, under)
        return value != condition.negated

    def _decide_key(self, condition: Condition, prefer: bool, under: Iterable[str] = ()) -> bool:
        known = self.values_by_key.get(condition.key)
        if known is not None and condition.key in self.questions:
            return known
        value = self.infer(condition) if known is None else known
        if value is None:
            value = self._choose(condition.key, prefer)
        if known is None:
            self._record(condition, value)
        self.questions[condition.key] = Question(
            condition, prefer, self.leaving, value, tuple(under)
        )
        return value

    def _choose(self, key: str, prefer: bool) -> bool:
        """The value of a key that nothing decides yet."""
        if key in self.fixed:
            return self.preferred[key]
        if key in self.going_on:
            return self.going_on[key]
        if key in _OF_ACCELERATORS:
            return True
        if self.leaving:
            return prefer
        return self.preferred.get(key, prefer if self.base else not prefer)

    def tests(self) -> dict[str, DecidedTest]:
        """The test of each key that was decided."""
        return {
            key: DecidedTest(one.text, one.negated, one.subject, one.relation, one.operand)
            for key, one in self.conditions.items()
        }

    def note_branch(self, node: object, taken: BranchTaken) -> None:
        """The run takes a branch with goals."""
        known = self.branches.setdefault(node, [])
        if not any(taken[:3] == one[:3] for one in known):
            known.append(taken)

    def note_leaving(self, keys: Iterable[str]) -> None:
        """The run leaves a function early, which the program does not prefer, since these keys had
        been decided before."""
        forced = {condition.key for condition, _ in self.forced}
        free = tuple(key for key in keys if key not in forced)
        if free:
            self.left_by.setdefault(free, None)

    def repeat(self, earlier: Decisions) -> bool:
        """Whether a run with these decisions would repeat an earlier run: each answer is the same.

        If so, they take the state that they would have at its end.
        """
        made = Decisions(self.base, self.forced, self.preferred, self.going_on, self.fixed)
        made._read_from = earlier._read_from
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
        self.sharding, self.branches = set(earlier.sharding), earlier.branches
        self.of_options = set(earlier.of_options)
        self.places, self.shards = earlier.places, earlier.shards
        self.world_size_tests = earlier.world_size_tests
        return True

    def _record(self, condition: Condition, value: bool) -> None:
        self.values_by_key[condition.key] = value
        self.conditions[condition.key] = condition
        self._note_values(condition)
        if condition.relation == "==":
            if value:
                self._equal[condition.subject] = condition.operand
            else:
                self._unequal.setdefault(condition.subject, []).append(condition.operand)
        if condition.relation == ">":
            bounds, choose = (self._lower_bounds, max) if value else (self._upper_bounds, min)
            known = bounds.get(condition.subject, condition.operand)
            bounds[condition.subject] = choose(known, condition.operand)
        if condition.relation == "in":
            self._members.setdefault(condition.subject, []).append((condition.operand, value))
        if condition.relation in TEXT_TESTS:
            self._parts.setdefault(condition.subject, []).append(condition)
        if condition.relation == "contains" and not value:
            self._absent[_got(condition)] = condition.subject
        if condition.relation == "is None":
            self._none[condition.subject] = value
        if condition.relation == "truth" and value:
            self._none[condition.subject] = False

    def note_read(self, subject: str) -> None:
        """An attribute of an object is read, so that the object is not None from here on."""
        if not self._none.get(subject):
            self._read_from.add(subject)

    def forget_absent(self, container: str) -> None:
        """A dict may get new keys."""
        for got in [got for got, one in self._absent.items() if one == container]:
            del self._absent[got]

    def _note_values(self, condition: Condition) -> None:
        """Note the values that the subject can have at all."""
        known = self._members.setdefault(condition.subject, []) if condition.among else []
        if condition.among and (condition.among, True) not in known:
            known.append((condition.among, True))

    def infer(self, condition: Condition) -> bool | None:
        """The value that earlier decisions about the same subject imply; None if they do not."""
        subject = condition.subject
        if not subject:
            return None
        self._note_values(condition)
        if subject in self._absent:
            return outcome(condition, None)
        if condition.relation == "contains":
            got = _got(condition)
            if self._none.get(got) is False or self._equal.get(got) is not None:
                return True
        possible = self._possible_values(subject)
        if possible is not None:
            outcomes = {outcome(condition, one) for one in possible}
            if len(outcomes) == 1 and None not in outcomes:
                return outcomes.pop()
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
            if not self._has_parts(subject, condition.operand):
                return False
            if any(
                (condition.operand in choices) is not among
                for choices, among in self._members.get(subject, ())
                if among or condition.operand in choices
            ):
                return False
        if condition.relation == "in":
            return self._is_member(subject, condition.operand)
        if condition.relation == ">":
            equal = self._equal.get(subject)
            if isinstance(equal, int):
                return equal > condition.operand
            if self._lower_bounds.get(subject, condition.operand - 1) >= condition.operand:
                return True
            if self._upper_bounds.get(subject, condition.operand + 1) <= condition.operand:
                return False
        if condition.relation in TEXT_TESTS and subject in self._equal:
            return outcome(condition, self._equal[subject])
        if condition.relation == "truth":
            if self._none.get(subject):
                return False
            if subject in self._equal:
                return bool(self._equal[subject])
        if condition.relation == "is None":
            if subject in self._equal:
                return self._equal[subject] is None
            if truth or subject in self._read_from:
                return False
        return None

    def _possible_values(self, subject: str) -> list[object] | None:
        """The values that a subject can still have; None if they are not known."""
        lists = [known for known, among in self._members.get(subject, ()) if among]
        if not lists:
            return None
        excluded = list(self._unequal.get(subject, ()))
        for known, among in self._members[subject]:
            excluded += () if among else known
        listed = [one for one in lists[0] if all(one in known for known in lists)]
        return [one for one in listed if one not in excluded] or None

    def _is_member(self, subject: str, choices: tuple[object, ...]) -> bool | None:
        """Whether a value is among some constants, by what is known of it."""
        if subject in self._equal:
            return self._equal[subject] in choices
        for known, among in self._members.get(subject, ()):
            if among and not any(one in known for one in choices):
                return False
            if among and all(one in choices for one in known):
                return True
            if not among and all(one in known for one in choices):
                return False
        return None

    def _has_parts(self, subject: str, text: object) -> bool:
        """Whether a text agrees with what was decided about the parts of the subject."""
        return all(
            outcome(test, text) in (None, self.values_by_key[test.key])
            for test in self._parts.get(subject, ())
        )

    def _within_bounds(self, subject: str, number: object) -> bool:
        if not isinstance(number, int):
            return True
        return (
            self._lower_bounds.get(subject, number - 1)
            < number
            <= self._upper_bounds.get(subject, number)
        )


def _got(condition: Condition) -> str:
    """What `get` returns for the key whose presence a condition tests."""
    return f"{condition.subject}.get({condition.operand!r})"


def outcome(condition: Condition, value: object) -> bool | None:
    """Whether a condition holds for a value of its subject; None if it depends on more."""
    if condition.relation == "==":
        return value == condition.operand
    if condition.relation == "in":
        return value in condition.operand
    if condition.relation == "is None":
        return value is None
    if condition.relation == "truth":
        return bool(value)
    if condition.relation in TEXT_TESTS:
        test = TEXT_TESTS[condition.relation]
        return test(value, condition.operand) if isinstance(value, str) else None
    if condition.relation == ">" and isinstance(value, int | float):
        return value > condition.operand
    return None
