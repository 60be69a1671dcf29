"""The lists and dicts that an unknown index chooses among: `groups[p.ndim < 2].append(p)`.

Nothing is read from them, but an element that the program adds may be in each of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.parameter_filters import doubt_filter, with_filters
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf, PossibleLists
from fsdplint.interpreter.values import (
    Condition,
    Const,
    Dict,
    Method,
    Sequence,
    Unknown,
    Value,
)


def among(
    run: Run, candidates: Iterable[Value], tests: Iterable[cst.CSTNode]
) -> PossibleLists | None:
    """One of several lists or dicts; None if they are anything else.

    tests: the expressions that choose.
    """
    settled = [run.settle(one) for one in candidates]
    for kind in (Sequence, Dict):
        if len(settled) > 1 and all(isinstance(one, kind) for one in settled):
            if any(isinstance(one, Sequence) and one.kind == "tuple" for one in settled):
                return None
            return PossibleLists(varying=True, candidates=tuple(settled), tests=tuple(tests))
    return None


def entries(run: Run, holder: Value, index: Value, node: cst.CSTNode) -> PossibleLists | None:
    """The lists or dicts in a list or dict that an unknown index chooses among; None if the
    elements are anything else, or not all known."""
    if not isinstance(index, Unknown | Condition):
        return None
    if not isinstance(holder, Sequence | Dict) or holder.open:
        return None
    items = holder.items if isinstance(holder, Sequence) else holder.items.values()
    return among(run, items, _indices(node))


def _indices(node: cst.CSTNode) -> list[cst.CSTNode]:
    if not isinstance(node, cst.Subscript):
        return []
    return [one.slice.value for one in node.slice if isinstance(one.slice, cst.Index)]


def entry(run: Run, value: PossibleLists, key: Value) -> PossibleLists | None:
    """What each of several dicts has under a key; None if one has no list or dict there."""
    if not isinstance(key, Const):
        return None
    found = [one.items.get(key.value) for one in value.candidates if isinstance(one, Dict)]
    known = [one for one in found if one is not None]
    return among(run, known, value.tests) if len(known) == len(value.candidates) else None


def add(run: Run, value: PossibleLists, name: str, call: Call) -> None:
    """Add to each of several lists what a method adds to one of them."""
    unknown = tuple((None,) * len(value.tests) for _ in value.candidates)
    for candidate, outcome in zip(value.candidates, value.outcomes or unknown, strict=True):
        tests = list(zip(value.tests, outcome, strict=True))
        given = [with_filters(run, one, tests) for one in call.args]
        for one in given:
            doubt_filter(run, one)
        run.call(Method(candidate, name), Call(call.node, given, call.kwargs, call.open))


def named(run: Run, node: cst.IfExp, one: Value, two: Value) -> PossibleLists | None:
    """One of several lists that the program fills with parameters, by tests in a conditional
    expression: `decay if p.ndim > 1 else rest`."""
    sides = [_side(run, node.body, one), _side(run, node.orelse, two)]
    if sides[0] is None or sides[1] is None:
        return None
    candidates = [*sides[0].candidates, *sides[1].candidates]
    if len({id(held) for held in candidates}) < len(candidates):
        return None
    found = among(run, candidates, [node.test, *sides[0].tests, *sides[1].tests])
    if found is not None:
        before, after = ((None,) * len(side.tests) for side in sides if side is not None)
        found.outcomes = (
            *((True, *outcome, *after) for outcome in sides[0].outcomes),
            *((False, *before, *outcome) for outcome in sides[1].outcomes),
        )
    return found


def _side(run: Run, node: cst.BaseExpression, value: Value) -> PossibleLists | None:
    """The lists among which a side of a conditional expression chooses: one by its name, several by
    another conditional expression."""
    value = run.settle(value)
    if isinstance(node, cst.Name) and _is_filled(value):
        return PossibleLists(candidates=(value,), outcomes=((),))
    chosen = isinstance(node, cst.IfExp) and isinstance(value, PossibleLists)
    return value if chosen and isinstance(value, PossibleLists) and value.outcomes else None


def _is_filled(value: Value) -> bool:
    """Whether a value may be a list that a loop fills with parameters."""
    items = value.items if isinstance(value, Sequence) else [value]
    return all(isinstance(one, ParametersOf) for one in items)


def entry_or_new(run: Run, holder: Dict, text: str, new: Value) -> Value:
    """The list or dict under an unknown key of a dict, which is `new` if there is none yet.

    text: the source text of the key.
    """
    if text not in holder.tensors:
        run.note_change(holder)
        holder.may_have_more()
        holder.tensors[text] = new
    own = holder.tensors[text]
    others = [one for one in [*holder.items.values(), *holder.tensors.values()] if one is not own]
    return among(run, [own, *others], []) or own
