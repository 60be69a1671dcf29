"""The conditions that tell the layouts of a program apart.

Each run of the interpreter decides settings of the program. A layout that several runs have holds
where the decisions of any of them hold. The decisions on one setting are sets of its values, so
that `x == 'a'` excludes `x == 'b'`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fsdplint.trace import Event, GuardKind, Trace
from fsdplint.trace.decided_tests import DecidedTest

MAX_ALTERNATIVES = 3  # of one layout
UNKNOWN = "which condition tells this layout from another one"
_OF_VALUES = ("==", "in", "is None")
_TRUE = "True"


@dataclass(frozen=True)
class Allowed:
    """The values that a setting can have: these, or all others."""

    values: frozenset[str]
    others: bool = False

    def intersection(self, other: Allowed) -> Allowed:
        if self.others and other.others:
            return Allowed(self.values | other.values, others=True)
        if self.others:
            return Allowed(other.values - self.values)
        return Allowed(self.values - other.values if other.others else self.values & other.values)

    def union(self, other: Allowed) -> Allowed:
        return self._inverse().intersection(other._inverse())._inverse()

    def _inverse(self) -> Allowed:
        return Allowed(self.values, not self.others)

    @property
    def is_any(self) -> bool:
        return self.others and not self.values

    @property
    def is_none(self) -> bool:
        return not self.others and not self.values


# What holds, by the settings.
Assignment = dict[str, Allowed]


@dataclass
class Run:
    """What a run decided.

    Attributes:
        allowed: the values of each setting.
        deciding: the settings that the sharding depends on.
        texts: the program's text for a test of a setting, by the setting and the values.
    """

    allowed: Assignment = field(default_factory=dict)
    deciding: set[str] = field(default_factory=set)
    texts: dict[tuple[str, frozenset[str]], str] = field(default_factory=dict)


def run_of(trace: Trace, kinds: tuple[type[Event], ...]) -> Run:
    """What a run decided. kinds: the events that a layout is made of."""
    run = Run()
    guarded = {
        guard.text
        for event in trace.of(*kinds)
        for guard in event.guards
        if guard.kind is GuardKind.CONFIG
    }
    for key, holds in trace.decisions.items():
        test = trace.tests.get(key, DecidedTest(key))
        name, values = _setting(key, test)
        decided = Allowed(values, others=not holds)
        known = run.allowed.get(name)
        run.allowed[name] = decided if known is None else known.intersection(decided)
        run.texts.setdefault((name, values), _text(key, test))
        if key in trace.sharding_keys or test.text in guarded:
            run.deciding.add(name)
    return run


def _setting(key: str, test: DecidedTest) -> tuple[str, frozenset[str]]:
    """The setting that a test is about, and the values with which its key is true."""
    if not test.subject or test.relation not in _OF_VALUES:
        return key, frozenset({_TRUE})
    if test.relation == "in" and isinstance(test.operand, Iterable):
        return test.subject, frozenset(map(repr, test.operand))
    operand = None if test.relation == "is None" else test.operand
    return test.subject, frozenset({repr(operand)})


def _text(key: str, test: DecidedTest) -> str:
    """The text for a key: the program's own if it shows the setting, without a negation.

    The interpreter names a setting by where it comes from, such as `parse_args().blocks` for
    `args.blocks`; a test may know it by another name.
    """
    return test.text if not test.negated and _tail(test.text) == _tail(key) else key


def _tail(text: str) -> str:
    """What is the same in two spellings of a setting."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return text
    rest = ""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        rest = ast.unparse(ast.Compare(ast.Name("_"), node.ops, node.comparators))
        node = node.left
    parts: list[str] = []
    while (item := _item(node)) is not None:
        node, index = item
        parts.append(ast.unparse(index))
    if isinstance(node, ast.Attribute) and not parts:
        parts.append(node.attr)
    return f"{'.'.join(reversed(parts)) or ast.unparse(node)} {rest}"


