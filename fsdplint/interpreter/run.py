"""Abstract execution of a program: one run, in one configuration, giving one trace.

A run walks the libcst tree in the order in which Python executes it. A value that it does not know
is Unknown. The body of a loop of unknown length is executed twice. A test of the rank executes both
branches under guards, and so does a test of a value that varies within the run. Any other test is
decided once per run (`configurations`). Bounded: see `MAX_STEPS` and `MAX_DEPTH`.

`Run` holds the state of the run. Functions that are registered for a type of node execute the
constructs of Python. Functions that are registered for a type of value execute calls:

    @evaluates(cst.Call)
    def eval_call(run: Run, node: cst.Call) -> Value: ...

    @calls(Partial)
    def call_partial(run: Run, function: Partial, call: Call) -> Value: ...

They are in `constructs`. The models of torch functions are in `models`. Code that both share is in
the modules beside this one. All of them import this module, and it imports none of them: `eval`,
`execute` and `call` find the registered function by type (`dispatch`), so constructs that contain
each other do not import each other. `semantics` imports every module that registers something.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import libcst as cst

from fsdplint.interpreter import earlier_values
from fsdplint.interpreter.active_guards import ActiveGuards
from fsdplint.interpreter.configurations import Decisions
from fsdplint.interpreter.dispatch import CALLERS, EVALUATORS, EXECUTORS
from fsdplint.interpreter.event_kinds import DECISIVE, KEEPS_STRUCTURE, OF_DATA
from fsdplint.interpreter.frames import (
    MAX_EVENTS,
    MAX_MODULES,
    MAX_STEPS,
    STEPS_AFTER_SHARDING,
    SUITE,
    Call,
    Change,
    ForwardSummary,
    Frame,
    OutOfSteps,
    OwnTurns,
    Stopped,
    Turns,
)
from fsdplint.interpreter.loop_certainty import StaticCertainty
from fsdplint.interpreter.memoized_functions import Memory
from fsdplint.interpreter.project import Project
from fsdplint.interpreter.run_tables import (
    ArgumentTables,
    DataTables,
    LastEvents,
    ModuleTables,
    StateTables,
    TensorTables,
)
from fsdplint.interpreter.signals import Signal
from fsdplint.interpreter.spread_dicts import SpreadDict
from fsdplint.interpreter.torch_values import PartlyHeld
from fsdplint.interpreter.values import (
    Const,
    Dict,
    Instance,
    Lazy,
    LazyImport,
    ModuleValue,
    Scope,
    Unknown,
    Value,
)
from fsdplint.interpreter.values import Sequence as ListValue
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import (
    Event,
    GradMode,
    Guard,
    Sharded,
    Trace,
    Wrapped,
)

E = TypeVar("E", bound=Event)

_NO_KEYS: frozenset[str] = frozenset()


class Run(
    TensorTables, DataTables, ModuleTables, StateTables, ArgumentTables, LastEvents, ActiveGuards
):
    """One run. `trace` is its result; `evaluations` has the value of each node (see `Program`)."""

    def __init__(self, project: Project, decisions: Decisions) -> None:
        TensorTables.__init__(self)
        DataTables.__init__(self)
        ModuleTables.__init__(self)
        StateTables.__init__(self)
        ArgumentTables.__init__(self)
        LastEvents.__init__(self)
        ActiveGuards.__init__(self, decisions)
        self.project = project
        self.loops: dict[cst.CSTNode, bool] = {}  # whether they visit every element
        self.trace = Trace(producer="static", certainty=StaticCertainty(self.loops, decisions))
        self.evaluations: dict[cst.CSTNode, Value] = {}
        # The dicts that calls spread, by the argument, in the order of the run.
        self.spread_dicts: dict[cst.Arg, dict[SpreadDict | None, None]] = {}
        # The modules that nodes were before, by wrapper, and other objects, by their places.
        self.earlier: dict[cst.CSTNode, dict[str, Value]] = {}
        self.reached: set[cst.CSTNode] = set()  # functions that were entered
        self.instantiated: set[cst.CSTNode] = set()  # classes
        self.executed: set[cst.CSTNode] = set()  # statements and calls
        self._executed_to_end: set[cst.CSTNode] | None = None
        # The keys under which each statement was executed in all cases while nothing was sharded.
        self.keys_unsharded: dict[cst.CSTNode, frozenset[str]] = {}
        self.first_event = 0  # of the entry's own code
        self.stack: list[NodeSite] = []
        self.library_call: Call | None = None  # the innermost call of a modelled function
        self.writes: list[tuple[dict[str, Value], str, Value | None]] | None = None
        self.assumes_sharding = False  # of a model of unknown origin: see `assume_sharding`
        self.in_own_folder = False  # each rank may work in a folder of its own
        self.other_default_device = False  # the program sets the device of new tensors
        self.other_default_dtype = False  # or their dtype
        self.loop_depth: int = 0
        self.own_turns: list[OwnTurns] = []  # the loops that are being executed
        self.repetitions = 0  # loops whose current turn repeats the one before
        self.repeated_loops: set[cst.CSTNode] = set()  # the bodies of loops that made both turns
        self.steps = 0
        self.lines = 0  # that were executed and do something: see `idle_turns`
        self._next_check = 0  # the step at which the bounds are checked again
        self.last_new = 0  # the last step that showed something: see `fruitless`
        self.costly: set[cst.CSTNode] = set()  # functions with a call of many steps
        self.construction_end: int | None = None  # see `long_constructions`
        self.construction_cut: OutOfSteps | None = None  # where one was cut first
        self.marks: set[str] = set()  # names of attributes that were set on parameters
        self.ignored: dict[int, Value] = {}  # what a sharding leaves out, by its event
        self.executing: cst.CSTNode = cst.Pass()  # the statement that is being executed
        self.module_scopes: dict[str, Scope] = {}
        self.imports: list[LazyImport] = []  # of project files, in order
        self.imports_searched = 0  # how many of them were searched for registrations
        self.imports_any = False  # whether a loop imports files by their paths
        self.file_steps: list[tuple[int, float]] = []  # during which an imported file was executed
        self.collectors: set[str] = set()  # the names of classes that collect their subclasses
        self.counters: dict[Hashable, int] = {}
        self.source: Source = Source("", "")
        self.contexts: list[Any] = []  # the Contexts that are open, outermost first
        self.grad_default: GradMode | None = GradMode.ON
        self.callbacks: list[NodeSite] = []  # calls that received the executing function
        self.forwards: dict[Hashable, ForwardSummary] = {}
        self.structure = 0  # grows with each event that may change what a forward does
        self.changes = 0  # see `note_change`
        self.changed: list[Change] = []  # by the forward that is executed
        self.sources: set[Source] = set()  # of the functions that it has entered
        self.forward_begin = 0  # the first step of the innermost forward
        self.calling: list[int] = []  # indices of the Called events that are being executed
        self.commands: dict[cst.CSTNode, Any] = {}  # of groups of commands, by their functions
        self.memory = Memory()
        self.hooks: list[Any] = []  # the Hooks that did not fire yet
        # Whether the test holds of each conditional expression of which one side is evaluated.
        self.chosen_sides: dict[cst.IfExp, bool] = {}
        self.averages: dict[Instance, tuple[ModuleValue, ...]] = {}  # see `unsaved_averages`
        self.turns: dict[Value, Turns] = {}  # see `unequal_turns`
        self.returned: dict[cst.CSTNode, tuple[Value, ...]] = {}  # the tuple that a forward returns
        self.objects: dict[str, Value] = {}  # modules, optimizers, states by their ids
        # What is held in part, by the expression that was evaluated last; see `eval_choice`.
        self.choices: dict[cst.CSTNode, PartlyHeld] = {}
        # The values that names chose, by identity, with the condition of the choice and its key.
        self.chosen: dict[int, tuple[Value, tuple[Guard, str]]] = {}

    # Dispatch on types -------------------------------------------------------------------------

    def eval(self, node: cst.CSTNode) -> Value:
        """Evaluate an expression, and remember its value for the node unless it is a constant."""
        self.steps += 1
        if self.steps >= self._next_check:
            self._check_bounds()
        evaluate = EVALUATORS.get(type(node))
        if evaluate is None:
            for child in node.children:
                if isinstance(child, cst.BaseExpression):
                    self.eval(child)
            return Unknown()
        value = evaluate(self, node)
        if value.settles:
            settled = self.settle(value)
            if settled is not value and isinstance(value, PartlyHeld):
                self.choices[node] = value
            value = settled
        if type(value) is not Const:
            earlier_values.keep(self.evaluations, self.earlier, node, value)
            self.evaluations[node] = value
        return value

    def eval_choice(self, node: cst.CSTNode) -> Value:
        """Evaluate an expression; for a value that there is on some ranks or at times, the choice.

        `eval` gives the value instead, since what follows may read it. A binding, a test and a call
        of the program's own code keep the choice.
        """
        self.choices.pop(node, None)
        value = self.eval(node)
        choice = self.choices.pop(node, None)
        return choice if choice is not None and choice.held is value else value

    def execute(self, node: cst.CSTNode) -> Signal | None:
        """Execute a statement; the signal says how control leaves it early, None if it does not."""
        self.steps += 1
        if self.steps >= self._next_check:
            self._check_bounds()
        execute = EXECUTORS.get(type(node))
        if execute is None:
            return None
        outer, self.executing = self.executing, node
        if node not in self.executed:
            self.executed.add(node)
            self.last_new = self.steps
        if not self.decisions.shards:
            self._note_keys(node)
        signal = execute(self, node)
        self.executing = outer
        return signal

    def _note_keys(self, statement: cst.CSTNode) -> None:
        """Keep the keys of the conditions because of which a statement is executed."""
        known = self.keys_unsharded.get(statement)
        if known is not None and not known:
            return
        keys = self.deciding_keys
        if keys is None:
            keys = self.deciding_keys = frozenset(self.deciding) if self.deciding else _NO_KEYS
        if self.guards:
            keys = keys.union([entry.key for entry in self.guards if entry.key])
        self.keys_unsharded[statement] = keys if known is None else known & keys

    def execute_block(self, body: Sequence[cst.CSTNode]) -> Signal | None:
        for statement in body:
            signal = self.execute(statement)
            if signal is not None:
                return signal
        return None

    def execute_suite(self, suite: cst.BaseSuite) -> Signal | None:
        outer = self.guards
        self.lines += type(suite) is cst.SimpleStatementSuite
        signal = self.execute_block(suite.body)
        if self.guards is not outer and any(entry.until == SUITE for entry in self.guards):
            known = {id(entry) for entry in outer}
            self.guards = [e for e in self.guards if e.until != SUITE or id(e) in known]
        return signal

    def call(self, function: Value, call: Call) -> Value:
        """Call a value. The arguments of an unknown callee escape."""
        function = self.settle(function)
        caller = CALLERS.get(type(function), CALLERS[Value])
        if id(function) not in self.chosen:
            return caller(self, function, call)
        with self.under_guards([self.chosen[id(function)][1]]):
            return caller(self, function, call)

    def settle(self, value: Value) -> Value:
        """Resolve a lazy import, a refined or partly held value or a consumed iterator."""
        if not value.settles:
            return value
        if isinstance(value, LazyImport):
            if value.value is None:
                value.value = Unknown()  # the result of a circular import
                value.value = self.settle(value.load(self))
            value = value.value
        if isinstance(value, Unknown) and value.refined is not None:
            return value.refined
        if isinstance(value, PartlyHeld) and value.held is not None:
            return self.settle(value.held)
        if isinstance(value, Lazy) and value.elements is not None:
            return value.elements
        return value

    # Sites, texts, ids -------------------------------------------------------------------------

    def site(self, node: cst.CSTNode) -> NodeSite:
        return NodeSite(self.source, node)

    def text(self, node: cst.CSTNode) -> str:
        """The text of an expression on one line, without parentheses around it."""
        texts = self.project.texts
        if node not in texts:
            text = " ".join(self.source.tree.code_for_node(node).split())
            if not isinstance(node, cst.Tuple | cst.GeneratorExp):
                for _ in getattr(node, "lpar", ()):
                    text = text[1:-1].strip()
            texts[node] = text
        return texts[node]

    def new_id(self, kind: str) -> str:
        """A new id. In each run, it stands for what the same statement makes."""
        place = kind, self.executing
        count = self.counters[place] = self.counters.get(place, 0) + 1
        number = self.project.numbering.number(kind, self.source, self.executing, count)
        return f"{kind}{number}"

    @property
    def scope(self) -> Scope:
        return self.frames[-1].scope

    def in_unknown_call(self, node: cst.CSTNode) -> AbstractContextManager[None]:
        """Execute a function that unknown code, called at a node, may call now, later or never."""
        return _InUnknownCall(self.callbacks, self.site(node))

    # Events ------------------------------------------------------------------------------------

    def emit(self, kind: type[E], node: cst.CSTNode, **details: Any) -> E:
        """Add an event at a node, under the active guards, to the trace."""
        if issubclass(kind, DECISIVE):
            self.mark_relevant()
        if issubclass(kind, Wrapped | Sharded):
            self.decisions.shards = True
            self.decisions.sharding.update(self.keys_around())
        self.make_room()
        if kind not in OF_DATA:
            self.last_new = self.steps
        if kind not in KEEPS_STRUCTURE:
            self.structure += 1
        event = kind(
            site=self.site(node),
            ranks=self.ranks(),
            guards=tuple(entry.guard for entry in self.guards),
            facts=tuple(self.facts),
            in_loop=self.loop_depth > 0,
            stack=tuple(self.stack),
            callbacks=tuple(self.callbacks),
            **details,
        )
        self.trace.add(event)
        call = self.library_call
        if self.project.describe is not None and call is not None and call.node is node:
            self.trace.arguments[event.index] = self.project.describe(call)
        return event

    def note_change(self, changed: Value | None = None, attribute: str = "") -> None:
        """Count a change of an object that is no local name, or of an attribute of it.

        A list or dict that the innermost forward made itself does not count.
        """
        made_at = changed.made_at if isinstance(changed, ListValue | Dict) else 0
        if not made_at > self.forward_begin > 0:
            self.changes += 1
            if self.forward_begin:
                self.changed.append((changed, attribute))

    def make_room(self) -> None:
        """Raises OutOfSteps if the trace cannot have one more event."""
        if len(self.trace.events) >= MAX_EVENTS:
            raise self.out_of_steps(f"more than {MAX_EVENTS:,} events")

    # Steps -------------------------------------------------------------------------------------

    def _check_bounds(self) -> None:
        """Raises OutOfSteps at a bound, and Stopped if the caller cancelled the work."""
        in_training = self.trace.entry and self.decisions.shards
        most = MAX_STEPS * STEPS_AFTER_SHARDING if in_training else MAX_STEPS
        if self.steps > most:
            raise self.out_of_steps(f"more than {most:,} steps")
        self._next_check = min((self.steps | 255) + 1, most + 1)
        if self.steps & 255:
            return
        if len(self.trace.modules) > MAX_MODULES:
            raise self.out_of_steps(f"more than {MAX_MODULES:,} modules")
        if self.project.stop is not None and self.project.stop():
            raise Stopped

    def out_of_steps(self, bound: str) -> OutOfSteps:
        """The error for a bound that the run reached."""
        return OutOfSteps((*self.stack, self.site(self.executing)), bound)

    @property
    def executed_to_end(self) -> Set[cst.CSTNode]:
        """What it executed before the end of the program in this configuration."""
        return self.executed if self._executed_to_end is None else self._executed_to_end

    def end_here(self) -> None:
        """The program ends here. The run goes on, for what other configurations need."""
        self.trace.end_here()
        if self._executed_to_end is None:
            self._executed_to_end = set(self.executed)

    def begin_function(self) -> None:
        """From here on a function is executed by itself, which no program calls."""
        self.first_event = len(self.trace.events)
        self.executed.clear()
        self._executed_to_end = None

    # Entries -----------------------------------------------------------------------------------

    def module_scope(self, name: str, source: Source, *, main: bool = False) -> Scope:
        """Execute a file of the project (once) and return its names."""
        key = "__main__" if main else name  # also under its dotted name, as in `sys.modules`
        if key in self.module_scopes:
            return self.module_scopes[key]
        scope = Scope(source, kind="module", module_name=name)
        self.module_scopes[key] = scope
        if main:
            self.module_scopes.setdefault(name, scope)
        own_name, package = self.project.module_name(source.path)
        scope.names["__name__"] = Const("__main__" if main else own_name)
        scope.names["__package__"] = Const(package)
        self.module_scopes.setdefault(own_name, scope)
        scope.names["__file__"] = Unknown(origin="__file__")
        with self.at_top_of(scope, main=main):
            self.execute_block(source.tree.body)
        return scope

    @contextmanager
    def at_top_of(self, scope: Scope, *, main: bool = False) -> Iterator[None]:
        """Execute code at the top level of a file."""
        outer = self.source, self.guards, self.loop_depth, self.stack, self.repetitions
        # A module is imported on every rank and in every configuration.
        self.source, self.loop_depth, self.stack, self.repetitions = scope.source, 0, [], 0
        if not main:
            self.guards = []
        self.frames.append(Frame(None, scope))
        number, begin = len(self.file_steps), self.steps
        if not main:
            self.file_steps.append((begin, float("inf")))
        try:
            yield
        finally:
            self.frames.pop()
            if not main:
                self.file_steps[number] = begin, self.steps
            self.source, self.guards, self.loop_depth, self.stack, self.repetitions = outer


class _InUnknownCall:
    """See `Run.in_unknown_call`; faster than a generator."""

    def __init__(self, callbacks: list[NodeSite], site: NodeSite) -> None:
        self._callbacks, self._site = callbacks, site

    def __enter__(self) -> None:
        self._callbacks.append(self._site)

    def __exit__(self, *error: object) -> None:
        self._callbacks.pop()
