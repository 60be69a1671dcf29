"""Forwards that are executed once: a second one with the same arguments repeats its events.

The forward of a module is executed again in each turn of a loop, in each evaluation and for each
repeated block. If it only called other modules, changed no object and tested nothing but the
configuration and data, its next execution adds the same events, so they are copied. Tests of data
may go otherwise then, so that their predicates are new ones. A forward is executed again after a
change of the model's structure, in another mode of autograd, and with other arguments.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from fsdplint.interpreter.frames import Call, Change, ForwardSummary, OutputFacts
from fsdplint.interpreter.plain_forwards import (
    changed_by,
    forget,
    is_plain,
    kind_of,
    may_be_plain,
)
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf, TensorValue
from fsdplint.interpreter.values import (
    Const,
    Dict,
    Function,
    Method,
    ModuleValue,
    Sequence,
    Unknown,
    Value,
)
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import Called, Guard, GuardKind
from fsdplint.trace.predicates import Not, Predicate, Truth, negated

MAX_PARTS = 8  # of a list or dict of arguments that are compared
MAX_DEPTH = 2
_PROPERTIES = frozenset({"device", "dtype"})  # of parameters


def run_forward(
    run: Run,
    module: ModuleValue,
    function: Function | None,
    call: Call,
    event: Called,
    execute: Callable[[], object],
    facts: Callable[[], OutputFacts],
) -> OutputFacts:
    """Execute a forward, or repeat the events of one that was the same.

    facts: gives what is known of the tensor that the executed forward has returned. The result is
        what is known of it.
    """
    key = _key(run, module, function, call, event)
    rough = _rough_key(key, call) if key and may_be_plain(run, module, event) else None
    known = run.forwards.get(key) or run.forwards.get(rough)
    if known is not None:
        if known.changed is not None:
            forget(run, call, known.changed)
        _repeat(run, known, event, run.site(call.node))
        return known.output
    before, begin = _state(run), len(run.trace.events)
    with _executed_alone(run) as done:
        execute()
    changes, structure, hooks = (now - then for now, then in zip(_state(run), before, strict=True))
    if key is None or structure or hooks:
        return facts()
    events = [one for one in run.trace.events[begin:] if isinstance(one, Called)]
    if begin + len(events) == len(run.trace.events) and all(_is_decided(run, e) for e in events):
        depth = len(run.guards), len(run.stack), len(run.callbacks)
        kept = (module, function, *call.values)
        made = ForwardSummary(events, begin, event.index, depth, kept, facts())
        if not changes:
            run.forwards[key] = made
        changed = changed_by(run, call, done.changed) if rough is not None else None
        if changed is not None and all(map(is_plain, done.sources)):
            run.forwards[rough] = replace(made, changed=changed)
    return facts()


@dataclass
class _Done:
    """What a forward did: the files whose functions it entered, and what it changed."""

    sources: set[Source] = field(default_factory=set)
    changed: list[Change] = field(default_factory=list)


@contextmanager
def _executed_alone(run: Run) -> Iterator[_Done]:
    """Execute a forward, and collect what it does; for the forward around it, too."""
    done = _Done()
    outer = run.forward_begin, run.sources, run.changed
    run.forward_begin, run.sources, run.changed = run.steps, done.sources, done.changed
    try:
        yield done
    finally:
        run.forward_begin, run.sources, run.changed = outer
        run.sources |= done.sources
        run.changed += done.changed if run.forward_begin else []


def _repeat(run: Run, known: ForwardSummary, event: Called, site: NodeSite) -> None:
    """Copy the events of a forward. `event`, `site`: the call of now."""
    begin, ranks = len(run.trace.events), run.ranks()
    guards = [entry.guard for entry in run.guards]
    predicates: dict[Predicate, Predicate] = {}
    for one in known.events:
        run.make_room()
        new = copy.copy(one)
        inner_guards = [_again(guard, predicates) for guard in one.guards[known.depth[0] :]]
        new.guards, new.ranks = (*guards, *inner_guards), ranks
        new.facts = tuple(run.facts)
        new.in_loop = one.in_loop or run.loop_depth > 0
        inner = one.stack[known.depth[1] :]
        new.stack = (*run.stack, site, *inner[1:]) if inner else tuple(run.stack)
        new.callbacks = (*run.callbacks, *one.callbacks[known.depth[2] :])
        if one.inside == known.around:
            new.inside = event.index
        elif one.inside is not None:
            new.inside = one.inside - known.begin + begin
        run.trace.add(new)


def _again(guard: Guard, made: dict[Predicate, Predicate]) -> Guard:
    """The guard of a test that is made again; made: the new predicates, by the earlier ones."""
    if guard.kind is not GuardKind.VARYING or guard.predicate is None:
        return guard
    is_negated = isinstance(guard.predicate, Not)
    earlier = guard.predicate.inner if isinstance(guard.predicate, Not) else guard.predicate
    now = made.setdefault(earlier, Truth())
    return replace(guard, predicate=negated(now) if is_negated else now)


def _is_decided(run: Run, event: Called) -> bool:
    """Whether only tests of the configuration, or of data that are not a rank's own, guard an
    event, besides those around the call."""
    outer = [entry.guard for entry in run.guards]
    inner = event.guards[len(outer) :]
    return list(event.guards[: len(outer)]) == outer and all(
        guard.kind in (GuardKind.CONFIG, GuardKind.VARYING)
        and guard.own_data is None
        and not guard.of_tensor
        for guard in inner
    )


def _state(run: Run) -> tuple[int, ...]:
    """What an execution that can be repeated leaves as it is."""
    return run.changes, run.structure, len(run.hooks)


def _key(
    run: Run, module: ModuleValue, function: Function | None, call: Call, event: Called
) -> tuple[Hashable, ...] | None:
    if call.open or function is None:
        return None
    summoned = event.summoned, event.summoned_by
    mode = event.grad, summoned, event.collective, len(run.calling), run.loop_depth > 0
    positional = tuple(map(abstract, call.args))
    named = tuple((name, abstract(value)) for name, value in call.kwargs.items())
    dtypes = tuple(run.dtypes.get(run.settle(value), "") for value in call.values)
    return id(module), id(function), mode, run.structure, positional, named, dtypes


def _rough_key(key: tuple[Hashable, ...], call: Call) -> Hashable:
    """The same with the kinds of the arguments in place of what can be told of them."""
    *begin, _, _, dtypes = key
    kinds = [kind_of(value, abstract(value)) for value in call.values]
    return "rough", *begin, tuple(call.kwargs), *kinds, dtypes


def abstract(value: Value, depth: int = 0) -> Hashable:
    """What a forward can tell of an argument, or of a value that it reads."""
    if isinstance(value, Const):
        return "constant", repr(value.value)
    if type(value) is TensorValue:
        modules = tuple(map(id, value.modules))
        return "tensor", value.source, modules, value.rank_local is not None, value.summed
    if type(value) is Unknown:
        ranks = value.by_rank, value.by_process, value.rank_local is not None
        return "unknown", value.origin, value.varying, ranks, id(value.refined), id(value.part_of)
    if isinstance(value, Method) and isinstance(value.receiver, ParametersOf):
        if value.name in _PROPERTIES:
            return value.name, tuple(map(id, value.receiver.modules)), value.receiver.name
    if isinstance(value, Sequence | Dict) and depth < MAX_DEPTH and len(value.items) <= MAX_PARTS:
        items = value.items if isinstance(value, Sequence) else value.items.values()
        names = () if isinstance(value, Sequence) else tuple(value.items)
        return type(value), names, value.open, tuple(abstract(one, depth + 1) for one in items)
    return id(value)
