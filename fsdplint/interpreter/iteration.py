"""The elements that a loop or an unpacking visits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import libcst as cst

from fsdplint.interpreter import (
    group_options,
    lazy,
    losses,
    padded_tensors,
    rank_local,
    tensor_marks,
)
from fsdplint.interpreter.functions import call_function
from fsdplint.interpreter.loop_certainty import loops_in, passes_all_on
from fsdplint.interpreter.merging import matters
from fsdplint.interpreter.modules import submodule_values
from fsdplint.interpreter.optimizers import take_parameters
from fsdplint.interpreter.own_dicts import as_dict, dict_to_read
from fsdplint.interpreter.program_arguments import each_argument, is_argv
from fsdplint.interpreter.records import as_tuple
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    Batches,
    LoaderValue,
    ModulePath,
    ModulesOf,
    ParameterName,
    ParametersOf,
    StateValue,
    TensorValue,
)
from fsdplint.interpreter.values import (
    Const,
    Dict,
    Function,
    Instance,
    Lazy,
    ModuleValue,
    Sequence,
    Unknown,
    Value,
)

MAX_ITERATORS = 4  # in a chain in which each object is the iterator of the previous one


def iterable_of(run: Run, value: Value) -> Value:
    """What a loop over a value visits: for an object of the program, the result of `__iter__`."""
    value = iterator_of(run, value)
    following = next_of(value)
    if following is None:
        return value
    return Sequence([call_function(run, following, value, [], {}, run.executing)], "iter", True)


def iterator_of(run: Run, value: Value) -> Value:
    """The iterator that a loop over a value makes, if it is an object of the program."""
    value = run.settle(value)
    value = as_tuple(value) or value
    for _ in range(MAX_ITERATORS):
        begin = value.cls.lookup("__iter__") if isinstance(value, Instance) else None
        if not isinstance(begin, Function):
            return value
        value = run.settle(call_function(run, begin, value, [], {}, run.executing))
        if next_of(value) is not None:
            return value
    return value


def next_of(value: Value) -> Function | None:
    """The method of an iterator of the program that gives its next element."""
    following = value.cls.lookup("__next__") if isinstance(value, Instance) else None
    return following if isinstance(following, Function) else None


def yields_all(run: Run, generator: cst.CSTNode) -> bool:
    """Whether a generator function certainly yields each element that its loops visit."""
    loops = run.project.loops_in.get(generator)
    if loops is None:
        loops = run.project.loops_in[generator] = tuple(loops_in(generator))
    return passes_all_on(generator, loops, run.loops)


def covers(run: Run, value: Value) -> bool:
    """Whether a loop over a value certainly visits each element of what it was made of.

    A generator is asked after the loop.
    """
    if isinstance(value, Lazy) and value.generator is not None:
        return yields_all(run, value.generator)
    value = run.settle(value)
    if isinstance(value, Sequence):
        return value.every
    if isinstance(value, ModulesOf):
        return not value.some
    if isinstance(value, ParametersOf):
        return value.every
    return isinstance(value, ModuleValue)


def read_all(run: Run, value: Value, kind: str = "list") -> Sequence:
    """The elements that are left in a value, as `list(value)` has them."""
    if isinstance(value, Sequence) and not (value.items or value.open):
        if value.kind == "iter" or value.every:
            return Sequence([], kind, every=True)  # a loop over it would make one turn
    whole = isinstance(value, ParametersOf) and value.every  # asked before it is used up
    items, exact = iterate(run, value)
    return Sequence(items, kind, not exact, whole or covers(run, value))


def visit(run: Run, value: Value, on_element: Callable[[Value], None]) -> bool:
    """Call a function with each element of a value; returns whether they are all of them.

    A generator is executed meanwhile, so that the order is that of the program.
    """
    value = iterable_of(run, value)
    if isinstance(value, Lazy) and value.drive is not None and value.elements is None:
        value.drive(on_element)
        return True
    elements, exact = iterate(run, value)
    for element in elements:
        on_element(element)
    return exact


def is_list_of_parameters(value: Value) -> bool:
    """Whether a value holds parameters, and is no parameter itself."""
    return isinstance(value, ParametersOf) and not value.element and not value.name


def concatenate(run: Run, left: Value, right: Value) -> Sequence:
    """A list with the elements of two others, of which one is a list of parameters."""
    return Sequence([item for value in (left, right) for item in iterate(run, value)[0]], "list")


def iterate(run: Run, value: Value) -> tuple[list[Value], bool]:
    """The elements of a value that a loop visits, and whether they are all of them.

    If they are, the loop runs once for each. Otherwise its length is unknown.
    """
    value = dict_to_read(lazy.consume(run, iterable_of(run, value)))
    if isinstance(value, Sequence):
        if value.items and (not value.open or any(matters(i) for i in value.items)):
            return list(value.items), True
        return (list(value.items) or [Unknown(varying=True)]), not value.items and not value.open
    if is_argv(value):
        return [each_argument()], False
    if isinstance(value, Dict):
        keys: list[Value] = [Const(key) for key in value.items]
        if value.tensors:
            return [*keys, *unknown_keys(value)], True
        return keys, not value.open
    if isinstance(value, ModulesOf | ModuleValue):
        return submodule_values(run, value), True
    if isinstance(value, ParametersOf):
        one = take_parameters(run, value, element=True)
        if value.taken_at is None:
            value.every = False  # the iterator is at its end
        called: Value = ParameterName(varying=True, of=value.modules)
        return [Sequence([called, one], "tuple") if value.named else one], True
    if isinstance(value, StateValue):
        name = ParameterName(varying=True)
        if value.view == "items":
            return [Sequence([name, value.element()], "tuple")], True
        return [value.element() if value.view == "values" else name], True
    if isinstance(value, Const) and isinstance(value.value, str | tuple):
        characters: list[Value] = [Const(item) for item in value.value[:64]]
        return characters, True
    if isinstance(value, LoaderValue):
        return [rank_local.batch_of(run, value, run.executing)], False
    if isinstance(value, Batches) and value.element is not None:
        return [value.element], False
    if isinstance(value, TensorValue) and value.items:
        return tensor_marks.elements_of(run, value), True
    if losses.is_output(value):
        assert isinstance(value, TensorValue)
        return [losses.derive(value)], False
    if isinstance(value, ModulePath) and value.names:
        return [replace(value, names=False, parts={})], True  # one step to the module
    if isinstance(value, Unknown):
        if value.part_of is not None:
            return [_unknown_element(run, value)], True
        known = value.parts.get("[]")
        if isinstance(known, Sequence):
            return [known], False  # of `enumerate`
        if known is not None and rank_local.local_of(known) is not None:
            return [known], False
        element = Unknown(varying=True, by_rank=value.by_rank, rank_local=value.rank_local)
        if value.rank_local is None:
            element.rank_local = rank_local.of_library_part(run, value, element)
        return [element], False
    return [Unknown(varying=True)], False


def unknown_keys(value: Dict) -> list[Value]:
    """The keys of the values that a dict has under unknown keys, in their order.

    The keys of parameters and of the entries of a state are taken for their names.
    """
    return [
        ParameterName(varying=True)
        if isinstance(held, ParametersOf | StateValue)
        else Unknown(varying=True)
        for held in value.tensors.values()
    ]


def _unknown_element(run: Run, value: Unknown) -> Value:
    if "[]" not in value.parts:
        value.parts["[]"] = Unknown(origin="", varying=True, part_of=value.part_of, owner=value)
    return run.settle(value.parts["[]"])


def unpack(run: Run, value: Value, count: int) -> list[Value]:
    """The values of the `count` targets of `a, b = value`."""
    value = as_dict(lazy.consume(run, iterable_of(run, value)))
    if isinstance(value, Sequence) and len(value.items) == count:
        return list(value.items)
    if isinstance(value, Sequence) and (groups := group_options.groups_for_targets(value, count)):
        return groups
    if isinstance(value, ModulesOf):
        return [Unknown(varying=True) for _ in range(count)]
    if isinstance(value, TensorValue) and len(value.items) == count:
        return tensor_marks.elements_of(run, value)
    if isinstance(value, StateValue | TensorValue):
        return [value for _ in range(count)]
    if isinstance(value, Unknown):
        return [subscript_unknown(run, value, number) for number in range(count)]
    held = (
        [rank_local.local_of(item) for item in value.items] if isinstance(value, Sequence) else []
    )
    local = held[0] if held and None not in held else None  # an element stands for all of them
    return [Unknown(varying=local is not None, rank_local=local) for _ in range(count)]


def subscript_unknown(run: Run, value: Unknown, number: int) -> Value:
    key = f"[{number}]"
    if key not in value.parts:
        origin = f"{value.origin}{key}" if value.origin else ""
        value.parts[key] = Unknown(
            origin=origin,
            varying=value.varying,
            by_rank=value.by_rank,
            part_of=value.part_of,
            rank_local=value.rank_local,
        )
        padded_tensors.note_element(run, value, Const(number), value.parts[key])
    return run.settle(value.parts[key])
