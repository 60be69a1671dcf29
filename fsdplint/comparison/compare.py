"""Two programs compared: their runs are paired by their conditions, and their plans by facts."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from fsdplint.comparison.facts import Fact, Key, Plan, same_argument
from fsdplint.comparison.module_tests import chooses_modules
from fsdplint.comparison.options import OF_STRATEGY
from fsdplint.comparison.plan import plan_of
from fsdplint.comparison.sharding import UNIT, UNKNOWN_MODEL, strategies_of
from fsdplint.comparison.states import OF_TAKEN_STATES
from fsdplint.comparison.strategies import Condition, conditions_of, config_conditions
from fsdplint.comparison.unit_classes import TOPIC as CLASSES
from fsdplint.migration.names import STRATEGIES
from fsdplint.trace import Location, Trace
from fsdplint.trace.arguments import Constant, Opaque
from fsdplint.trace.groups import shard_events

ABSENT = "nothing"
_MEMBER = re.compile(r"""["'](?:FULL|SHARDED|LOCAL)_STATE_DICT["']""")
_UNTRIED = "not all of the conditions were tried together"
NO = Constant("no")
# What a unit has. Where the unit itself is missing, that is the difference.
UNITS_HAVE = frozenset(
    {
        "reshard_after_forward",
        "mesh",
        "param_dtype",
        "reduce_dtype",
        "output_dtype",
        "buffer_dtype",
        "cast_forward_inputs",
        "offload to the CPU",
        "ignored parameters",
    }
)


class Outcome(Enum):
    """What a comparison of one fact says."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_FOLLOWED = "not followed"


@dataclass(frozen=True)
class Compared:
    """One fact in both programs.

    Attributes:
        topic, subject: what it is about.
        outcome: what the comparison says.
        before, after: the values as text.
        before_at, after_at: the places; None where a program has no such fact.
        reason: why it was not followed.
        conditions: the configuration of the program before, if it matters.
    """

    topic: str
    subject: str
    outcome: Outcome
    before: str
    after: str
    before_at: Location | None = None
    after_at: Location | None = None
    reason: str = ""
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Configuration:
    """One run of a program.

    Attributes:
        plan: its facts.
        conditions: the decisions of the run.
        strategies: those that its shardings may have.
        sharded_under: the conditions of its shardings.
    """

    plan: Plan
    conditions: frozenset[Condition]
    strategies: frozenset[str] = frozenset(STRATEGIES)
    sharded_under: frozenset[Condition] = frozenset()


def configurations(traces: Iterable[Trace]) -> list[Configuration]:
    """The runs of a program that shard; those of whole programs where there are any."""
    found = list(traces)
    sharding = [one for one in found if one.shardings()]
    whole = [one for one in sharding if one.entry is not None and one.complete]
    runs = [
        Configuration(
            plan_of(one),
            conditions_of(one),
            strategies_of(one),
            config_conditions(shard_events(one)),
        )
        for one in whole or sharding
    ]
    if any(chooses_modules(one) for one in whole or sharding):
        for run in runs:
            reason = "an unknown test chooses the modules that are sharded"
            run.plan.gaps[UNIT] = run.plan.doubts[UNIT] = reason
    return runs


# Pairs --------------------------------------------------------------------------------------------


def compare(
    before: Sequence[Configuration],
    after: Sequence[Configuration],
    outcomes: Container[Outcome] = frozenset(Outcome),
) -> list[Compared]:
    """The facts of two programs, each once, if it has one of some outcomes.

    A run is compared with the runs of the other program that have the same conditions. A
    fact differs where no such run has it.
    """
    before = [replace(one, plan=one.plan.as_intended()) for one in before]
    found: dict[Key, _Verdict] = {}
    pairs: dict[tuple[int, int], dict[Key, _Verdict]] = {}

    def of_pair(one: int, two: int) -> dict[Key, _Verdict]:
        if (one, two) not in pairs:
            pairs[one, two] = _of_runs(before[one], after[two])
        return pairs[one, two]

    for one, run in enumerate(before):
        _note(found, [of_pair(one, two) for two in _partners(run, after)])
    for two, run in enumerate(after):
        _note(found, [of_pair(one, two) for one in _partners(run, before)])
    both = _union(before), _union(after)
    unlike = _tests(before) != _tests(after)
    judged = {
        key: _verdict_if_untried(key, one, before, after)
        or _in_other_runs(key, one, *both, unlike=unlike)
        for key, one in found.items()
    }
    return [
        one.compared(key)
        for key, one in judged.items()
        if one.outcome in outcomes and not one.says_nothing
    ]


def _union(runs: Sequence[Configuration]) -> Plan:
    """The facts of all runs of a program."""
    union = Plan()
    for run in runs:
        for facts in run.plan.facts.values():
            for fact in facts:
                union.add(fact.topic, fact.subject, fact.value, fact.event)
    return union


def _tests(runs: Sequence[Configuration]) -> set[str]:
    """What the program decides about."""
    return {text for run in runs for text, _ in run.conditions}


def _verdict_if_untried(
    key: Key, verdict: _Verdict, before: Sequence[Configuration], after: Sequence[Configuration]
) -> _Verdict | None:
    """The verdict on a fact that no run of the other program can have.

    One program has it only under conditions that no run of the other has: those of the shardings
    in its runs, or several conditions of the fact itself. None for other facts, and if the other
    program does not test these conditions at all.
    """
    if verdict.outcome is not Outcome.DIFFERS or (verdict.before and verdict.after):
        return None
    own, others = (before, after) if verdict.before else (after, before)
    event = (verdict.before or verdict.after)[0].event
    runs = [run for run in own if any(one.event is event for one in run.plan.facts.get(key, ()))]
    if not runs:
        return None
    of_shardings = frozenset.intersection(*(run.sharded_under for run in runs))
    own_conditions = config_conditions([event])
    if len(own_conditions) < 2 or any(key in run.plan.facts for run in others):
        own_conditions = frozenset()  # each single condition is tried both ways
    tests = _tests(others)
    with_own_values = [run for run in others if not _has_other_member(run, _tests(own))]
    for needed, tried in ((of_shardings, others), (own_conditions, with_own_values)):
        if {text for text, _ in needed} <= tests and not any(
            needed <= run.conditions for run in tried
        ):
            return replace(verdict, outcome=Outcome.NOT_FOLLOWED, reason=_UNTRIED)
    return None


def _has_other_member(run: Configuration, tests: Container[str]) -> bool:
    """Whether a run decides about a name where the other program has a member of an enum.

    The member is a constant there, and no other value is tried.
    """
    return any(_MEMBER.search(text) and text not in tests for text, _ in run.conditions)


def without_untried(facts: Iterable[Compared]) -> list[Compared]:
    """The facts of programs that are too large to try all configurations.

    What one of them lacks under several conditions may be in a run that was not tried.
    """
    return [
        replace(one, outcome=Outcome.NOT_FOLLOWED, reason=_UNTRIED)
        if one.outcome is Outcome.DIFFERS
        and ABSENT in (one.before, one.after)
        and len(one.conditions) > 1
        else one
        for one in facts
    ]


def _in_other_runs(
    key: Key, verdict: _Verdict, before: Plan, after: Plan, *, unlike: bool
) -> _Verdict:
    """A verdict; a difference is none if both programs show the same in some run.

    Runs are tried with few of the combinations of their conditions, so that two programs may show
    the same under conditions that contradict one another. unlike: whether they test different
    conditions, so that what is one of several values in one may be the value of an untried run.
    """
    left, right = before.facts.get(key, []), after.facts.get(key, [])
    if verdict.outcome is not Outcome.DIFFERS or not left or not right:
        return verdict
    united = _compare(key, before, after)
    if united is None:
        return verdict
    partly = any(same_argument(one.value, two.value) for one in left for two in right)
    if united.outcome is Outcome.AGREES and verdict.before and verdict.after:
        return united
    if united.outcome is not Outcome.DIFFERS or (partly and unlike):
        reason = united.reason or _UNTRIED
        return replace(verdict, outcome=Outcome.NOT_FOLLOWED, reason=reason)
    return verdict


def _partners(one: Configuration, others: Sequence[Configuration]) -> list[int]:
    """The runs that share the most conditions with a run and contradict none of its own.

    All runs if each of them contradicts it.
    """
    opposite = {(text, not holds) for text, holds in one.conditions}
    shared = {
        number: len(one.conditions & other.conditions)
        for number, other in enumerate(others)
        if not opposite & other.conditions
    }
    most = max(shared.values(), default=0)
    return [number for number, count in shared.items() if count == most] or [*range(len(others))]


_ORDER = (Outcome.AGREES, Outcome.NOT_FOLLOWED, Outcome.DIFFERS)


def _note(found: dict[Key, _Verdict], tried: Sequence[dict[Key, _Verdict]]) -> None:
    """Keep the worst that is known of each fact.

    Of a fact that all partners of a run have, the partner counts that agrees best.
    """
    if not tried:
        return
    for key in tried[0]:
        if all(key in one for one in tried):
            best = min((one[key] for one in tried), key=lambda one: _ORDER.index(one.outcome))
            known = found.get(key)
            if known is None or _ORDER.index(best.outcome) > _ORDER.index(known.outcome):
                found[key] = best


# Plans --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Verdict:
    """What the comparison of one fact says, and the facts of each side that it is about."""

    outcome: Outcome
    before: Sequence[Fact]
    after: Sequence[Fact]
    reason: str = ""

    @property
    def says_nothing(self) -> bool:
        """Whether both values are unknown, and not even code gives them."""
        both = self.before and self.after and self.outcome is Outcome.NOT_FOLLOWED
        return bool(both) and all(one.value == Opaque() for one in (*self.before, *self.after))

    def compared(self, key: Key) -> Compared:
        """The verdict with texts and places."""
        return Compared(
            *key,
            self.outcome,
            _texts(self.before),
            _texts(self.after),
            self.before[0].at if self.before else None,
            self.after[0].at if self.after else None,
            self.reason,
            (self.before or self.after)[0].conditions,
        )


def _of_runs(before: Configuration, after: Configuration) -> dict[Key, _Verdict]:
    """What two runs say of each fact.

    A setting with a default may have another value in one of them. What a strategy decides is
    not comparable where the runs can have no strategy in common. Whether the options of each run
    are those of its own strategies is a fact of its own.
    """
    found = {
        key: one
        for key, one in _verdicts(before.plan, after.plan).items()
        if not _has_anyway(before.plan, after.plan, key)
    }
    if before.strategies & after.strategies:
        return found
    reason = "the runs have different strategies"
    return {
        key: replace(one, outcome=Outcome.NOT_FOLLOWED, reason=reason)
        if key[0] in OF_STRATEGY and one.outcome is Outcome.DIFFERS
        else one
        for key, one in found.items()
    }


def _has_anyway(before: Plan, after: Plan, key: Key) -> bool:
    """Whether the original has an option, too, that is against the strategies of the run.

    The setting is then the strategy of another unit, which has an option of these strategies.
    """
    topic, path = key
    for option in OF_STRATEGY:
        given = [fact.value for fact in before.facts.get((option, path), ())]
        if any(topic.startswith(f"{option} {value} under ") for value in given):
            return any(
                same_argument(fact.value, value) is False
                for value in given
                for other, facts in after.facts.items()
                for fact in facts
                if other[0] == option
            )
    return False


def _verdicts(before: Plan, after: Plan) -> dict[Key, _Verdict]:
    found = {}
    for key in dict.fromkeys([*before.facts, *after.facts]):
        verdict = _compare(key, before, after)
        if verdict is not None:
            found[key] = verdict
    return found


def _compare(key: Key, before: Plan, after: Plan) -> _Verdict | None:
    left, right = before.facts.get(key, []), after.facts.get(key, [])
    if not left or not right:
        return _one_sided(key, left, right, before, after)
    unmatched_left = [
        one for one in left if not any(same_argument(one.value, x.value) for x in right)
    ]
    unmatched_right = [
        one for one in right if not any(same_argument(one.value, x.value) for x in left)
    ]
    if not unmatched_left and not unmatched_right:
        return _Verdict(Outcome.AGREES, left[:1], right[:1])
    unknown = any(
        same_argument(one.value, two.value) is None
        for one in (unmatched_left or left)
        for two in (unmatched_right or right)
    )
    reason = "a value is unknown" if unknown else ""
    if key[0] in UNITS_HAVE and not (unmatched_left and unmatched_right):
        # The value may be that of a unit which the other program has, too.
        reason = reason or (after if unmatched_left else before).gaps.get(UNIT, "")
    outcome = Outcome.NOT_FOLLOWED if reason else Outcome.DIFFERS
    return _Verdict(outcome, unmatched_left or left, unmatched_right or right, reason)


def _one_sided(
    key: Key, left: list[Fact], right: list[Fact], before: Plan, after: Plan
) -> _Verdict | None:
    """A fact that one program has and the other has not."""
    topic, subject = key
    present, own, other = (left, before, after) if left else (right, after, before)
    if any(same_argument(one.value, NO) for one in present):
        return None
    if topic not in UNITS_HAVE:
        reasons = [*other.gaps.items(), *own.doubts.items()]
        reason = next((why for start, why in reasons if topic.startswith(start)), "")
        if topic in OF_TAKEN_STATES and "." in subject:
            # The program may choose a part because it is a unit.
            reason = reason or other.gaps.get(UNIT, "")
        whole_model = topic == UNIT and "." not in subject
        if whole_model and reason == UNKNOWN_MODEL and _knows_classes(other):
            reason = ""  # the units among its unknown parts are known by their classes
        outcome = Outcome.NOT_FOLLOWED if reason else Outcome.DIFFERS
        return _Verdict(outcome, left, right, reason)
    return None  # the unit itself is missing, which is the difference


def _knows_classes(plan: Plan) -> bool:
    """Whether all units among the unknown parts of models are of known classes."""
    return CLASSES not in plan.gaps and any(topic == CLASSES for topic, _ in plan.facts)


def _texts(facts: Sequence[Fact]) -> str:
    return " and ".join(str(one.value) for one in facts) or ABSENT