def _item(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """The container and the index of a subscript or of a call of `get`."""
    if isinstance(node, ast.Subscript):
        return node.value, node.slice
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        return (node.func.value, node.args[0]) if node.func.attr == "get" else None
    return None


# The alternatives ---------------------------------------------------------------------------------


def conditions_of(groups: Sequence[Sequence[Run]]) -> list[tuple[list[str], bool]]:
    """For the runs of each layout, the conditions under which it is the layout, and whether they
    tell it from all others."""
    runs = [run for group in groups for run in group]
    deciding = {name for run in runs for name in run.deciding}
    wording = _Wording(runs)
    result = []
    for group in groups:
        others = [run.allowed for other in groups if other is not group for run in other]
        alternatives, clear = _alternatives([run.allowed for run in group], others, deciding)
        result.append((wording.conditions(alternatives), clear))
    return result


def _alternatives(
    runs: list[Assignment], others: list[Assignment], deciding: set[str]
) -> tuple[list[Assignment], bool]:
    """What holds in some runs and not in the others, and whether it excludes all others."""
    if not others:
        return [], True
    relevant = [_restrict_to(run, deciding) for run in runs]
    if not all(_excludes(run, other) for run in relevant for other in others):
        relevant = runs
    merged = _merge(relevant)
    if relevant is not runs and len(merged) <= MAX_ALTERNATIVES:
        return [_needed_first(one, others) for one in merged], True
    clear = all(_excludes(run, other) for run in runs for other in others)
    return _merge(_implicants(runs, others, deciding)), clear


def _restrict_to(run: Assignment, names: set[str]) -> Assignment:
    return {name: allowed for name, allowed in run.items() if name in names}


def _excludes(one: Assignment, other: Assignment) -> bool:
    return any(
        allowed.intersection(other[name]).is_none for name, allowed in one.items() if name in other
    )


def _merge(found: Iterable[Assignment]) -> list[Assignment]:
    """The same with fewer assignments: two that differ in one setting become one."""
    left = [*found]
    first = 0
    while first < len(left):
        for second in range(first + 1, len(left)):
            both = _union(left[first], left[second])
            if both is not None:
                del left[second]
                left[first] = both
                first = -1
                break
        first += 1
    return left


def _union(one: Assignment, two: Assignment) -> Assignment | None:
    """What holds if one of two assignments holds, if one assignment says that."""
    different = [name for name in {**one, **two} if one.get(name) != two.get(name)]
    if len(different) > 1:
        return next((wide for wide in (one, two) if wide.keys().isdisjoint(different)), None)
    result = dict(one)
    for name in different:
        allowed = one[name].union(two[name]) if name in one and name in two else None
        result.pop(name, None)
        if allowed is not None and not allowed.is_any:
            result[name] = allowed
    return result


def _needed_first(found: Assignment, others: list[Assignment]) -> Assignment:
    """An assignment without what all others share; what tells it from them comes first."""
    needed = _implicant(found, others, found.keys())
    rest = {
        name: allowed
        for name, allowed in found.items()
        if name not in needed and any(other.get(name) != allowed for other in others)
    }
    return needed | rest


def _implicants(
    runs: list[Assignment], others: list[Assignment], deciding: set[str]
) -> Iterator[Assignment]:
    """As little as tells the runs from the others."""
    covered: list[Assignment] = []
    for run in runs:
        if any(_holds(one, run) for one in covered):
            continue
        covered.append(_implicant(run, others, deciding))
    yield from covered


def _holds(found: Assignment, run: Assignment) -> bool:
    """Whether what is allowed in a run is a part of an assignment."""
    return all(
        name in run and run[name].intersection(allowed) == run[name]
        for name, allowed in found.items()
    )


def _implicant(run: Assignment, others: list[Assignment], preferred: Iterable[str]) -> Assignment:
    """The settings of a run that exclude the others; those that it cannot exclude do not count.

    If no setting excludes any other, it has those that not all others decide in the same way.
    """
    excluded = [other for other in others if _excludes(run, other)]
    preferred = {*preferred}
    if not excluded:
        return {
            name: allowed
            for name, allowed in run.items()
            if name in preferred and all(other.get(name) != allowed for other in others)
        }
    result = dict(run)

    def worth(name: str) -> tuple[bool, bool, int]:
        allowed = run[name]
        return name in preferred, not allowed.others, -len(allowed.values)

    for name in sorted(run, key=worth):
        rest = {one: allowed for one, allowed in result.items() if one != name}
        if all(_excludes(rest, other) for other in excluded):
            result = rest
    return result


# Texts --------------------------------------------------------------------------------------------


class _Wording:
    """Says assignments in words."""

    def __init__(self, runs: Iterable[Run]) -> None:
        found: dict[tuple[str, frozenset[str]], Counter[str]] = {}
        for run in runs:
            for setting, text in run.texts.items():
                found.setdefault(setting, Counter())[text] += 1
        chosen = {setting: texts.most_common(1)[0][0] for setting, texts in found.items()}
        several = Counter(chosen.values())
        # Two settings with one text would be mixed up.
        self.texts: Mapping[tuple[str, frozenset[str]], str] = {
            setting: text if several[text] == 1 else _own_text(*setting)
            for setting, text in chosen.items()
        }

    def conditions(self, alternatives: list[Assignment]) -> list[str]:
        """What holds in each of some alternatives; what they share comes first."""
        if not alternatives or not all(alternatives):
            return []
        if len(alternatives) == 1:
            return [self._condition(*one) for one in alternatives[0].items()]
        first = alternatives[0]
        shared = {
            name: allowed
            for name, allowed in first.items()
            if all(one.get(name) == allowed for one in alternatives)
        }
        texts = [self._condition(*one) for one in shared.items()]
        parts: list[str] = []
        for one in alternatives[:MAX_ALTERNATIVES]:
            rest = [self._condition(*part) for part in one.items() if part[0] not in shared]
            parts.append(f"({' and '.join(rest)})" if len(rest) > 1 else rest[0])
        hidden = len(alternatives) - len(parts)
        more = [f"{hidden} more"] if hidden else []
        return [*texts, " or ".join([*parts, *more])]

    def _condition(self, name: str, allowed: Allowed) -> str:
        holds = "false" if allowed.others else "true"
        text = self.texts.get((name, allowed.values))
        if text is not None:
            return f"`{text}` is {holds}"
        values = sorted(allowed.values)
        if allowed.others:
            return f"`{self._subject(name)}` is none of {', '.join(values)}"
        return f"`{self._subject(name)}` is {' or '.join(values)}"

    def _subject(self, name: str) -> str:
        """The text of a setting, from a test of it."""
        texts = [text for (setting, _), text in self.texts.items() if setting == name]
        return next((one for text in texts for one in _compared_texts(text)), name)


def _own_text(name: str, values: frozenset[str]) -> str:
    return name if values == {_TRUE} else f"{name} == {' or '.join(sorted(values))}"


def _compared_texts(text: str) -> Iterator[str]:
    """What a test compares."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return
    if isinstance(node, ast.Compare):
        yield ast.get_source_segment(text.strip(), node.left) or ast.unparse(node.left)
