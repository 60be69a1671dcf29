"""Comprehensions and generator expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libcst as cst

from fsdplint.interpreter import lazy
from fsdplint.interpreter.assignment import assign
from fsdplint.interpreter.branch_conditions import Truth, truth
from fsdplint.interpreter.dispatch import evaluates
from fsdplint.interpreter.frames import Frame
from fsdplint.interpreter.iteration import iterable_of, read_all
from fsdplint.interpreter.list_lengths import comprehension_length
from fsdplint.interpreter.module_tree import note_keys
from fsdplint.interpreter.one_rank_dicts import begin_dict
from fsdplint.interpreter.own_choices import taken
from fsdplint.interpreter.own_lengths import own_length
from fsdplint.interpreter.parameter_filters import doubt_filter, with_filters
from fsdplint.interpreter.parameter_keys import note_each_key
from fsdplint.interpreter.position_tests import on_some_ranks
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.sets import set_of
from fsdplint.interpreter.torch_values import (
    ParameterId,
    ParametersOf,
    RankChoice,
    ShardTensor,
    StateValue,
)
from fsdplint.interpreter.values import Const, Dict, Scope, Sequence, Value


@evaluates(cst.ListComp)
def eval_list_comp(run: Run, node: cst.ListComp) -> Value:
    return _comprehension(run, lambda: run.eval(node.elt), node.for_in, "list", node)


@evaluates(cst.SetComp)
def eval_set_comp(run: Run, node: cst.SetComp) -> Value:
    result = _comprehension(run, lambda: run.eval(node.elt), node.for_in, "set", node)
    return set_of(result.items, not result.open)


@evaluates(cst.GeneratorExp)
def eval_generator_exp(run: Run, node: cst.GeneratorExp) -> Value:
    """A generator does its work when it is consumed; only its source is evaluated here."""
    source = run.eval(node.for_in.iter)

    def elements() -> Sequence:
        return _comprehension(run, lambda: run.eval(node.elt), node.for_in, "list", node, source)

    return lazy.lazy(run, node, elements, source)


@evaluates(cst.DictComp)
def eval_dict_comp(run: Run, node: cst.DictComp) -> Value:
    keys: list[Value] = []

    def value() -> Value:
        keys.append(run.eval(node.key))
        return run.eval(node.value)

    result = _comprehension(run, value, node.for_in, "list", node)
    states = [v for v in result.items if isinstance(v, StateValue)]
    if states:
        return states[0]
    each = keys[0] if result.every and len(keys) == 1 else None
    if result.items and all(_of_parameters(run, item) for item in result.items):
        made = begin_dict(run, Dict(open=True, tensors={"*": result.items[0]}))
        note_each_key(run, made, each)
        return made
    known = [key.value for key in keys if isinstance(key, Const)]
    if len(known) == len(result.items):
        held = dict(zip(known, result.items, strict=True))
        note_keys(run, held)
        made = Dict(held, open=result.open, created_at=result.created_at)
        return begin_dict(run, made)
    made = Dict({f"*{n}": one for n, one in enumerate(result.items)}, open=True)
    identities = tuple(key for key in keys if isinstance(key, ParameterId))
    made.identities = identities if len(identities) == len(keys) else None
    note_each_key(run, made, each)
    return begin_dict(run, made)


def _comprehension(
    run: Run,
    element: Callable[[], Value],
    for_in: cst.CompFor,
    kind: str,
    node: Any,
    source: Value | None = None,
) -> Sequence:
    result = Sequence([], kind, created_at=run.site(node), every=True, made_at=run.steps)
    result.chosen = on_some_ranks(run)
    frame = run.frames[-1]
    scope = Scope(run.source, run.scope, "function", run.scope.module_name)
    inner = Frame(frame.function, scope, frame.receiver, frame.owner, of_comprehension=True)
    run.frames.append(inner)
    try:
        exact = _comprehend(run, element, for_in, result, source)
    finally:
        run.frames.pop()
    result.open = not exact
    return result


def _comprehend(
    run: Run,
    element: Callable[[], Value],
    for_in: cst.CompFor,
    result: Sequence,
    source: Value | None = None,
) -> bool:
    """Add the elements of one `for` of a comprehension; return whether they are all known."""
    source = source if source is not None else run.eval(for_in.iter)
    iterable = iterable_of(run, source)
    if isinstance(iterable, Sequence) and not iterable.items and not iterable.open:
        return True
    result.own_length = result.own_length or own_length(iterable)
    result.length = comprehension_length(iterable, for_in)
    result.chosen = result.chosen or isinstance(run.settle(source), RankChoice)
    visited = read_all(run, source)
    exact = not visited.open
    result.every = result.every and visited.every
    for item in visited.items[:64]:
        assign(run, for_in.target, item)
        verdicts = [truth(run, condition.test) for condition in for_in.ifs]
        if any(v.outcome is Truth.FALSE for v in verdicts):
            result.every = False
            continue
        exact = exact and not any(v.outcome is Truth.VARYING for v in verdicts)
        result.every = result.every and all(v.outcome is Truth.TRUE for v in verdicts)
        own = [v.local for v in verdicts if v.local is not None]
        by_data = next((local for local in own if not local.position), None)
        result.own_length = by_data or result.own_length or next(iter(own), None)
        if for_in.inner_for_in is not None:
            exact = _comprehend(run, element, for_in.inner_for_in, result) and exact
        else:
            tests = [(condition.test, True) for condition in for_in.ifs]
            chosen = with_filters(run, element(), tests)
            turn = next((v.rank_test for v in verdicts if v.rank_test and v.rank_test.loop), None)
            chosen = taken(run, turn.loop, chosen) if turn is not None else chosen
            if any(v.guards or v.outcome is Truth.VARYING for v in verdicts):
                doubt_filter(run, chosen)
            result.items.append(chosen)
    return exact


def _of_parameters(run: Run, value: Value) -> bool:
    value = run.local_parts.get(value, value)
    if isinstance(value, ShardTensor):
        return not value.reduction
    return isinstance(value, ParametersOf) and value.element
