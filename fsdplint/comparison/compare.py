"""Two programs compared: their runs are paired by their conditions, and their plans by facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from fsdplint.comparison.facts import Fact, Key, Plan, same
from fsdplint.comparison.plan import plan_of
from fsdplint.trace import GuardKind, Location, Trace
from fsdplint.trace.arguments import Constant

ABSENT = "nothing"
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
    """One run of a program: its plan, and the conditions that it stands under."""

    plan: Plan
    conditions: frozenset[tuple[str, bool]]


def configurations(traces: Iterable[Trace]) -> list[Configuration]:
    """The runs of a program that shard; those of whole programs where there are any."""
    found = list(traces)
    sharding = [one for one in found if one.shardings()]
    whole = [one for one in sharding if one.entry is not None and one.complete]
    return [Configuration(plan_of(one), _conditions(one)) for one in whole or sharding]


def _conditions(trace: Trace) -> frozenset[tuple[str, bool]]:
    guards = {
        (guard.text, guard.holds)
        for event in trace
        for guard in event.guards
        if guard.kind is GuardKind.CONFIG
    }
    return frozenset(guards | {*trace.decisions.items()})


# Pairs --------------------------------------------------------------------------------------------


def compare(before: Sequence[Configuration], after: Sequence[Configuration]) -> list[Compared]:
    """The facts of two programs, each once.

    A run is compared with each run of the other program whose conditions do not contradict its own.
    A fact differs where no such run has it.
    """
    found: dict[Key, Compared] = {}
    for one in before:
        partners = _partners(one, after)
        for fact in _of_best([compare_plans(one.plan, two.plan) for two in partners]):
            _note(found, fact)
    for two in after:
        partners = _partners(two, before)
        for fact in _of_best([compare_plans(one.plan, two.plan) for one in partners]):
            _note(found, fact)
    both = _union(before), _union(after)
    unlike = _tests(before) != _tests(after)
    return [
        _in_other_runs(key, one, *both, unlike=unlike) if one.outcome is Outcome.DIFFERS else one
        for key, one in found.items()
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


def _in_other_runs(
    key: Key, fact: Compared, before: Plan, after: Plan, *, unlike: bool
) -> Compared:
    """A difference, unless both programs show the same in some run.

    Runs are tried with few of the combinations of their conditions, so that two programs may show
    the same under conditions that contradict one another. unlike: whether they test different
    conditions, so that what is one of several values in one may be the value of an untried run.
    """
    left, right = before.facts.get(key, []), after.facts.get(key, [])
    united = _compare(key, before, after) if left and right else None
    if united is None:
        return fact
    partly = any(same(one.value, two.value) for one in left for two in right)
    if united.outcome is Outcome.AGREES and ABSENT not in (fact.before, fact.after):
        return united
    if united.outcome is not Outcome.DIFFERS or (partly and unlike):
        reason = united.reason or "not all of the conditions were tried together"
        return replace(fact, outcome=Outcome.NOT_FOLLOWED, reason=reason)
    return fact


def _partners(one: Configuration, others: Sequence[Configuration]) -> list[Configuration]:
    """The runs whose conditions do not contradict those of a run; all if each of them does."""
    opposite = {(text, not holds) for text, holds in one.conditions}
    return [other for other in others if not opposite & other.conditions] or list(others)


_ORDER = (Outcome.AGREES, Outcome.NOT_FOLLOWED, Outcome.DIFFERS)


def _of_best(tried: list[dict[Key, Compared]]) -> Iterator[Compared]:
    """Of each fact that all partners have what the one says that agrees best."""
    if not tried:
        return
    keys = dict.fromkeys(key for one in tried for key in one)
    for key in keys:
        if all(key in one for one in tried):
            yield min((one[key] for one in tried), key=lambda fact: _ORDER.index(fact.outcome))


def _note(found: dict[Key, Compared], fact: Compared) -> None:
    """Keep the worst that is known of a fact."""
    key = fact.topic, fact.subject
    known = found.get(key)
    if known is None or _ORDER.index(fact.outcome) > _ORDER.index(known.outcome):
        found[key] = fact


# Plans --------------------------------------------------------------------------------------------


def compare_plans(before: Plan, after: Plan) -> dict[Key, Compared]:
    """The facts of two runs."""
    found = {}
    for key in dict.fromkeys([*before.facts, *after.facts]):
        compared = _compare(key, before, after)
        if compared is not None:
            found[key] = compared
    return found


def _compare(key: Key, before: Plan, after: Plan) -> Compared | None:
    left, right = before.facts.get(key, []), after.facts.get(key, [])
    if not left or not right:
        return _one_sided(key, left, right, before, after)
    lonely_left = [one for one in left if not any(same(one.value, x.value) for x in right)]
    lonely_right = [one for one in right if not any(same(one.value, x.value) for x in left)]
    if not lonely_left and not lonely_right:
        return _result(key, Outcome.AGREES, left[:1], right[:1])
    unknown = any(
        same(one.value, two.value) is None
        for one in (lonely_left or left)
        for two in (lonely_right or right)
    )
    outcome = Outcome.NOT_FOLLOWED if unknown else Outcome.DIFFERS
    reason = "a value is unknown" if unknown else ""
    return _result(key, outcome, lonely_left or left, lonely_right or right, reason)


def _one_sided(
    key: Key, left: list[Fact], right: list[Fact], before: Plan, after: Plan
) -> Compared | None:
    """A fact that one program has and the other has not."""
    topic, _ = key
    present, other = (left, after) if left else (right, before)
    if any(same(one.value, NO) for one in present):
        return None
    if topic not in UNITS_HAVE:
        reason = next((why for start, why in other.gaps.items() if topic.startswith(start)), "")
        outcome = Outcome.NOT_FOLLOWED if reason else Outcome.DIFFERS
        return _result(key, outcome, left, right, reason)
    return None  # the unit itself is missing, which is the difference


def _result(
    key: Key, outcome: Outcome, left: Sequence[Fact], right: Sequence[Fact], reason: str = ""
) -> Compared:
    return Compared(
        *key,
        outcome,
        _texts(left),
        _texts(right),
        left[0].at if left else None,
        right[0].at if right else None,
        reason,
        (left or right)[0].conditions,
    )


def _texts(facts: Sequence[Fact]) -> str:
    return " and ".join(str(one.value) for one in facts) or ABSENT
