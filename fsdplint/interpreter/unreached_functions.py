"""The functions and methods that no program reaches, each run on its own."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Protocol

import libcst as cst

from fsdplint.discovery.relevance import RelevantCode
from fsdplint.interpreter.cuts import Cut
from fsdplint.interpreter.entry_points import called_names, definitions
from fsdplint.interpreter.entry_runs import Entry, EntryRuns
from fsdplint.interpreter.functions_alone import run_alone
from fsdplint.interpreter.program import Program
from fsdplint.interpreter.project import Project
from fsdplint.interpreter.tests_alone import Tests, names_of_test
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.named_sites import NamedSites
from fsdplint.syntax.qualified_names import uses

MAX_FUNCTION_STEPS = 50_000  # for a function that no program reaches
MAX_UNREACHED_STEPS = 1_000_000  # for all such functions that mention FSDP
MAX_OTHERS_STEPS = 400_000  # for all others
MAX_SITE_STEPS = 400_000  # for further configurations of functions with sites that none reached


class Loader(Protocol):
    """What makes the runs of entries, and keeps what they show.

    Attributes:
        project: the files.
        relevant: which code is relevant for FSDP.
        program: what all runs have shown.
        reached: the functions that a run entered.
        instantiated: the classes of which a run made an object.
        steps: those that all runs took.
    """

    project: Project
    relevant: RelevantCode
    program: Program
    reached: set[cst.CSTNode]
    instantiated: set[cst.CSTNode]
    steps: int

    def begin(self, entry: Entry) -> EntryRuns | None: ...
    def advance(self, runs: EntryRuns, steps: int) -> None: ...
    def close(self, runs: EntryRuns) -> None: ...
    def cut(self, cut: Cut) -> None: ...


class UnreachedFunctions:
    """Runs the functions that no program reaches.

    Args:
        loader: makes their runs and keeps what they show.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        # Steps that are left, by whether the functions are relevant for FSDP.
        self._budgets = {True: MAX_UNREACHED_STEPS, False: MAX_OTHERS_STEPS}
        self._unfinished: list[tuple[bool, EntryRuns]] = []

    def explore(self, source: Source) -> None:
        """Run the functions and methods that no program reached, each on its own.

        Each gets one run at first, so that a bound leaves out configurations before functions.
        Functions that are relevant for FSDP have a separate bound, which only large projects reach.
        The order of their calls is unknown, so such a trace is not complete: rules about missing
        calls report nothing.
        """
        called = called_names(source)
        names = self._loader.relevant.names(source)
        tests = Tests(self._loader.project, source)
        named, executed = NamedSites([source]), self._loader.program.executed
        functions = list(definitions(source.tree))
        functions.sort(key=lambda pair: pair[1].name.value in called)
        for owner, function in functions:
            if function in self._loader.reached:
                continue
            tested = names_of_test(self._loader.project, source, owner, function)
            if tested and not tests.are_distributed(function, tested):
                self._loader.program.executed.add_plain(tests.sites_in(function))
                continue
            words = self._loader.project.words
            is_relevant = words.stand_in(function) or uses(function, names.tainted)
            # A collective is a site, too: not all of its code names what is relevant.
            if not is_relevant and not executed.count_left(named.within(function)):
                continue
            if (
                owner is not None
                and function.name.value == "__init__"
                and owner in self._loader.instantiated
            ):
                continue
            matters = (owner or function).name.value in names.bound
            if self._budgets[matters] <= 0:
                what = f"`{function.name.value}` and others were not looked at on their own"
                self._loader.cut(Cut(NodeSite(source, function), what))
                continue
            run_function = partial(
                run_alone,
                source=source,
                owner=owner,
                function=function,
                relevant=self._is_relevant_function,
            )
            entry = Entry(
                function,
                run_function,
                source,
                function,
                complete=False,
                names=tested,
            )
            before = self._loader.steps
            runs = self._loader.begin(entry)
            if runs is not None:
                self._loader.advance(runs, 0)
                if runs.finished:
                    self._loader.close(runs)
                else:
                    self._unfinished.append((matters, runs))
            self._budgets[matters] -= self._loader.steps - before

    def _is_relevant_function(self, source: Source, function: cst.FunctionDef) -> bool:
        """Whether a function is about sharding, optimizers or states, or uses code that is."""
        tainted = self._loader.relevant.names(source).tainted
        return self._loader.project.words.stand_in(function) or uses(function, tainted)

    def finish(self) -> None:
        """Run the functions in their other configurations, with what is left for each of them.

        Functions that have sites that no run has reached come first and have steps of their own:
        the first runs of all functions of a large project may use up the others.
        """
        left = {
            runs: self._loader.program.executed.count_left(_sites_in(runs))
            for _, runs in self._unfinished
        }
        self._unfinished.sort(key=lambda one: left[one[1]], reverse=True)
        budget = MAX_SITE_STEPS
        for _, runs in self._unfinished:
            if left[runs] and budget > 0:
                before = self._loader.steps
                self._loader.advance(runs, budget)
                budget -= self._loader.steps - before
        waiting = Counter(matters for matters, _ in self._unfinished)
        for matters, runs in self._unfinished:
            before = self._loader.steps
            self._loader.advance(runs, max(0, self._budgets[matters]) // waiting[matters])
            self._loader.close(runs)
            self._budgets[matters] -= self._loader.steps - before
            waiting[matters] -= 1
        self._unfinished = []


def _sites_in(runs: EntryRuns) -> set[cst.CSTNode]:
    """The sites in the code of a function."""
    return NamedSites([runs.entry.source]).within(runs.entry.key)
