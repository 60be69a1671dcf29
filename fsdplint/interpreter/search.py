"""The search through a program's configurations: which runs are made, and in what order.

The first run takes every branch that lets the program go on, the second run none. They show on
which conditions something depends. The third run leaves each setting at its default, but for those
that shard a model. Further runs are chosen so that

- each such condition is decided both ways,
- each branch that leads to the contract's API is taken, whatever it stands behind; it leads there
  if its own code names the API, or if its calls lead to a site that no run has reached,
- each condition is decided both ways where the conditions hold under which a model is sharded,

as far as the program allows it. What the runs of one entry have shown, those of another need not
show again. A run tests many combinations at once, so that the number of runs
grows slowly with the number of conditions (a covering array, see Cohen et al., "The AETG system",
IEEE TSE 1997).

A run that leaves a function early because of what it had decided before shows little. The decision
is regretted: the run is repeated without it, and later runs take it only as their target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import libcst as cst

from fsdplint.interpreter.configurations import BranchTaken, Choice, Decisions
from fsdplint.interpreter.regrets import Regrets
from fsdplint.interpreter.search_targets import Shown, Target, is_possible, key_order
from fsdplint.interpreter.values import Condition

MAX_RUNS = 100  # of an entry; the bound on its steps ends most searches before
MAX_RESTARTS = 4  # of a base whose decisions made it leave early
ATTEMPTS = 2  # runs for one target: the second one decides as before all that comes before it

LeadsOn = Callable[[Sequence[cst.CSTNode]], bool]


@dataclass
class Search:
    """The configurations of one entry.

    Attributes:
        max_runs: the bound on the number of runs.
        shown: the outcomes of tests that the runs of other entries have shown.
        diversifies: whether a run decides all that it may otherwise than before, since few runs
            are left. Else it changes only what runs that came to its target decided both ways, so
            that it shows what one decision changes.
        tries_pairs: whether pairs of decisions are tried, too.
        finished: whether further runs would repeat what other entries have shown.
        leads_on: whether calls in code may lead to a site that no run has reached.
        leads_to_sharding: whether they may lead to a call that shards a model.
    """

    max_runs: int = field(default_factory=lambda: MAX_RUNS)
    shown: set[Shown] = field(default_factory=set)
    diversifies: bool = False
    tries_pairs: bool = True
    finished: bool = False
    leads_on: LeadsOn = lambda code: False
    leads_to_sharding: LeadsOn = lambda code: False
    _done: list[Decisions] = field(default_factory=list)
    _regrets: Regrets = field(default_factory=Regrets)
    _conditions: dict[str, Condition] = field(default_factory=dict)
    _places: dict[str, set[object]] = field(default_factory=dict)  # of tests, by key
    _relevant: dict[str, bool] = field(default_factory=dict)  # and whether each is urgent
    _sharding: set[Choice] = field(default_factory=set)  # with which a model was sharded
    _needed_to_shard: set[Choice] | None = None  # those of all runs that sharded one
    _seen: set[object] = field(default_factory=set)  # names of targets that a run has shown
    _met_with: dict[Choice, set[str]] = field(default_factory=dict)
    # What all runs have in common that met a condition, or took a branch; by key or node.
    _needs: dict[object, set[Choice]] = field(default_factory=dict)
    _goals: dict[tuple[object, bool], tuple[Decisions, BranchTaken]] = field(default_factory=dict)
    _attempts: dict[object, int] = field(default_factory=dict)
    _distinct: set[frozenset[Choice]] = field(default_factory=set)

    def runs(self) -> Iterator[Decisions]:
        """The decisions to run with; the caller makes each run before it asks for the next."""
        for base in (True, False):
            for _ in range(MAX_RESTARTS):
                decisions = self._decisions(base)
                yield decisions
                if self._learn(decisions):
                    break
            if not decisions.values_by_key:
                return
        usual = self._usual()
        if usual is not None:
            yield usual
            self._learn(usual)
        while len(self._done) < self.max_runs:
            target = next(self._targets(), None)
            if target is None:
                return
            for _ in range(1 if self._has_sharded() else MAX_RESTARTS):
                decisions = self._aimed_at(target)
                yield decisions
                if self._learn(decisions):
                    break
                self._attempts[target.name] -= 1
                if self._has_sharded():
                    break

    def _usual(self) -> Decisions | None:
        """The decisions of a user who sets only what shards the model; None if they were made.

        Findings in this configuration are the most important ones, and need no combination of
        settings that the other runs would have to hit.
        """
        usual = {key: value for run in self._done for key, value in run.by_default.items()}
        usual.update(self._needed_to_shard or ())
        done = [run.values_by_key for run in self._done if run.base]
        if any(all(made.get(key, value) is value for key, value in usual.items()) for made in done):
            return None
        return replace(self._decisions(True, preferred=usual), usual=True)

    def finish(self, decisions: Decisions) -> None:
        """End the search with the last run."""
        self._learn(decisions)
        self.finished = True

    def outcomes(self) -> set[Shown]:
        """The outcomes of tests that the runs have shown."""
        shown: set[Shown] = set()
        for run in self._done:
            for key in run.questions:
                value = run.values_by_key[key]
                for place in run.places.get(key, ()):
                    shown |= {(place, value, False), (place, value, run.shards)}
            for node, outcomes in run.branches.items():
                for taken in outcomes:
                    shown |= {(node, taken.holds, False), (node, taken.holds, run.shards)}
        return shown

    @property
    def sharding(self) -> Set[Choice]:
        """The decisions under which a model was sharded."""
        return self._sharding

    def leaves_targets(self) -> bool:
        """Whether a decision or a branch is left that no run has shown or was aimed at.

        Pairs of decisions are not counted: each of the two was shown.
        """
        return next(self._unshown(0), None) is not None

    def leaves_choices(self) -> bool:
        """Whether values that a name may choose, and that matter to a migration, were not tried."""
        chosen = {key for key, condition in self._conditions.items() if condition.chooses}
        return any(key in chosen for target in self._unshown(0) for key, _ in target.choices)

    def asks_nothing_new(self, decisions: Decisions) -> bool:
        """Whether other entries have shown all that a run depended on, and the opposite of it."""
        asked = [
            (place, decisions.values_by_key[key])
            for key in decisions.relevant & decisions.questions.keys()
            for place in decisions.places[key]
        ]
        asked += [
            (node, taken.holds)
            for node, outcomes in decisions.branches.items()
            for taken in outcomes
            if taken.keys and (not taken.holds) in taken.goals
        ]
        needed = {(place, value, decisions.shards) for place, value in asked}
        needed |= {(place, not value, False) for place, value in asked}
        return needed <= self.shown

    def is_new(self, decisions: Decisions) -> bool:
        """Whether a run differs from earlier ones in what something depended on."""
        values = decisions.values_by_key.items()
        made = frozenset((key, value) for key, value in values if key in decisions.relevant)
        if made in self._distinct:
            return False
        self._distinct.add(made)
        return True

    # What runs show ----------------------------------------------------------------------------

    def _learn(self, decisions: Decisions) -> bool:
        """Note what a run has shown; whether none of its decisions is regretted.

        What a run has not come to, since it left a function early, it has not shown.
        """
        self._done.append(decisions)
        self._learn_sharding(decisions)
        for key in decisions.relevant & decisions.questions.keys():
            self._relevant[key] = self._relevant.get(key, False) or key in decisions.urgent
        met = self._relevant.keys() & decisions.questions.keys()
        for key in met:
            self._places.setdefault(key, set()).update(decisions.places[key])
        self._conditions.update((key, decisions.conditions[key]) for key in met)
        choices = set(decisions.values_by_key.items())
        for name in (*met, *decisions.branches):
            self._needs[name] = self._needs.get(name, choices) & choices
        self._learn_branches(decisions)
        made = sorted((key, decisions.values_by_key[key]) for key in met)
        for choice in made:
            self._met_with.setdefault(choice, set()).update(met)
        if self._regrets.note(decisions, self._sharding):
            return False
        for number, choice in enumerate(made):
            self._seen.add(frozenset([choice]))
            self._seen.update(frozenset([choice, other]) for other in made[:number])
        return True

    def _learn_sharding(self, decisions: Decisions) -> None:
        choices = {(key, decisions.values_by_key[key]) for key in decisions.sharding}
        self._sharding |= choices
        if decisions.shards:
            known = self._needed_to_shard
            self._needed_to_shard = choices if known is None else known & choices

    def _learn_branches(self, decisions: Decisions) -> None:
        for node, outcomes in decisions.branches.items():
            for taken in outcomes:
                self._seen |= {(node, taken.holds, False), (node, taken.holds, decisions.shards)}
                goal = node, not taken.holds
                if not taken.keys or (goal[1] not in taken.goals and not taken.skipped):
                    continue
                if decisions.shards or goal not in self._goals or not self._goals[goal][0].shards:
                    self._goals[goal] = decisions, taken

    def _has_sharded(self) -> bool:
        return self._needed_to_shard is not None

    # Targets -----------------------------------------------------------------------------------

    def _targets(self) -> Iterator[Target]:
        """The targets that no run has shown, the most important first.

        A second attempt at one rarely succeeds, so all others have their first one before it. As
        long as no run shards a model, the first ones are the branches that may do so.
        """
        yield from self._branches_that_shard()
        yield from self._unshown(0)
        yield from self._branches(0, self.leads_on)
        for attempt in range(1, ATTEMPTS):
            yield from self._unshown(attempt)
        if self.tries_pairs:
            yield from self._pairs()

    def _unshown(self, attempt: int) -> Iterator[Target]:
        """The decisions and branches that no run has shown, after so many attempts.

        That a setting names no default, of which nothing else is known, comes last.
        """
        keys = self._ordered_keys()
        of_default = [key for key in keys if self._conditions[key].of_default]
        keys = [key for key in keys if key not in of_default]
        yield from self._singles((key for key in keys if self._relevant[key]), attempt)
        yield from self._branches(attempt)
        yield from self._singles((key for key in keys if not self._relevant[key]), attempt)
        yield from self._singles(of_default, attempt)

    def _ordered_keys(self) -> list[str]:
        return sorted(self._relevant, key=lambda key: (not self._relevant[key], *key_order(key)))

    def _singles(self, keys: Iterable[str], attempt: int) -> Iterator[Target]:
        for key in keys:
            for value in (True, False):
                target = Target(frozenset([(key, value)]))
                if not is_possible(self._conditions[key], value):
                    continue
                if not self._is_open(target, attempt) or self._was_shown(key, value, False):
                    continue
                if self._is_met_with((key, value)):
                    yield target

    def _branches_that_shard(self) -> Iterator[Target]:
        """Branches that may shard a model, as long as no run has sharded one."""
        if self._has_sharded():
            return
        named = [one for one in self._branches(0) if self.leads_to_sharding(self._left_out(one))]
        targets = [*named, *self._branches(0, self.leads_to_sharding)]
        yield from sorted(targets, key=lambda one: min(key_order(key) for key, _ in one.choices))

    def _left_out(self, target: Target) -> Sequence[cst.CSTNode]:
        """The code of the branch that is a target."""
        return self._goals[target.branch[:2]][1].left_out if target.branch is not None else ()

    def _branches(self, attempt: int, leads: LeadsOn | None = None) -> Iterator[Target]:
        """Branches that no run took, or none in which a model is sharded.

        leads: which of those whose calls may lead to sites; by default those that name the API
            themselves.
        """
        for branch, (run, taken) in self._goals.items():
            if bool(taken.skipped) is (leads is None):
                continue
            choice = taken.keys[-1], not run.values_by_key[taken.keys[-1]]
            if (*branch, run.shards) in self._seen or (*branch, run.shards) in self.shown:
                continue
            shards = run.shards and not self._excludes_sharding(choice)
            target = Target(frozenset([choice]), (*branch, shards))
            if target.branch in self.shown or not self._is_open(target, attempt):
                continue
            if not is_possible(run.conditions[choice[0]], choice[1]):
                continue
            if leads is None or leads(taken.skipped):
                yield target

    def _pairs(self) -> Iterator[Target]:
        """Pairs of a decision with one under which a model is sharded."""
        keys = self._ordered_keys()
        for sharding in sorted(self._sharding):
            for key in keys:
                for value in (True, False):
                    target = Target(frozenset([sharding, (key, value)]))
                    if key == sharding[0] or self._was_shown(key, value, True):
                        continue
                    if self._is_open(target, 0) and self._go_together(target):
                        yield target

    def _is_met_with(self, choice: Choice) -> bool:
        """Whether the decisions because of which a run came to a condition allow a value of it."""
        context = self._context(Target(frozenset([choice])))
        values = context.values_by_key
        around = context.questions[choice[0]].under
        return all(self._agree((key, values[key]), choice) for key in around if key in values)

    def _excludes_sharding(self, choice: Choice) -> bool:
        """Whether no model is sharded with a decision, as far as the runs show."""
        return any(not self._agree(choice, need) for need in self._needed_to_shard or ())

    def _was_shown(self, key: str, value: bool, sharded: bool) -> bool:
        """Whether another entry had such a value at all tests of a key."""
        return all((place, value, sharded) in self.shown for place in self._places[key])

    def _is_open(self, target: Target, attempt: int) -> bool:
        """Whether no run has shown a target, and so many were aimed at it."""
        return target.name not in self._seen and self._attempts.get(target.name, 0) == attempt

    def _go_together(self, pair: Target) -> bool:
        """Whether a run can have both: a run met one condition where the other is decided so."""
        one, other = pair.choices
        met = self._met_with
        if other[0] not in met.get(one, ()) and one[0] not in met.get(other, ()):
            return False
        return self._agree(one, other)

    def _agree(self, one: Choice, other: Choice) -> bool:
        """Whether one decision does not imply the opposite of another."""
        if one[0] == other[0]:
            return one[1] == other[1]
        known = self._conditions
        if one[0] not in known or other[0] not in known:
            return True
        inferred = Decisions(forced=((known[one[0]], one[1]),)).infer(known[other[0]])
        return inferred is None or inferred == other[1]

    # Runs --------------------------------------------------------------------------------------

    def _decisions(
        self,
        base: bool,
        forced: tuple[tuple[Condition, bool], ...] = (),
        preferred: Mapping[str, bool] | None = None,
        fixed: Set[str] = frozenset(),
    ) -> Decisions:
        going_on = {key: value for key, value in self._regrets.going_on.items() if key not in fixed}
        return Decisions(base, forced, preferred or {}, going_on, fixed)

    def _aimed_at(self, target: Target) -> Decisions:
        """Decisions that shall meet a target, and show what else no run has shown, if possible."""
        self._attempts[target.name] = self._attempts.get(target.name, 0) + 1
        context = self._context(target)
        fixed = self._fixed_keys(target, context)
        chosen = dict(target.choices)
        for key in sorted(self._relevant.keys() - chosen.keys() - fixed, key=key_order):
            chosen[key] = self._best(key, chosen, context.values_by_key.get(key, True))
        preferred = {**context.values_by_key, **chosen}
        forced = tuple((context.conditions[key], value) for key, value in sorted(target.choices))
        return self._decisions(context.base, forced, preferred, fixed & preferred.keys())

    def _fixed_keys(self, target: Target, context: Decisions) -> set[str]:
        """The keys on which it may depend whether a run comes to a target: those that the context
        met before it, but at the first attempt not those that runs which came there decided both
        ways."""
        is_first = self._attempts[target.name] < ATTEMPTS
        keys = {key for key, _ in target.choices}
        if is_first and self.diversifies:
            return self._keys_around(target, context) - keys
        fixed = self._met_before(context, keys)
        names = keys if target.branch is None else {target.branch[0]}
        needs = {key for name in names for key, _ in self._needs.get(name, ())}
        if target.branch is not None:
            fixed |= needs
        if is_first:
            fixed &= needs
        return (fixed | self._path_to_sharding(context)) - keys

    def _keys_around(self, target: Target, context: Decisions) -> set[str]:
        """The keys because of which a run came to a target, and sharded a model."""
        around = set(context.sharding)
        for key, _ in target.choices:
            if key in context.questions:
                around.update(context.questions[key].under)
        if target.branch is not None:
            around.update(self._goals[target.branch[:2]][1].under)
        return around & context.questions.keys()

    def _met_before(self, context: Decisions, keys: Set[str]) -> set[str]:
        """The keys that a run met before the last of some."""
        order = list(context.questions)
        last = max((order.index(key) for key in keys if key in context.questions), default=-1)
        return set(order[: last + 1])

    def _path_to_sharding(self, context: Decisions) -> set[str]:
        """The keys that a run met before it sharded a model, without those that it regrets."""
        values = context.values_by_key
        met = self._met_before(context, context.sharding)
        return {key for key in met if self._regrets.going_on.get(key, values[key]) == values[key]}

    def _context(self, target: Target) -> Decisions:
        """The last run that came to a target, if possible one that shards a model, and shares most
        of the target."""
        if target.branch is not None:
            return self._goals[target.branch[:2]][0]
        keys = {key for key, _ in target.choices}
        runs = [run for run in reversed(self._done) if keys <= run.questions.keys()]
        return max(
            runs, key=lambda run: (run.shards, len(target.choices & run.values_by_key.items()))
        )

    def _best(self, key: str, chosen: Mapping[str, bool], otherwise: bool) -> bool:
        """The value of a condition that shows more of what no run has shown."""
        gain = {value: self._gain((key, value), chosen) for value in (True, False)}
        if gain[True] == gain[False]:
            return otherwise
        return gain[True] > gain[False]

    def _gain(self, choice: Choice, chosen: Mapping[str, bool]) -> tuple[bool, int]:
        """Whether no run had a choice, and how many pairs of it with others no run had."""
        pairs = (
            frozenset([choice, other]) not in self._seen
            and choice[0] in self._met_with.get(other, ())
            for other in chosen.items()
        )
        return frozenset([choice]) not in self._seen, sum(pairs)
