"""The runs of one entry, in its configurations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.interpreter.configurations import Decisions
from fsdplint.interpreter.coverage import Coverage, KeysOfStatements
from fsdplint.interpreter.cuts import Cut
from fsdplint.interpreter.entry_points import entry_point
from fsdplint.interpreter.explored import Explored, NodeValues
from fsdplint.interpreter.frames import OutOfSteps
from fsdplint.interpreter.project import Project
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.search import Search, Shown
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import Site, Wrapped

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
    """

    key: cst.CSTNode
    body: Body
    source: Source
    node: cst.CSTNode
    complete: bool


@dataclass
class EntryRuns:
    """Runs an entry.

    Attributes:
        project: its files.
        entry: the entry.
        max_steps: the bound on its steps over all of its configurations.
        shown: what the runs of other entries have shown.
        coverage: gets what the runs execute.
        first: whether no other entry has a trace yet.
    """

    project: Project
    entry: Entry
    max_steps: int
    shown: set[Shown]
    coverage: Coverage
    first: bool
    result: Explored = field(default_factory=Explored)
    _sites: set[Site] = field(default_factory=set)  # of the events of the kept runs

    def explore(self) -> Explored:
        """Run the entry in its configurations."""
        entry, result = self.entry, self.result
        search = Search(shown=self.shown)
        self.project.consulted = result.consulted = {}
        counted, wraps = False, set[object]()
        events = 0
        runs = search.runs()
        done: list[Decisions] = []
        unsharded: list[tuple[Decisions, KeysOfStatements]] = []
        for decisions in runs:
            if any(decisions.repeat(one) for one in done):
                continue
            done.append(decisions)
            run = self._run(decisions, first=len(done) == 1)
            repeats = self._repeats_others(run, search)
            self._keep(run, search.is_new(decisions))
            if run.trace.entry and not decisions.shards:
                unsharded.append((decisions, run.keys_unsharded))
            counted = counted or decisions.world_size_tested
            wraps |= {event.site for event in run.trace.of(Wrapped)}
            result.steps += run.steps
            events += len(run.trace.events)
            if repeats:
                search.finish(decisions)
                break
            if result.steps > self.max_steps or events > MAX_PROGRAM_EVENTS:
                break
        if not search.finished:
            next(runs, None)  # note what the last run has shown
        self.coverage.add_excluded(unsharded, search.sharding)
        if not search.finished and search.leaves_targets():
            leaves_choices = search.leaves_choices()
            self._cut(entry.node, _configurations(len(done)), unfinished=leaves_choices)
        result.shown = search.outcomes()
        if counted and any(one.shards for one in done):
            self._explore_alone(wraps)
        self.project.consulted = {}
        return result

    def _run(self, decisions: Decisions, *, first: bool) -> Run:
        run = Run(self.project, decisions)
        run.trace.complete = self.entry.complete
        try:
            self.entry.body(run)
        except OutOfSteps as stopped:
            run.trace.complete = False
            # The first run takes every branch, so code that it does not reach is rare.
            self._note_cut(stopped, unfinished=self.entry.complete and first)
        return run

    def _repeats_others(self, run: Run, search: Search) -> bool:
        """Whether a function that no program calls only leads to what other entries have shown.

        Its runs that are aimed at something do not tell: they may have missed it.
        """
        if run.trace.entry or run.decisions.forced or not search.asks_nothing_new(run.decisions):
            return False
        words = self.project.words
        return not any(map(words.stand_in, self.coverage.new_statements(run)))

    def _explore_alone(self, wraps: set[object]) -> None:
        """Run a program on a single rank, where it may not wrap its model.

        Only its coverage and its values are kept, not its trace.
        """
        run = Run(self.project, Decisions(single_rank=True))
        with contextlib.suppress(OutOfSteps):
            self.entry.body(run)
        self.result.steps += run.steps
        self.coverage.add_single_rank(run)
        if wraps - {event.site for event in run.trace.of(Wrapped)}:
            self.result.values.append(NodeValues.of(run))

    def _keep(self, run: Run, new: bool) -> None:
        """Add the results of a run."""
        result = self.result
        run.trace.decisions = dict(run.decisions.values_by_key)
        self.coverage.add(run)
        run.trace.seal()
        result.reached |= run.reached
        result.instantiated |= run.instantiated
        result.sources.update(scope.source for scope in run.module_scopes.values())
        sites = {event.site for event in run.trace.events[run.first_event :]}
        if new or (self.first and not result.traces) or not sites <= self._sites:
            self._sites |= sites
            result.traces.append(run.trace)
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
    ) -> None:
        site = NodeSite(self.entry.source, node)
        self.result.cuts.append(Cut(site, what, inner, unfinished=unfinished))


def _configurations(number: int) -> str:
    return f"not all configurations of what begins here were tried (only {number})"
