"""The search through configurations, on programs that are trees of decisions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

import libcst as cst

from fsdplint.interpreter.configurations import BranchTaken, Decisions
from fsdplint.interpreter.search import MAX_RUNS, Search
from fsdplint.interpreter.values import Condition

CODE = cst.parse_statement("model = wrap(model)")


@dataclass(frozen=True, eq=False)
class Branch:
    """`if key: then... else: otherwise...`; leaves: the value with which the program returns."""

    key: str
    then: tuple[Branch, ...] = ()
    otherwise: tuple[Branch, ...] = ()
    leaves: bool | None = None


Program = tuple[Branch, ...]


def execute(program: Program, decisions: Decisions, around: tuple[str, ...] = ()) -> bool:
    """Run a program as the interpreter does; whether it came to its end.

    around: the keys of the branches that it stands in, the innermost first.
    """
    for branch in program:
        decisions.leaving = branch.leaves is not None
        prefer = branch.leaves is not True
        value = decisions.decide(
            Condition(branch.key, branch.key, subject=branch.key), prefer, branch, around
        )
        decisions.leaving = False
        decisions.relevant.add(branch.key)
        goals = {side for side in (True, False) if (branch.then, branch.otherwise)[not side]}
        if value is branch.leaves:
            goals = {prefer}
        decisions.note_branch(branch, BranchTaken(value, (branch.key,), frozenset(goals), around))
        if value is branch.leaves:
            if value is not prefer:
                decisions.note_leaving([branch.key, *around])
            return False
        inner = branch.then if value else branch.otherwise
        if not execute(inner, decisions, (branch.key, *around)):
            return False
    return True


def explored(program: Program, max_runs: int = MAX_RUNS) -> list[Decisions]:
    """The runs that the search makes."""
    found = []
    for decisions in Search(max_runs).runs():
        execute(program, decisions)
        found.append(decisions)
    return found


def keys_of(program: Program) -> Iterator[str]:
    for branch in program:
        yield branch.key
        yield from keys_of(branch.then)
        yield from keys_of(branch.otherwise)


class Assigned(Decisions):
    """Decisions that are all known beforehand."""

    def __init__(self, values: Mapping[str, bool]) -> None:
        super().__init__()
        self.values = values

    def decide(
        self,
        condition: Condition,
        prefer: bool = True,
        place: object = None,
        under: Iterable[str] = (),
    ) -> bool:
        self.values_by_key[condition.key] = self.values[condition.key]
        return self.values[condition.key]


def all_runs(program: Program) -> list[Decisions]:
    """The runs in all configurations."""
    keys = sorted(set(keys_of(program)))
    found: list[Decisions] = []
    for values in itertools.product((True, False), repeat=len(keys)):
        found.append(Assigned(dict(zip(keys, values, strict=True))))
        execute(program, found[-1])
    return found


def visited(runs: Iterable[Decisions]) -> set[Branch]:
    """The branches that some run comes to."""
    return {branch for run in runs for branch in run.branches if isinstance(branch, Branch)}


def choices(runs: Iterable[Decisions]) -> set[tuple[str, bool]]:
    return {choice for run in runs for choice in run.values_by_key.items()}


def random_program(random: Random, depth: int, leaves: bool) -> Program:
    def block(below: int) -> Program:
        return random_program(random, below, leaves) if below >= 0 else ()

    return tuple(
        Branch(
            random.choice("abcdef"),
            block(depth - 1),
            block(depth - 1),
            random.choice([None, None, None, True, False]) if leaves else None,
        )
        for _ in range(random.randint(1, 3))
    )


def visited_share(leaves: bool) -> float:
    """How many of the branches that random programs can come to the search does visit."""
    random = Random(7)
    shown = total = 0
    for _ in range(60):
        program = random_program(random, 2, leaves)
        every = visited(all_runs(program))
        shown += len(visited(explored(program, 200)) & every)
        total += len(every)
    return shown / total


def test_every_branch_is_visited() -> None:
    assert visited_share(leaves=False) == 1


def test_nearly_every_branch_is_visited_where_the_program_leaves_early() -> None:
    assert visited_share(leaves=True) > 0.98


def test_independent_conditions_need_few_runs() -> None:
    program = tuple(Branch(f"option {number}") for number in range(30))
    runs = explored(program)
    assert len(runs) == 2
    assert len(choices(runs)) == 60


def test_an_early_decision_that_makes_the_program_leave_is_regretted() -> None:
    # `if export is not None: ...`, and later `if export is not None: return`.
    program = (
        Branch("export"),
        Branch("export", leaves=True),
        Branch("fsdp", then=(Branch("save"),)),
    )
    runs = explored(program)
    values = [run.values_by_key for run in runs]
    assert any(one.get("fsdp") and one.get("save") for one in values)
    assert any(one["export"] for one in values)


def test_a_condition_behind_several_others_is_decided_both_ways() -> None:
    program = (Branch("a", (Branch("b", (), (Branch("c", (Branch("d"),)),)),)),)
    assert choices(explored(program)) >= {("d", True), ("d", False)}


def test_each_option_is_seen_with_the_sharding() -> None:
    options = [f"option {number}" for number in range(8)]
    search, found = Search(), []
    for decisions in search.runs():
        execute((*map(Branch, options), Branch("fsdp")), decisions)
        if decisions.values_by_key["fsdp"]:
            decisions.sharding.add("fsdp")
            found.append(dict(decisions.values_by_key))
    for option in options:
        assert {run[option] for run in found} == {True, False}
    assert not search.leaves_targets()


def test_what_one_entry_has_shown_another_need_not_show() -> None:
    library = random_program(Random(3), 2, leaves=False)
    first, second = Search(), Search()
    for search in (first, second):
        second.shown = first.shown
        for decisions in search.runs():
            execute((*library, Branch("fsdp")), decisions)
        search.shown |= search.outcomes()
    assert len(second._done) < len(first._done) / 2


def test_a_branch_that_excludes_the_sharding_is_no_target_with_it() -> None:
    """`if fsdp: shard()`, and later `if fsdp: save() else: save()`."""
    program = (Branch("fsdp"), Branch("fsdp", (Branch("a"),), (Branch("b"),)))
    search, aims = Search(), []
    for decisions in search.runs():
        execute(program, decisions)
        if decisions.values_by_key["fsdp"]:
            decisions.shards = True
            decisions.sharding.add("fsdp")
        aims.append([condition.key for condition, _ in decisions.forced])
    assert ["a"] in aims
    assert ["fsdp"] not in aims  # the two first runs decide it both ways


def test_a_second_attempt_comes_after_all_first_ones() -> None:
    """A branch that no run takes does not keep the search from other conditions."""
    search, aims = Search(), []
    for decisions in search.runs():
        for key in ("a", "b", "c"):
            decisions.decide(Condition(key, key, subject=key))
            decisions.relevant.add(key)
        for node in ("one", "two"):  # both tests fail in any case
            taken = BranchTaken(False, ("a" if node == "one" else "b",), frozenset([True]))
            decisions.note_branch(node, taken)
        aims.append([condition.key for condition, _ in decisions.forced])
    assert aims == [[], [], ["a"], ["b"], ["a"], ["b"]]


def test_what_was_tried_once_is_not_left() -> None:
    search = Search(max_runs=3)
    for decisions in search.runs():
        decisions.decide(Condition("a", "a", subject="a"))
        decisions.relevant.add("a")
        decisions.note_branch("test", BranchTaken(False, ("a",), frozenset([True])))
    assert not search.leaves_targets()


def test_runs_that_diversify_show_what_stands_behind_several_tests_sooner() -> None:
    """Each option is tested behind all others; such runs change several of them at once."""

    options = [
        Branch(f"option {one}", (Branch(f"{one}"),), (Branch(f"not {one}"),)) for one in range(12)
    ]
    program = (Branch("a", (Branch("b", tuple(options)),)),)

    def number_of_runs(diversifies: bool) -> int:
        search = Search(diversifies=diversifies)
        for number, decisions in enumerate(search.runs()):
            if number > 1 and not search.leaves_targets():
                return number
            execute(program, decisions)
        return MAX_RUNS

    assert number_of_runs(diversifies=True) < number_of_runs(diversifies=False) / 2


def test_branches_that_may_shard_come_first_while_no_run_shards_a_model() -> None:
    """`if ddp: ... elif fsdp: ...`: neither of the two first runs shards a model."""

    def execute_program(decisions: Decisions) -> None:
        for key in ("a", "b"):
            decisions.decide(Condition(key, key, subject=key))
            decisions.relevant.add(key)
        if decisions.decide(Condition("ddp", "ddp", subject="ddp")):
            return
        holds = decisions.decide(Condition("fsdp", "fsdp", subject="fsdp"), under=("ddp",))
        decisions.shards = holds
        taken = BranchTaken(holds, ("fsdp",), frozenset([True]), ("ddp",), left_out=(CODE,))
        decisions.note_branch("elif", taken)

    search, aims = Search(leads_to_sharding=lambda code: CODE in code), []
    for decisions in search.runs():
        execute_program(decisions)
        aims.append([condition.key for condition, _ in decisions.forced])
    first = next(aim for aim in aims if aim)
    assert first == ["fsdp"]


def test_the_cause_of_an_early_end_that_stays_is_regretted_too() -> None:
    """A run that ends early because of two keys, one of which was regretted before."""
    search, values = Search(), []
    for decisions in search.runs():
        one = decisions.decide(Condition("one", "one", subject="one"))
        other = decisions.decide(Condition("other", "other", subject="other"))
        if one:
            decisions.note_leaving(["one"])
        if not one and other:
            decisions.note_leaving(["one", "other"])
        values.append((one, other))
    assert (False, False) in values[:3]
