"""Iterators of Python and functions that consume one: `map`, `zip`, `list`, `sorted`, ..."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import libcst as cst

from fsdplint.interpreter import drawn_turns, lazy, loaded_numbers, set_orders
from fsdplint.interpreter.attributes import read_attribute
from fsdplint.interpreter.branch_conditions import Truth, truth_of
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.iteration import iterable_of, iterate, read_all
from fsdplint.interpreter.list_lengths import first_elements, length_of, range_length
from fsdplint.interpreter.losses import is_output
from fsdplint.interpreter.merging import matters
from fsdplint.interpreter.models.data import begin_by_iter, loader_in
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.module_elements import stands_for_several
from fsdplint.interpreter.optimizers import take_parameters
from fsdplint.interpreter.own_lengths import own_length
from fsdplint.interpreter.own_numbers import own_numbers
from fsdplint.interpreter.parameter_filters import doubt_filter, selects_trainable
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.rank_turns import on_each_side, range_from, range_to, turns_by_rank
from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.sets import set_of
from fsdplint.interpreter.torch_values import Batches, Length, ModulesOf, ParametersOf, RankChoice
from fsdplint.interpreter.turn_tests import number_of_operation
from fsdplint.interpreter.unequal_turns import copy_turns, note_range
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Dict,
    Function,
    Instance,
    Lazy,
    ModuleValue,
    OptimizerValue,
    Partial,
    Sequence,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace.numbers import Number, Token, of_atom

_OBJECTS = (Instance, ModuleValue, OptimizerValue)
MAX_ELEMENTS = 64  # of a list whose positions a loop over `range(len(...))` visits


def _of_any_turn(element: Value | None) -> Value | None:
    """What `next()` returns of an iterator whose turns have an element: the number is any one."""
    if not isinstance(element, Sequence):
        return element
    items = [
        Unknown(varying=True) if isinstance(one, Unknown) and one.turn is not None else one
        for one in element.items
    ]
    return replace(element, items=items)


@function("builtins.iter")
def iterator(run: Run, name: str, call: Call) -> Value:
    value = iterable_of(run, call.args[0]) if len(call.args) == 1 else Unknown()
    loader = loader_in(value)
    if loader is not None and not (isinstance(value, Batches) and value.begun):
        made = begin_by_iter(run, loader, call.node)
        if isinstance(value, Batches):
            made.element = _of_any_turn(value.element) or made.element
        return made
    if isinstance(value, Lazy | Batches | ParametersOf | ModulesOf | Unknown):
        return value
    if isinstance(value, Sequence) and value.kind == "iter":
        return value
    return read_all(run, value, "iter")


@function("builtins.list", "builtins.tuple", "builtins.set", "builtins.sorted",
          "builtins.frozenset", "itertools.chain")  # fmt: skip
def collect(run: Run, name: str, call: Call) -> Value:
    if not call.args:
        return Sequence([], name.rpartition(".")[2])
    if name.endswith(".chain") and lazy.has_lazy(call):
        if len(call.args) == 1:
            return call.args[0]
        return lazy.lazy(
            run,
            call.node,
            lambda: Sequence([i for v in call.args for i in iterate(run, v)[0]], "list"),
        )
    if len(call.args) > 1:
        return Sequence([i for v in call.args for i in iterate(run, v)[0]], "list")
    value = call.args[0]
    if isinstance(value, ParametersOf):
        return value if name.endswith(".chain") else take_parameters(run, value)
    if isinstance(value, ModulesOf):
        return value if name.endswith(".chain") else replace(value, is_iterator=False)
    if isinstance(value, Unknown) and local_of(value) is None:
        return value
    taken = read_all(run, value, name.rpartition(".")[2])
    if name.endswith(".sorted"):
        return _sort(run, taken.items, not taken.open, call)
    if not name.endswith("set"):
        set_orders.note_list(run, run.settle(value), taken)
    copy_turns(run, value, taken)
    taken.length = length_of(run, value)
    taken.own_length = taken.own_length or own_length(value)
    return set_of(taken.items, not taken.open) if name.endswith("set") else taken


@function("collections.deque")
def double_ended(run: Run, name: str, call: Call) -> Value:
    """`deque(elements, maxlen)`: a list, which loses elements at one end if it has a bound."""
    given = call.arg(0, "iterable")
    bounded = not is_none(call.arg(1, "maxlen") or Const(None))
    if isinstance(given, Unknown) and local_of(given) is None:
        return given
    items = read_all(run, given) if given is not None else Sequence([], "list")
    return replace(items, open=items.open or bounded, every=items.every and not bounded)


def _sort(run: Run, items: list[Value], exact: bool, call: Call) -> Value:
    """Sort strings or numbers, also as the first elements of tuples.

    If the order of functions of the program is unknown, the result is Unknown, so that they are not
    called in a wrong order.
    """
    reverse = call.kwargs.get("reverse", Const(False))
    keys = [_sort_key(run, item) for item in items]
    known = exact and not call.open and set(call.kwargs) <= {"reverse"}
    alike = len({type(key) for key in keys}) == 1 and len(set(keys)) == len(keys)
    if known and alike and keys[0] is not None and isinstance(reverse, Const):
        pairs = sorted(
            zip(keys, items, strict=True), key=lambda p: p[0], reverse=bool(reverse.value)
        )
        return Sequence([item for _, item in pairs], "list")
    if len(items) > 1 and any(_is_code(run, item) for item in items):
        return Unknown(varying=True)
    return Sequence(items, "list", not exact)


def _sort_key(run: Run, item: Value) -> Any:
    """The sort key of an element; None if unknown."""
    item = run.settle(item)
    if isinstance(item, Sequence) and item.kind == "tuple" and item.items and not item.open:
        item = run.settle(item.items[0])
    key = constant(item)
    return key if type(key) in (str, int, float) else None


def _is_code(run: Run, item: Value) -> bool:
    item = run.settle(item)
    parts = item.items if isinstance(item, Sequence) else [item]
    return any(isinstance(run.settle(part), Function | Bound | Partial | Class) for part in parts)


@function("builtins.reversed")
def reverse(run: Run, name: str, call: Call) -> Value:
    value = call.args[0] if call.args else Unknown()
    if isinstance(value, ModulesOf):
        return replace(value, reversed=not value.reversed)
    if isinstance(value, Sequence):
        return Sequence(list(reversed(value.items)), "list", value.open)
    return value


@function("builtins.filter")
def filter_items(run: Run, name: str, call: Call) -> Value:
    value = run.settle(call.args[1]) if len(call.args) > 1 else Unknown()
    if isinstance(value, ParametersOf):
        test = run.settle(call.args[0])
        body = test.node.body if isinstance(test, Function) else None
        chosen = value.trainable or (body is not None and selects_trainable(body))
        return replace(value, created_at=None, every=False, trainable=chosen)
    node = call.node
    own = isinstance(value, Unknown) and local_of(value) is not None
    if not own and not isinstance(value, Sequence | ModulesOf | ModuleValue | Lazy):
        return value
    if not isinstance(node, cst.BaseExpression):
        return value
    test = call.args[0]

    def elements() -> Value:
        items, exact = iterate(run, value)
        kept = Sequence([], "list", not exact)
        for item in items:
            result = item if is_none(test) else run.call(test, Call(node, [item]))
            verdict = truth_of(run, result, node, True)
            if verdict.outcome is not Truth.FALSE:
                kept.items.append(item)
                kept.own_length = kept.own_length or verdict.local
                kept.open = kept.open or verdict.outcome is Truth.VARYING
                if verdict.guards or verdict.outcome is Truth.VARYING:
                    doubt_filter(run, item)
        return kept

    return lazy.lazy(run, node, elements, value)


@function("builtins.map", "itertools.starmap")
def apply(run: Run, name: str, call: Call) -> Value:
    if len(call.args) < 2:
        return Unknown()

    def elements() -> Value:
        columns = [iterate(run, value) for value in call.args[1:]]
        rows = [list(row) for row in zip(*(items for items, _ in columns), strict=False)]
        if name.endswith(".starmap"):
            rows = [iterate(run, row[0])[0] for row in rows]
        results = [run.call(call.args[0], Call(call.node, row)) for row in rows]
        return Sequence(results, "list", not all(exact for _, exact in columns))

    return lazy.lazy(run, call.node, elements, call.args[1])


@function("builtins.range")
def make_range(run: Run, name: str, call: Call) -> Value:
    last = call.args[0] if len(call.args) == 1 else None
    if len(call.args) > 1 and run.replaced_numbers:
        loaded_numbers.note_begin(run, call.args[0])
    # The default of a setting is not the number of turns: tests of the setting are not decided.
    number = last.value if isinstance(last, Const) and isinstance(last.value, int) else None
    every = number is not None and number <= MAX_ELEMENTS and isinstance(call.args[0], Length)
    if number is not None and (every or number in {0, 1}):
        return Sequence([Const(at) for at in range(number)], "list", every=True)
    if isinstance(last, RankChoice):
        return range_to(last)
    begin = run.settle(call.args[0]) if len(call.args) == 2 else None
    if isinstance(begin, RankChoice) and not begin.agreed:
        if not depends_on_rank(run.settle(call.args[1])):  # as in `range(begin, begin + 4)`
            return range_from(begin)
    if call.args and len(call.args) < 3:
        turn = Token(last=number_of_operation(call.args[-1], cst.Subtract(), Const(1)))
        own = own_numbers(run, call)
        element = Unknown(varying=True, below=call.args[-1], turn=turn, rank_local=own)
        made = Sequence([element], "list", True, length=range_length(call.args))
        if run.drawn or run.has_own_data:
            drawn_turns.note_range(run, call, made)
        return made
    own = own_numbers(run, call)
    if own is not None:
        made = Sequence([Unknown(varying=True, rank_local=own)], "list", True)
        note_range(run, call, made)
        return made
    return Sequence([], "list", True)


_OF_ONE_ITERABLE = {"enumerate", "tqdm", "track"}  # their further arguments change no element


@function("builtins.enumerate", "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.autonotebook.tqdm",
          "tqdm.notebook.tqdm", "tqdm.rich.tqdm", "tqdm.std.tqdm", "tqdm.trange",
          "rich.progress.track", "builtins.zip", "itertools.islice", "itertools.cycle")  # fmt: skip
def pass_through(run: Run, name: str, call: Call) -> Value:
    value = call.arg(0, "iterable") or Unknown()
    last = name.rpartition(".")[2]
    if turns_by_rank(value) is not None and isinstance(value, RankChoice):
        return on_each_side(value, lambda side: pass_through(run, name, _with_first(call, side)))
    if lazy.has_lazy(call):
        made = lazy.lazy(run, call.node, lambda: _consume_and_pass(run, name, call), value)
        if isinstance(value, Lazy) and (len(call.args) == 1 or last in _OF_ONE_ITERABLE):
            _pass_each_on(value, made, last == "enumerate")
        return made
    if isinstance(value, Instance):
        value = iterable_of(run, value)
        call.args[:1] = [value]
    loader = next((found for v in call.args if (found := loader_in(run.settle(v)))), None)
    if loader is not None:
        begun = isinstance(value, Batches) and value.begun
        if last == "cycle":
            begin_by_iter(run, loader, call.node, kept=True)
        batches = Batches(loader, begun or last == "cycle", _batch(run, last, call))
        return _first(run, call, batches) if last == "islice" else batches
    if last == "enumerate":
        counted = read_all(run, value)
        begin = constant(call.arg(1, "start") or Const(0))
        known = isinstance(begin, int) and not counted.open and not stands_for_several(run, counted)
        pairs: list[Value] = [
            Sequence([Const(begin + at) if known else Unknown(varying=True), item], "tuple")
            for at, item in enumerate(counted.items)
        ]
        if not counted.open:
            return replace(counted, items=pairs)
        only = counted.items[0] if len(counted.items) == 1 else Unknown()
        element = Unknown(varying=True) if _is_lost([only]) else _of_some(only)
        pair = Sequence([_count(run, call, length_of(run, value)), element], "tuple")
        return Unknown(varying=True, parts={"[]": pair})
    if last == "zip":
        every = all(_holds_each_parameter(run, v) for v in call.args)
        columns = [iterate(run, v) for v in call.args]
        if columns and all(exact for _, exact in columns):
            rows = zip(*(items for items, _ in columns), strict=False)
            return Sequence([Sequence(list(row), "tuple") for row in rows], "list", every=every)
        return _open_rows([items for items, _ in columns])
    if last == "islice" and isinstance(value, Sequence | ParametersOf):
        return _first(run, call, replace(value, every=False))
    if last == "islice" and isinstance(value, ModulesOf):
        return replace(value, some=True)
    return _first(run, call, value) if last == "islice" else value


def _first(run: Run, call: Call, elements: Value) -> Value:
    """The result of `islice(elements, number)`, without other bounds."""
    return first_elements(run, elements, call.args[1] if len(call.args) == 2 else None)


def _with_first(call: Call, value: Value) -> Call:
    """A call with another first argument."""
    return replace(call, args=[value, *call.args[1:]])


def _holds_each_parameter(run: Run, value: Value) -> bool:
    """Whether a value certainly has an element for each parameter of a model."""
    value = run.settle(value)
    if isinstance(value, Sequence) and value.every and len(value.items) == 1:
        held = run.settle(value.items[0])
        return isinstance(held, ParametersOf) and held.element
    return isinstance(value, ParametersOf) and value.every and not value.element


def _open_rows(columns: list[list[Value]]) -> Value:
    """The elements of `zip` if their number is not known.

    Objects, or the lists and dicts of one column, are visited one by one, as a loop over them alone
    would do. Otherwise the first row stands for all.
    """
    one_by_one = [all(isinstance(item, _OBJECTS) for item in items) for items in columns]
    lists = [all(isinstance(item, Dict | Sequence) for item in items) for items in columns]
    if not any(one_by_one) and sum(lists) == 1:
        one_by_one = lists  # such as one of parameters for each learning rate
    others = [items for items, each in zip(columns, one_by_one, strict=True) if not each]
    if not all(columns) or sum(one_by_one) > 1 or any(map(_is_lost, others)):
        return Unknown(varying=True)
    length = next((len(items) for items, each in zip(columns, one_by_one, strict=True) if each), 1)
    rows: list[Value] = []
    for at in range(length):
        row = [items[at if each else 0] for items, each in zip(columns, one_by_one, strict=True)]
        rows.append(Sequence([_of_some(item) for item in row], "tuple"))
    return Sequence(rows, "list", True)


def _is_lost(items: list[Value]) -> bool:
    """Whether the first of some elements does not stand for the others."""
    if len(items) == 1 and (isinstance(items[0], ParametersOf) or is_output(items[0])):
        return False
    return any(map(matters, items))


def _of_some(value: Value) -> Value:
    """The element of a loop that may end before it has visited all parameters."""
    return replace(value, every=False) if isinstance(value, ParametersOf) else value


@function("builtins.next")
def next_element(run: Run, name: str, call: Call) -> Value:
    """The next element of an iterator, which then has one less."""
    value = run.settle(call.args[0]) if call.args else Unknown()
    if isinstance(value, Lazy):  # it is unknown how far it gets
        with run.in_unknown_call(call.node):
            value = lazy.consume(run, value)
    if isinstance(value, Instance) and isinstance(value.cls.lookup("__next__"), Function):
        return run.call(read_attribute(run, value, "__next__", call.node), Call(call.node))
    if isinstance(value, Sequence) and value.kind == "iter" and len(value.items) > 1:
        return value.items.pop(0)
    elements, exact = iterate(run, value)
    empty = not value.items if isinstance(value, Sequence) else isinstance(value, ModulesOf)
    if exact and empty and not elements:
        return call.args[1] if len(call.args) > 1 else Unknown(varying=True)
    return _of_some(elements[0]) if elements else Unknown(varying=True)


def _pass_each_on(generator: Lazy, made: Lazy, with_number: bool) -> None:
    """Let a loop over an iterator drive the generator that it passes on."""
    drive = generator.drive
    if drive is None or generator.elements is not None:
        return

    def drive_inner(on_yield: Callable[[Value], None]) -> None:
        made.elements = Sequence([], "iter", open=True)
        if with_number:
            drive(lambda value: on_yield(Sequence([Unknown(varying=True), value], "tuple")))
        else:
            drive(on_yield)

    made.drive, made.generator = drive_inner, generator.generator


def _batch(run: Run, name: str, call: Call) -> Value | None:
    """What one turn of a loop over the result of a function gets; None if unknown."""
    if not call.args:
        return None
    batches = [run.settle(value) for value in call.args[: None if name == "zip" else 1]]
    elements = [iterate(run, value)[0] for value in batches]
    if not all(elements):
        return None
    if name == "zip":
        return Sequence([items[0] for items in elements], "tuple")
    element = elements[0][0]
    if name == "enumerate":
        return Sequence([_count(run, call), element], "tuple")
    return element


def _count(run: Run, call: Call, length: Number | None = None) -> Value:
    """The number that `enumerate(...)` gives to each element.

    length: the number of elements, if it is known.
    """
    begin = constant(call.arg(1, "start") or Const(0))
    first = call.node.args[0].value if isinstance(call.node, cst.Call) else None
    if first is None or type(begin) is not int:
        return Unknown(varying=True, turn=Token())
    if length is None:
        length = of_atom(f"len({run.text(first)})")
    return Unknown(varying=True, turn=Token(last=length.plus(Number(begin - 1))))


def _consume_and_pass(run: Run, name: str, call: Call) -> Value:
    lazy.consume_arguments(run, call)
    return pass_through(run, name, call)
