"""Coverage: which sites of the contract's API the runs of a program reached, and why others not.

A site is covered if a run that shards a model executed it. It is also covered if a run executed it
and no run can reach it with a sharded model. There are three such cases: the names in the program,
or in a test, lead to no call that shards, a condition excludes the sharding there (the `else` of
`if args.fsdp:`), or only a program on a single rank reaches the site. `fsdplint.syntax.api_sites`
finds the sites, so that their number does not depend on what was executed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst

from fsdplint.interpreter.configurations import Decisions
from fsdplint.interpreter.gaps import Gap, SiteCoverage
from fsdplint.interpreter.run import Run
from fsdplint.source.source import STATEMENTS, Source
from fsdplint.syntax.api_sites import ApiSite, sites_in
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.named_sites import lead_to_sharding
from fsdplint.syntax.qualified_names import walk
from fsdplint.trace import Sharded, Wrapped

_SHARDING = (Sharded, Wrapped)
KeysOfStatements = Mapping[cst.CSTNode, Set[str]]


@dataclass
class Coverage:
    """What all runs of a program executed.

    Attributes:
        sharded: statements and calls that a run executed in which a model is sharded.
        unsharded: those that another run executed.
        plain: those of them that no run of their program reaches with a sharded model.
        functions: the functions that the run of a program, or of a test, entered.
    """

    sharded: set[cst.CSTNode] = field(default_factory=set)
    unsharded: set[cst.CSTNode] = field(default_factory=set)
    plain: set[cst.CSTNode] = field(default_factory=set)
    functions: set[cst.CSTNode] = field(default_factory=set)

    def copy(self) -> Coverage:
        return Coverage(
            set(self.sharded), set(self.unsharded), set(self.plain), set(self.functions)
        )

    def add(self, run: Run, names: Set[str]) -> None:
        """Add what a run executed.

        names: those by which its entry is called, see `Entry`.
        """
        if names:
            self.functions |= run.reached
        events = run.trace.events[run.first_event :]
        if run.assumes_sharding or any(isinstance(event, _SHARDING) for event in events):
            self.sharded |= run.executed_to_end
            return
        if not names:
            return  # a function that no program calls, with unknown arguments
        self.unsharded |= run.executed_to_end
        sources = {scope.source.path: scope.source for scope in run.module_scopes.values()}
        entry = sources.get(run.trace.entry or "")
        if not lead_to_sharding(names, sources.values(), entry):
            self.plain |= run.executed_to_end

    def add_plain(self, nodes: Iterable[cst.CSTNode]) -> None:
        """Add code that is called, and at which no model can be sharded."""
        self.plain.update(nodes)

    def new_statements(self, run: Run) -> Set[cst.CSTNode]:
        """What a run executed, and no earlier one did with a model that is sharded if its is."""
        new = run.executed_to_end - self.sharded
        return new if run.decisions.shards else new - self.unsharded

    def add_single_rank(self, run: Run) -> None:
        """Add what only a run on a single rank executed, which shards no model."""
        if run.trace.entry and not run.decisions.shards:
            self.plain |= run.executed_to_end - self.sharded - self.unsharded

    def add_excluded(
        self, runs: Iterable[tuple[Decisions, KeysOfStatements]], sharding: Set[tuple[str, bool]]
    ) -> None:
        """Add what the runs of one entry executed under conditions that exclude the sharding.

        Args:
            runs: those that sharded no model: their decisions, and for each statement the keys
                under which it was executed in all cases.
            sharding: the keys under which other runs of the entry sharded a model, and how these
                were decided.
        """
        excluded: set[cst.CSTNode] = set()
        others: set[cst.CSTNode] = set()
        needed = {key: value for key, value in sharding if (key, not value) not in sharding}
        for decisions, statements in runs:
            excluding = {
                key for key in decisions.values_by_key if _excludes(decisions, key, needed)
            }
            for node, keys in statements.items():
                (others if keys.isdisjoint(excluding) else excluded).add(node)
        self.plain |= excluded - others

    def count_left(self, nodes: Iterable[cst.CSTNode]) -> int:
        """The number of sites that no run reached as it should."""
        return sum(node not in self.sharded and node not in self.plain for node in nodes)

    def of(
        self, sources: Iterable[Source], cut: Container[str], program: Iterable[Source]
    ) -> Iterator[SiteCoverage]:
        """What the runs did with the sites of some files, in source order.

        Args:
            sources: the files.
            cut: the paths of the files in which the work met a bound.
            program: all files of the program.
        """
        called = _Called(self, program)
        for source in sources:
            for site in sites_in(source):
                yield self._site(source, site, cut, called)

    def _site(
        self, source: Source, site: ApiSite, cut: Container[str], called: _Called
    ) -> SiteCoverage:
        if site.node in self.sharded or site.node in self.plain:
            return SiteCoverage(source, site)
        if site.node in self.unsharded:
            if source.statement(site.node) in self.plain:
                return SiteCoverage(source, site)
            return SiteCoverage(source, site, Gap.UNSHARDED)
        gap, detail = self._gap(source, site.node, called)
        if source.path in cut and gap is not Gap.UNCALLED:
            return SiteCoverage(source, site, Gap.BOUND)
        return SiteCoverage(source, site, gap, detail)

    def _gap(self, source: Source, node: cst.CSTNode, called: _Called) -> tuple[Gap, str]:
        child, parent = node, source.parent(node)
        while parent is not None:
            if isinstance(parent, cst.FunctionDef) and parent not in self.functions:
                return called.gap(source, parent)
            executed = parent in self.sharded or parent in self.unsharded
            if executed and isinstance(parent, STATEMENTS):
                return _branch_gap(source, parent, child)
            if isinstance(parent, cst.IndentedBlock | cst.Module):
                before = parent.body[: list(parent.body).index(child)]  # type: ignore[arg-type]
                if any(one in self.sharded or one in self.unsharded for one in before):
                    return Gap.LEFT, ""
            child, parent = parent, source.parent(parent)
        return Gap.LEFT, ""


def _excludes(decisions: Decisions, key: str, needed: Mapping[str, bool]) -> bool:
    """Whether the decision of a key contradicts one of those without which nothing is sharded.

    It may be the opposite one, or imply that: `mode == "ddp"` excludes `mode == "fsdp"`.
    """
    value = decisions.values_by_key[key]
    if key in needed:
        return value is not needed[key]
    conditions = decisions.conditions
    one_decision = Decisions(forced=((conditions[key], value),))
    return any(
        one_decision.infer(conditions[other]) is not expected
        for other, expected in needed.items()
        if other in conditions and one_decision.infer(conditions[other]) is not None
    )


def _branch_gap(source: Source, statement: cst.CSTNode, child: cst.CSTNode) -> tuple[Gap, str]:
    """Why a part of a statement that a run executed was not."""
    if isinstance(child, cst.ExceptHandler | cst.ExceptStarHandler):
        return Gap.HANDLER, ""
    if isinstance(
        child, cst.IndentedBlock | cst.Else | cst.If | cst.MatchCase | cst.SimpleStatementSuite
    ):
        head = source.tree.code_for_node(statement).strip().partition("\n")[0]
        return Gap.BRANCH, head.rstrip(":")
    return Gap.EXPRESSION, ""


class _Called:
    """Where the files of a program call functions by their names, worked out when it is asked."""

    def __init__(self, coverage: Coverage, program: Iterable[Source]) -> None:
        self._coverage = coverage
        self._program = program

    @cached_property
    def _calls(self) -> dict[str, list[tuple[Source, cst.Call]]]:
        found: dict[str, list[tuple[Source, cst.Call]]] = {}
        for source in self._program:
            for node in walk(source):
                if isinstance(node, cst.Call) and isinstance(node.func, cst.Name | cst.Attribute):
                    last = node.func if isinstance(node.func, cst.Name) else node.func.attr
                    found.setdefault(last.value, []).append((source, node))
        return found

    def gap(self, source: Source, function: cst.FunctionDef) -> tuple[Gap, str]:
        name, of_class = _called_as(source, function)
        calls = [
            call
            for home, call in self._calls.get(name, ())
            if of_class or home is source or _names_function(home, call)
        ]
        if not calls:
            return Gap.UNCALLED, name
        reached = self._coverage.sharded | self._coverage.unsharded
        if any(call in reached for call in calls):
            return Gap.UNKNOWN_CALLEE, name
        return Gap.UNREACHED_CALL, name


def _called_as(source: Source, function: cst.FunctionDef) -> tuple[str, bool]:
    """The name by which code calls a function, and whether the function is part of a class."""
    block = source.parent(function)
    owner = source.parent(block) if block is not None else None
    of_class = isinstance(owner, cst.ClassDef)
    if isinstance(owner, cst.ClassDef) and function.name.value == "__init__":
        return owner.name.value, of_class
    return function.name.value, of_class


def _names_function(source: Source, call: cst.Call) -> bool:
    """Whether a call names a function or a member of a module, and no method of an object."""
    head = dotted_name(call.func).partition(".")[0]
    if isinstance(call.func, cst.Name):
        return True
    return any(item.local == head for item in bindings_of(source).imports())
