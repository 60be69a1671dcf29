"""The runs of one entry, in its configurations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from fsdplint.interpreter.configurations import Decisions
from fsdplint.interpreter.coverage import Coverage, KeysOfStatements
from fsdplint.interpreter.cuts import Cut
from fsdplint.interpreter.entry_points import entry_point
from fsdplint.interpreter.exploration_results import Explored, NodeValues
from fsdplint.interpreter.frames import OutOfSteps
from fsdplint.interpreter.project import Project
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.search import Search
from fsdplint.interpreter.search_targets import Shown
from fsdplint.interpreter.sites_left import SitesLeft
from fsdplint.interpreter.unsaved_averages import note_unsaved_averages
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import Site, Trace, Wrapped

STEPS_BEFORE_DIVERSIFYING = (
    500_000  # nodes evaluated, over all configurations; see `Search.diversifies`
)
MAX_RUNS_ALONE = 8  # runs on several ranks that one on a single rank may follow
STEPS_WITH_RUNS_ALONE = 250_000  # the same as for pairs
STEPS_WITH_PAIRS = 250_000  # the same; pairs of decisions rarely show what no decision showed
MAX_PROGRAM_EVENTS = 100_000  # of one program, over all of its configurations

Body = Callable[[Run], None]


@dataclass
class Entry:
    """Code that is run in every relevant configuration.

    Attributes:
        key: the node that it is known by.
        body: runs it.
        source: its file.
        node: where it begins.
        complete: whether it is a program, so that what is missing in it is missing.
        names: those by which it is called, if a user or a test runner calls it, so that it gets no
            model; else none.
    """

    key: cst.CSTNode
    body: Body
    source: Source
    node: cst.CSTNode
    complete: bool
    names: frozenset[str] = frozenset()


@dataclass(eq=False)
class EntryRuns:
    """Runs an entry, in parts if steps are scarce.

    Attributes:
        project: its files.
        entry: the entry.
        shown: what the runs of other entries have shown.
        coverage: gets what the runs execute.
        first: whether no other entry has a trace yet.
        result: what the runs have shown so far.
        finished: whether no further run shows anything.
    """

    project: Project
    entry: Entry
    shown: set[Shown]
    coverage: Coverage
    first: bool
    result: Explored = field(default_factory=Explored)
    finished: bool = False
    _events: int = 0
    _done: list[Decisions] = field(default_factory=list)
    _unsharded: list[tuple[Decisions, KeysOfStatements]] = field(default_factory=list)
    _sites: set[Site] = field(default_factory=set)  # of the events of the kept runs
    _wraps: set[object] = field(default_factory=set)
    _kept: list[tuple[Trace, Mapping[str, Set[Any]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._left = SitesLeft(self.project, self.coverage)
        self._search = Search(shown=self.shown)
        if self.entry.complete:  # what a function calls that no program reaches is run on its own
            self._search.leads_on = self._left.are_behind
            self._search.leads_to_sharding = self._left.shard
        self._runs = self._search.runs()
        self._next = next(self._runs, None)

    def advance(self, max_steps: int) -> None:
        """Make runs until none is left or all runs took so many steps; the first is always made."""
        self.project.consulted = self.result.consulted
        while not self.finished and (not self._done or self.result.steps < max_steps):
            decisions = self._next
            if decisions is None or self._events > MAX_PROGRAM_EVENTS:
                self.finished = True
                break
            if not any(decisions.repeat(one) for one in self._done):
                self._make(decisions)
            self._search.diversifies = self.result.steps > STEPS_BEFORE_DIVERSIFYING
            self._search.tries_pairs = self.result.steps <= STEPS_WITH_PAIRS
            if not self.finished:
                self._next = next(self._runs, None)
        self.result.shown = self._search.outcomes()
        self.project.consulted = {}

    def _make(self, decisions: Decisions) -> None:
        """Make a run and keep what it shows."""
        self._done.append(decisions)
        run = self._run(decisions, first=len(self._done) == 1)
        repeats = self._repeats_others(run)
        self._keep(run, self._search.is_new(decisions) or decisions.usual)
        if run.trace.entry and not decisions.shards:
            self._unsharded.append((decisions, run.keys_unsharded))
        self._wraps |= {event.site for event in run.trace.of(Wrapped)}
        self.result.steps += run.steps
        self._events += len(run.trace.events)
        if repeats:
            self._search.finish(decisions)
            self.finished = True

    def close(self) -> Explored:
        """End the runs; note what they left, and what a single rank executes."""
        search, result = self._search, self.result
        self.project.consulted = result.consulted
        self.coverage.add_excluded(self._unsharded, search.sharding)
        if not search.finished and search.leaves_targets():
            left = _configurations(len(self._done))
            self._cut(self.entry.node, left, untried=search.leaves_choices())
            self._note_untried_tests()
        counted = any(one.world_size_tests for one in self._done)
        if counted and any(one.shards for one in self._done):
            self._explore_alone()
        self.project.consulted = {}
        return result

    def _note_untried_tests(self) -> None:
        """Note in the traces which of their tests had the same outcome in all runs."""
        outcomes: dict[str, set[bool]] = {}
        for done in self._done:
            for key, value in done.values_by_key.items():
                outcomes.setdefault(key, set()).add(value)
        for trace, places in self._kept:
            untried = [key for key in trace.decisions if len(outcomes[key]) == 1]
            trace.untried_tests = frozenset(
                place for key in untried for place in places.get(key, ())
            )

    def _run(self, decisions: Decisions, *, first: bool) -> Run:
        run = Run(self.project, decisions)
        run.trace.complete = self.entry.complete
        try:
            self.entry.body(run)
            note_unsaved_averages(run)
        except OutOfSteps as stopped:
            run.trace.complete = False
            # The first run takes every branch, so code that it does not reach is rare.
            self._note_cut(stopped, unfinished=self.entry.complete and first)
        if run.construction_cut is not None:
            self._note_cut(run.construction_cut, unfinished=False)
        return run

    def _repeats_others(self, run: Run) -> bool:
        """Whether a function that no program calls only leads to what other entries have shown.

        Its runs that are aimed at something do not tell: they may have missed it.
        """
        if run.trace.entry or run.decisions.forced:
            return False
        if not self._search.asks_nothing_new(run.decisions):
            return False
        words = self.project.words
        return not any(map(words.stand_in, self.coverage.new_statements(run)))

    def _explore_alone(self) -> None:
        """Run a program on a single rank, where it may not wrap its model.

        Further runs decide as a run on several ranks that tested their number at other places.
        """
        tested = self._run_alone(Decisions(single_rank=True))
        for done in self._done[:MAX_RUNS_ALONE]:
            if self.result.steps > STEPS_WITH_RUNS_ALONE:
                break
            if not done.world_size_tests <= tested:
                values = done.values_by_key
                alone = Decisions(
                    done.base, done.forced, values, fixed=values.keys(), single_rank=True
                )
                tested |= self._run_alone(alone) | done.world_size_tests

    def _run_alone(self, decisions: Decisions) -> set[object]:
        """Keep the coverage and the values of a run, and not its trace; its tests of the ranks."""
        run = Run(self.project, decisions)
        with contextlib.suppress(OutOfSteps):
            self.entry.body(run)
        self.result.steps += run.steps
        self.coverage.add_single_rank(run)
        if self._wraps - {event.site for event in run.trace.of(Wrapped)}:
            self.result.values.append(NodeValues.of(run))
        return decisions.world_size_tests

    def _keep(self, run: Run, new: bool) -> None:
        """Add the results of a run."""
        result = self.result
        run.trace.decisions = dict(run.decisions.values_by_key)
        run.trace.tests = run.decisions.tests()
        run.trace.sharding_keys = run.decisions.sharding | run.decisions.of_options
        if self.entry.complete:
            self._left.note(run)
        self.coverage.add(run, self.entry.names)
        run.trace.seal()
        result.reached |= run.reached
        result.instantiated |= run.instantiated
        result.sources.update(scope.source for scope in run.module_scopes.values())
        sites = {event.site for event in run.trace.events[run.first_event :]}
        if new or (self.first and not result.traces) or not sites <= self._sites:
            self._sites |= sites
            result.traces.append(run.trace)
            self._kept.append((run.trace, run.decisions.places))
            result.values.append(NodeValues.of(run))

    def _note_cut(self, stopped: OutOfSteps, *, unfinished: bool) -> None:
        """Record where a run reached a bound: in the file that was run, and in any file.

        unfinished: see `Cut`.
        """
        # The file of a callback that another file calls is not always known.
        source = self.entry.source
        at = [site for site in stopped.at if site.source.parent(site.node) is not None]
        here = [site for site in at if site.source is source]
        inner = at[-1] if at else None
        site = here[0] if here else NodeSite(source, entry_point(source))
        what = f"it was followed up to here only ({stopped.bound})"
        inner = inner if inner != site else None
        self._cut(site.node, what, inner, unfinished=unfinished)

    def _cut(
        self,
        node: cst.CSTNode,
        what: str,
        inner: NodeSite | None = None,
        *,
        unfinished: bool = False,
        untried: bool = False,
    ) -> None:
        site = NodeSite(self.entry.source, node)
        cut = Cut(site, what, inner, unfinished=unfinished, untried=untried)
        self.result.cuts.append(cut)


def _configurations(number: int) -> str:
    return f"not all configurations of what begins here were tried (only {number})"
