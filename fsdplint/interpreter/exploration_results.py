"""What the runs of one entry have shown, kept so that no later load of the same files repeats them.

An entry is a program, or a function that no program reaches. Its runs depend on the files that they
execute and on answers about other files: where these are the same, so are the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.interpreter.rank_local import may_differ_between_ranks
from fsdplint.interpreter.spread_dicts import SpreadDict
from fsdplint.interpreter.values import Const, Unknown, Value
from fsdplint.source.source import Source

if TYPE_CHECKING:
    from fsdplint.interpreter.cuts import Cut
    from fsdplint.interpreter.module_files import FileAnswer, FileQuestion
    from fsdplint.interpreter.run import Run
    from fsdplint.interpreter.search_targets import Shown
    from fsdplint.trace import Trace


@dataclass(frozen=True)
class NodeValues:
    """The values of the nodes of a run, except constants and unknown values.

    Attributes:
        last: the last value of each node.
        earlier: those before it, of the nodes that were several modules or objects.
        spread: the dicts that calls spread, by the argument; None stands for one with unknown keys.
        of_rank: the nodes whose values derive from the rank, its process or its data.
    """

    last: Mapping[cst.CSTNode, Value]
    earlier: Mapping[cst.CSTNode, Mapping[str, Value]]
    spread: Mapping[cst.Arg, Iterable[SpreadDict | None]]
    of_rank: Set[cst.CSTNode] = frozenset()

    @classmethod
    def of(cls, run: Run) -> NodeValues:
        last: dict[cst.CSTNode, Value] = {}
        of_rank: set[cst.CSTNode] = set()
        for node, held in run.evaluations.items():
            value = run.settle(held) if held.settles else held
            unknown = isinstance(value, Unknown) and value.part_of is None
            if not unknown and not isinstance(value, Const):
                last[node] = value
            if may_differ_between_ranks(value):
                of_rank.add(node)
        return cls(last, run.earlier, run.spread_dicts, of_rank)

    def values(self, node: cst.CSTNode) -> Iterator[Value]:
        if node in self.last:
            yield from self.earlier.get(node, {}).values()
            yield self.last[node]


@dataclass(eq=False)
class Explored:
    """What the runs of one entry have shown.

    Attributes:
        traces: those that differ in what something depends on.
        values: the values of nodes, by run.
        reached: the functions that were entered.
        instantiated: the classes.
        sources: the files that were executed.
        shown: the outcomes of tests.
        cuts: the bounds that were reached.
        steps: the nodes that were evaluated.
        consulted: what the runs asked about files that they do not execute, with the answers.
    """

    traces: list[Trace] = field(default_factory=list)
    values: list[NodeValues] = field(default_factory=list)
    reached: set[cst.CSTNode] = field(default_factory=set)
    instantiated: set[cst.CSTNode] = field(default_factory=set)
    sources: set[Source] = field(default_factory=set)
    shown: set[Shown] = field(default_factory=set)
    cuts: list[Cut] = field(default_factory=list)
    steps: int = 0
    consulted: dict[FileQuestion, FileAnswer] = field(default_factory=dict)


class Evaluations:
    """The values of nodes in all runs that were kept."""

    def __init__(self) -> None:
        self._runs: list[NodeValues] = []
        # A migration asks for the same nodes often, and for many that have no values.
        self._found: dict[cst.CSTNode, list[Value]] = {}
        self._nodes: set[cst.CSTNode] = set()

    def add(self, runs: Iterable[NodeValues]) -> None:
        for run in runs:
            self._runs.append(run)
            self._nodes.update(run.last)
        self._found.clear()

    def __iter__(self) -> Iterator[cst.CSTNode]:
        return iter(dict.fromkeys(node for run in self._runs for node in run.last))

    def of(self, node: cst.CSTNode) -> list[Value]:
        """The distinct values of a node, in the order of the runs; empty if no run reached it."""
        if node not in self._nodes:
            return []
        known = self._found.get(node)
        if known is None:
            found = (value for run in self._runs for value in run.values(node))
            known = self._found[node] = list({id(value): value for value in found}.values())
        return list(known)

    def is_of_rank(self, node: cst.CSTNode) -> bool:
        """Whether a value of a node derives from the rank, its process or its data."""
        return any(node in run.of_rank for run in self._runs)

    def spread(self, arg: cst.Arg) -> list[SpreadDict | None]:
        """The distinct dicts that a call spreads; None stands for one with unknown keys."""
        return list(dict.fromkeys(one for run in self._runs for one in run.spread.get(arg, ())))

    def together(self, *nodes: cst.CSTNode) -> Iterator[tuple[list[Value], ...]]:
        """The values of several nodes in each run that reached all of them."""
        for run in self._runs:
            if all(node in run.last for node in nodes):
                yield tuple(list(run.values(node)) for node in nodes)
