"""Abstract execution of a program: one run, in one configuration, giving one trace.

The interpreter walks the libcst tree the way Python would execute it. What it does not know is
Unknown; a loop's body is executed twice; a branch on the rank is executed under a guard, a branch
on something that varies within the run is executed as if both happened, and any other branch is
decided once per run (`decisions`). Bounded: see `MAX_STEPS` and `MAX_DEPTH`.

The class holds the state of the run and puts together the parts: statements, expressions, calls,
modules. What the functions of torch mean is in `fsdplint.interpreter.models`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import libcst as cst

from fsdplint.interpreter import lazy
from fsdplint.interpreter.assignment import Assignment
from fsdplint.interpreter.attributes import Attributes
from fsdplint.interpreter.branches import Branches
from fsdplint.interpreter.calls import Calls
from fsdplint.interpreter.configurations import Decisions
from fsdplint.interpreter.contexts import Contexts
from fsdplint.interpreter.expressions import Expressions
from fsdplint.interpreter.frames import (
    MAX_EVENTS,
    MAX_MODULES,
    MAX_STEPS,
    Frame,
    GuardEntry,
    OutOfSteps,
    Stopped,
)
from fsdplint.interpreter.imports import Importing
from fsdplint.interpreter.iteration import Iteration
from fsdplint.interpreter.loop_certainty import StaticCertainty
from fsdplint.interpreter.loops import Loops
from fsdplint.interpreter.memoizing import Memory
from fsdplint.interpreter.module_calls import ModuleCalls
from fsdplint.interpreter.modules import Modules
from fsdplint.interpreter.optimizers import Optimizers
from fsdplint.interpreter.parameter_filters import Choosing
from fsdplint.interpreter.parameter_marks import Marks
from fsdplint.interpreter.scopes import Scope
from fsdplint.interpreter.statements import Statements
from fsdplint.interpreter.values import Const, Function, Unknown, Value
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import (
    Clipped,
    Event,
    Gathered,
    GradMode,
    Guard,
    GuardKind,
    MethodRegistered,
    ModuleCopied,
    OptimizerBuilt,
    ParametersTied,
    Ranks,
    Sharded,
    StateLoaded,
    StateTaken,
    SyncSwitched,
    Trace,
    Wrapped,
)

if TYPE_CHECKING:
    from fsdplint.interpreter.project import Project

E = TypeVar("E", bound=Event)

# Events on which it depends whether others are right: their conditions are worth a configuration.
DECISIVE = (
    Wrapped, Sharded, OptimizerBuilt, StateTaken, StateLoaded, SyncSwitched, MethodRegistered,
    Gathered, ModuleCopied, ParametersTied, Clipped,
)  # fmt: skip


class Interpreter(
    Statements,
    Branches,
    Loops,
    Contexts,
    Assignment,
    Expressions,
    Attributes,
    Iteration,
    Choosing,
    Calls,
    Modules,
    ModuleCalls,
    Optimizers,
    Marks,
    Importing,
):
    """One run. `trace` is its result; `evaluations` what each node was (see `Program`)."""

    def __init__(self, project: Project, decisions: Decisions) -> None:
        self.project = project
        self.decisions = decisions
        self.trace = Trace(producer="static", certainty=StaticCertainty())
        self.evaluations: dict[cst.CSTNode, Value] = {}
        self.earlier: dict[
            cst.CSTNode, dict[str, Value]
        ] = {}  # modules that nodes were, by wrapper
        self.reached: set[cst.CSTNode] = set()  # functions that were entered
        self.instantiated: set[cst.CSTNode] = set()  # classes
        self.frames: list[Frame] = []
        self.guards: list[GuardEntry] = []
        self.stack: list[NodeSite] = []
        self.loop_depth: int = 0
        self.loop_guards: list[list[GuardEntry]] = []  # that stand around each loop
        self.steps = 0
        self.marks: set[str] = set()  # names of attributes that were set on parameters
        self.executing: cst.CSTNode = cst.Pass()  # the statement that is being executed
        self.module_scopes: dict[str, Scope] = {}
        self.counters: dict[str, int] = {}
        self.source: Source = Source("", "")
        self.contexts: list[Any] = []  # the Contexts that are open, outermost first
        self.grad_default: GradMode | None = GradMode.ON
        self.callbacks: list[NodeSite] = []  # calls that were given what is being executed
        self.calling: list[int] = []  # indices of the Called events that are being executed
        self.launcher_arguments: dict[str, NodeSite] = {}  # where they are added, by destination
        self.seeded: bool | None = None  # alike on all ranks (True) or not (False)
        self.memory = Memory()
        self.objects: dict[str, Value] = {}  # modules, optimizers, states by their ids

    # Sites, texts, ids -------------------------------------------------------------------------

    def site(self, node: cst.CSTNode) -> NodeSite:
        return NodeSite(self.source, node)

    def text(self, node: cst.CSTNode) -> str:
        """The text of an expression on one line."""
        texts = self.project.texts
        if node not in texts:
            texts[node] = " ".join(self.source.tree.code_for_node(node).split())
        return texts[node]

    def new_id(self, kind: str) -> str:
        """A fresh id; the same program makes the same ids in each run."""
        number = self.counters[kind] = self.counters.get(kind, 0) + 1
        return f"{kind}{number}"

    @property
    def scope(self) -> Scope:
        return self.frames[-1].scope

    # Guards ------------------------------------------------------------------------------------

    @contextmanager
    def guarded(self, guards: Iterable[tuple[Guard, str]]) -> Iterator[None]:
        entries = [GuardEntry(guard, key) for guard, key in guards]
        self.guards.extend(entries)
        try:
            yield
        finally:
            for entry in entries:
                self.guards = [e for e in self.guards if e is not entry]

    def leave_guards(self, guards: Iterable[tuple[Guard, str]], until: str) -> None:
        """From here on, until the end of the loop body or function, these conditions hold."""
        self.guards.extend(GuardEntry(guard, key, until) for guard, key in guards)

    @contextmanager
    def perhaps(self, node: cst.CSTNode) -> Iterator[None]:
        """Code that cannot be followed is given, at a node, what is executed within: it may call
        it, or not, or later."""
        self.callbacks.append(self.site(node))
        try:
            yield
        finally:
            self.callbacks.pop()

    def ranks(self) -> Ranks:
        """The ranks that execute this point."""
        result = Ranks.ALL
        for entry in self.guards:
            if entry.guard.kind is GuardKind.RANK:
                ranks = entry.guard.ranks
                if result is Ranks.ALL:
                    result = ranks
                elif ranks is Ranks.ONE:
                    result = Ranks.ONE
                elif result is not Ranks.ONE and ranks is not result:
                    result = Ranks.SOME
        return result

    def mark_relevant(self) -> None:
        """Something happened under the present conditions that other things may depend on."""
        for entry in self.guards:
            if entry.guard.kind is GuardKind.CONFIG:
                self.decisions.relevant.add(entry.key)

    # Events ------------------------------------------------------------------------------------

    def emit(self, kind: type[E], node: cst.CSTNode, **details: Any) -> E:
        """Add an event at a node, under the present guards, to the trace."""
        if issubclass(kind, DECISIVE):
            self.mark_relevant()
        if len(self.trace.events) >= MAX_EVENTS:
            raise self.out_of(f"more than {MAX_EVENTS:,} events")
        event = kind(
            site=self.site(node),
            ranks=self.ranks(),
            guards=tuple(entry.guard for entry in self.guards),
            in_loop=self.loop_depth > 0,
            stack=tuple(self.stack),
            callbacks=tuple(self.callbacks),
            **details,
        )
        return self.trace.add(event)

    # Steps -------------------------------------------------------------------------------------

    def step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise self.out_of(f"more than {MAX_STEPS:,} steps")
        if self.steps & 255:
            return
        if len(self.trace.modules) > MAX_MODULES:
            raise self.out_of(f"more than {MAX_MODULES:,} modules")
        if self.project.stop is not None and self.project.stop():
            raise Stopped

    def out_of(self, bound: str) -> OutOfSteps:
        """What is raised where the run meets a bound."""
        return OutOfSteps((*self.stack, self.site(self.executing)), bound)

    # Entries -----------------------------------------------------------------------------------

    def module_scope(self, name: str, source: Source, *, main: bool = False) -> Scope:
        """Execute a file of the project (once) and return its names."""
        key = "__main__" if main else name
        if key in self.module_scopes:
            return self.module_scopes[key]
        scope = Scope(source, kind="module", module_name=name)
        self.module_scopes[key] = scope
        if main:
            self.module_scopes.setdefault(name, scope)
        scope.names["__name__"] = Const("__main__" if main else name)
        scope.names["__file__"] = Unknown(origin="__file__")
        outer = self.source, self.guards, self.loop_depth, self.stack
        # What a module does when it is imported, it does on every rank and in every configuration.
        self.source, self.loop_depth, self.stack = source, 0, []
        if not main:
            self.guards = []
        self.frames.append(Frame(None, scope))
        try:
            self.execute_block(source.tree.body)
        finally:
            self.frames.pop()
            self.source, self.guards, self.loop_depth, self.stack = outer
        return scope

    def run_function(self, function: Function, receiver: Value | None = None) -> None:
        """Execute a function that no program reaches, with unknown arguments."""
        self.source = function.site.source
        self.frames.append(Frame(None, function.scope))
        try:
            result = self.call_function(function, receiver, [], {}, function.node, open_call=True)
            lazy.consume(self, result)
        finally:
            self.frames.pop()
