"""A trace: the events of one run of a program, in order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Set
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fsdplint.trace.base import Event, Module, Sharding
from fsdplint.trace.certainty import Certainty
from fsdplint.trace.history import History, Shardings
from fsdplint.trace.launch import Escaped
from fsdplint.trace.modules import ModuleBuilt, Sharded, Wrapped
from fsdplint.trace.training import BackwardRun, OptimizerStepped

if TYPE_CHECKING:
    from fsdplint.trace.arguments import Arguments
    from fsdplint.trace.decided_tests import DecidedTest
    from fsdplint.trace.torch_target import Target

E = TypeVar("E", bound=Event)
R = TypeVar("R")


def _index(event: Event) -> int:
    return event.index


class Trace:
    """The events of one run, in order, with the modules that they name."""

    def __init__(
        self, *, producer: str, complete: bool = True, certainty: Certainty | None = None
    ) -> None:
        """Make an empty trace.

        producer: "static" or "runtime". complete: False if parts could not be followed.
        certainty: the certainty of the producer; None for a recorded trace.

        Its `target` is the torch version that the program targets, if known. Its `entry` is the
        file that is run, if the trace is of a whole program. Its `arguments` describe the calls
        that made events, by the index of the event; they are empty unless the interpreter was
        asked. Its `unit_arguments` are those of units with arguments of their own, by the index of
        the event and the module. Its `decisions` are the conditions that the interpreter decided
        for the run; its `tests` are the tests that they come from. Its `sharding_keys` are those of
        the decisions because of which it shards what it shards, with these options. Its
        `untried_tests` are the nodes of tests with only one outcome in all runs of a program of
        which not all configurations were tried. Its `fails_at` is the number of events before an
        error that certainly ends the program, if the interpreter went on after it.
        """
        self.producer = producer
        self.complete = complete
        self.certainty = certainty or Certainty()
        self.events: list[Event] = []
        self.modules: dict[str, Module] = {}
        self.arguments: dict[int, Arguments] = {}
        self.unit_arguments: dict[tuple[int, str], Arguments] = {}
        self.decisions: dict[str, bool] = {}
        self.tests: dict[str, DecidedTest] = {}
        self.sharding_keys: Set[str] = frozenset()
        self.untried_tests: Set[Any] = frozenset()
        self.fails_at: int | None = None
        self.target: Target | None = None
        self.entry: str | None = None
        self._sealed = False
        self._end: int | None = None
        self._parents: dict[str, list[str]] | None = None
        # The events of some classes, with the number of events that were searched for them.
        self._kinds: dict[tuple[type[Event], ...], tuple[list[Event], int]] = {}
        self._history: tuple[list[Wrapped | Sharded], History] = [], History([])
        self._built: dict[str, ModuleBuilt] = {}
        self._searched = 0  # of the events that built modules
        self._answers: dict[Callable[[Trace], object], object] = {}

        # How the program ended on each rank: "ok", "raised", "exit", "stopped" (recorded traces).
        self.ends: dict[int, str] = {}

    def lacks(self, since: str) -> bool:
        """Whether the torch that the program targets certainly lacks what a version added."""
        return self.target is not None and self.target.lacks(since)

    def add(self, event: E) -> E:
        event.index = len(self.events)
        self.events.append(event)
        return event

    def drop(self, begin: int) -> None:
        """Drop the events from an index on, which were added for a test only."""
        del self.events[begin:]
        self._kinds, self._built, self._searched = {}, {}, 0

    def end_here(self) -> None:
        """The program ends here. Events that are added later are dropped when it is sealed."""
        if self._end is None:
            self._end = len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def seal(self) -> None:
        """Mark the trace as finished: it drops what comes after its end, and caches the answers to
        queries.

        Rules ask the same query for each of many events.
        """
        if self._end is not None:
            del self.events[self._end :]
            self.arguments = {at: made for at, made in self.arguments.items() if at < self._end}
            kept = self.unit_arguments.items()
            self.unit_arguments = {key: made for key, made in kept if key[0] < self._end}
        self._sealed = True
        self._parents, self._kinds, self._answers = None, {}, {}
        self._built, self._searched = {}, 0

    def answer(self, query: Callable[[Trace], R]) -> R:
        """The answer to a query about the trace, which a finished trace gives once."""
        if not self._sealed:
            return query(self)
        if query not in self._answers:
            self._answers[query] = query(self)
        return cast("R", self._answers[query])

    def of(self, kind: type[E], *kinds: type[E]) -> Iterator[E]:
        """The events of these classes, in order."""
        return iter(self._of((kind, *kinds)))

    def _of(self, kinds: tuple[type[E], ...]) -> list[E]:
        known, seen = self._kinds.get(kinds, ([], 0))
        if seen < len(self.events):
            found = [event for event in islice(self.events, seen, None) if isinstance(event, kinds)]
            known = [*known, *found] if found else known  # who reads the earlier list goes on
            self._kinds[kinds] = known, len(self.events)
        return cast("list[E]", known)

    def before(self, event: Event, kind: type[E], *kinds: type[E]) -> Iterator[E]:
        """The events of these classes before `event`, in order."""
        found = self._of((kind, *kinds))
        return iter(found[: bisect_left(found, event.index, key=_index)])

    def after(self, event: Event, kind: type[E], *kinds: type[E]) -> Iterator[E]:
        """The events of these classes after `event`, in order."""
        found = self._of((kind, *kinds))
        return iter(found[bisect_right(found, event.index, key=_index) :])

    def built(self, module: str) -> ModuleBuilt | None:
        """The event that built a module; None if the trace does not show it."""
        for event in islice(self._of((ModuleBuilt,)), self._searched, None):
            self._built.setdefault(event.module, event)
            self._searched += 1
        return self._built.get(module)

    # The module tree ------------------------------------------------------------------------

    def module(self, module: str) -> Module:
        return self.modules[module]

    def submodules(self, *modules: str) -> list[str]:
        """The modules and all their submodules (through wrappers too), parents first."""
        seen: dict[str, None] = {}
        stack = [*reversed(modules)]
        while stack:
            current = stack.pop()
            if current in seen or current not in self.modules:
                continue
            seen[current] = None
            info = self.modules[current]
            below = list(info.children.values())
            if info.inner is not None:
                below.append(info.inner)
            stack.extend(reversed(below))
        return list(seen)

    def contains(self, ancestor: str, module: str) -> bool:
        """Whether `module` is `ancestor` or lies under it."""
        if not self._sealed:
            return module in self.submodules(ancestor)
        if ancestor == module:
            return module in self.modules
        return any(one == ancestor for one in self._above(module))

    def ancestors(self, module: str) -> list[str]:
        """The modules that contain `module`, without the module."""
        above = set(self._above(module))
        return [m for m in self.modules if m != module and m in above]

    def _above(self, module: str) -> Iterator[str]:
        """The modules that contain a module, nearest first."""
        parents = self._parents
        if parents is None:
            parents = self._parents_of_all()
            if self._sealed:
                self._parents = parents
        seen = {module}
        todo = [module]
        for current in todo:  # grows while it is walked
            for parent in parents.get(current, ()):
                if parent not in seen:
                    seen.add(parent)
                    todo.append(parent)
                    yield parent

    def _parents_of_all(self) -> dict[str, list[str]]:
        result: dict[str, list[str]] = {}
        for module, info in self.modules.items():
            below = [*info.children.values(), *([info.inner] if info.inner is not None else [])]
            for child in below:
                if child in self.modules:
                    result.setdefault(child, []).append(module)
        return result

    def family(self, module: str) -> set[str]:
        """The module, what it consists of, and what it is part of."""
        return {*self.submodules(module), *self.ancestors(module)}

    def related(self, one: str, other: str) -> bool:
        """Whether one of the two contains the other: they share parameters."""
        return self.contains(one, other) or self.contains(other, one)

    def unwrap(self, module: str) -> str:
        """The module inside all wrappers."""
        seen = set()
        while module not in seen:
            seen.add(module)
            inner = self.modules[module].inner
            if inner is None:
                return module
            module = inner
        return module

    def unwrapped_to(self, module: str, wanted: Container[str]) -> str | None:
        """The module or the first inside its wrappers that is among `wanted`, or None."""
        current: str | None = module
        seen: set[str] = set()
        while current is not None and current not in seen:
            if current in wanted:
                return current
            seen.add(current)
            info = self.modules.get(current)
            current = info.inner if info is not None else None
        return None

    def family_escaped(self, module: str, before: Event | None = None) -> bool:
        """Whether the module, or one that it is part of or consists of, went out of sight.

        A module whose parts are not known counts, too: ask `escaped` where the parts do not matter.

        before: code out of sight that gets it later than this event does not count.
        """
        return self.escaped(module, before) or any(
            not self.modules[member].children_known for member in self.family(module)
        )

    def escaped(self, module: str, before: Event | None = None) -> bool:
        """Whether code out of sight got the module, a part of it or one that it is part of.

        before: code that gets it later than this event does not count.
        """
        return not self.complete or self.any_escaped(self.family(module), before)

    def any_escaped(self, modules: Container[str], before: Event | None = None) -> bool:
        """Whether code out of sight got one of some modules (before an event, if one is given)."""
        escaped = self.of(Escaped) if before is None else self.before(before, Escaped)
        return any(event.module in modules for event in escaped)

    @property
    def first_backward(self) -> BackwardRun | None:
        """The backward pass with which the training begins; None if the trace has none."""
        return next(self.of(BackwardRun), None)

    @property
    def last_step(self) -> Event | None:
        """The event that ends the training; None if the trace has none."""
        events = self._of((BackwardRun, OptimizerStepped))
        return events[-1] if events else None

    # Sharding -------------------------------------------------------------------------------

    def shards_before(self, event: Event) -> Iterator[Wrapped | Sharded]:
        """The shardings before an event, in order."""
        return self.before(event, Wrapped, Sharded)

    def shardings(self, before: Event | None = None) -> Shardings:
        """Every module that was itself wrapped or sharded (before an event, if one is given)."""
        events: list[Wrapped | Sharded] = self._of((Wrapped, Sharded))
        known, history = self._history
        if known is not events:
            history = History(events)
            self._history = events, history
        return Shardings(history, None if before is None else before.index)

    def sharding(self, module: str, before: Event | None = None) -> Sharding | None:
        """How `module` itself was sharded; None if it was not, even if a parent was.

        A wrapper of DDP or torch.compile has the sharding of the module that it wraps.
        """
        known = self.shardings(before)
        if module in known:
            return known[module]
        info = self.modules.get(module)
        if info is not None and info.inner is not None:
            return self.sharding(info.inner, before)
        return None

    def sharded_within(self, module: str, before: Event | None = None) -> Sharding | None:
        """How the module or any of its submodules was sharded; None if none of them was."""
        known = self.shardings(before)
        for part in self.submodules(module):
            if part in known:
                return known[part]
        return None


def first(items: Iterable[E]) -> E | None:
    """The first of the items, or None."""
    return next(iter(items), None)
