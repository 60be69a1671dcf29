"""Random numbers that are the same on all ranks, and that a program mixes with the data of a rank.

The noise of a diffusion model and the masks of a denoiser should be other ones for each sample.
Where the seed of the generator is the same on all ranks, each rank draws the same numbers for its
own samples. What is noted here is certain: the seed is a constant or a setting, all ranks draw,
and the model does not draw the numbers itself, as its dropout does. Numbers that are drawn once, or
that are the same in each turn of a loop, are no noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import libcst as cst

from fsdplint.interpreter import grad_mode
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.rank_local_calls import draws, elements_in
from fsdplint.interpreter.ranks import depends_on_process, depends_on_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.shared_draws import in_model
from fsdplint.interpreter.torch_values import GeneratorValue, TensorValue
from fsdplint.interpreter.user_settings import is_of_settings
from fsdplint.interpreter.values import (
    Const,
    Sequence,
    Symbol,
    Unknown,
    Value,
    is_none,
)
from fsdplint.syntax.dotted import dotted_name
from fsdplint.trace import GradMode, Ranks, SameNoise, Seeded

_LIKE = frozenset({"rand_like", "randint_like", "randn_like"})
_FILLS = frozenset({"bernoulli_", "exponential_", "normal_", "uniform_"})
_NEW_LIKE = frozenset({"empty_like", "full_like", "ones_like", "zeros_like"})
_OF_SIZE = frozenset({"rand", "randint", "randn"})
_KEEPS = frozenset("clone contiguous cuda to type type_as".split())
# Other numbers in place of a factor do not make it other noise.
_SCALES = frozenset({"div", "mul"})


def note_drawn(run: Run, function: Value, call: Call, result: Value) -> None:
    """A call, which may draw random numbers from torch."""
    if not run.has_own_data:
        return
    if isinstance(function, Symbol) and draws(function):
        name = function.name.removeprefix("torch.")
        if not (name in _LIKE or (name in _OF_SIZE and _draws_several(run, name, call))):
            return
    elif not _fills_new_tensor(call):
        return
    if run.decisions.single_rank or run.ranks() is not Ranks.ALL or in_model(run):
        return
    if not run.loop_depth:
        return  # a constant of the program, such as a fixed projection
    given = call.kwargs.get("generator")
    generator = run.settle(given) if given is not None else None
    if _has_shared_seed(run, call, generator) and isinstance(result, Unknown | TensorValue):
        result.rank_local = None  # `randn_like(batch)`
        run.same_noise[result] = run.site(call.node), generator


def _fills_new_tensor(call: Call) -> bool:
    """`torch.empty_like(batch).normal_()`"""
    node = call.node.func if isinstance(call.node, cst.Call) else None
    if not isinstance(node, cst.Attribute) or node.attr.value not in _FILLS:
        return False
    made = node.value.func if isinstance(node.value, cst.Call) else None
    return made is not None and dotted_name(made).rpartition(".")[2] in _NEW_LIKE


def _draws_several(run: Run, name: str, call: Call) -> bool:
    """Whether a call draws more than one number, as far as its size says."""
    sizes = call.args[2:3] if name == "randint" and len(call.args) > 2 else call.args
    sizes = [call.kwargs["size"]] if "size" in call.kwargs else sizes
    if name == "randint" and len(call.args) <= 2 and "size" not in call.kwargs:
        sizes = call.args[1:]
    return any(_is_several(run, one) for size in sizes for one in _elements(run, size))


def _is_several(run: Run, size: Value) -> bool:
    """Whether a dimension has several elements: a setting may say that it has one."""
    if isinstance(size, Const):
        return size.value not in (0, 1)
    of_tensor = isinstance(size, Unknown) and ".shape" in size.origin
    return of_tensor or not is_of_settings(run, size)


def _elements(run: Run, value: Value) -> list[Value]:
    value = run.settle(value)
    return [run.settle(one) for one in value.items] if isinstance(value, Sequence) else [value]


def _has_shared_seed(run: Run, call: Call, generator: Value | None) -> bool:
    """Whether the generator of a call certainly has the same seed on all ranks.

    generator: None for that of the process.
    """
    if generator is None or is_none(generator):
        if run.process_seed is None or run.seeded is not True or call.open:
            return False
        again = any(event.in_loop for event in run.trace.of(Seeded))
        return is_of_settings(run, run.process_seed) and not again
    if not isinstance(generator, GeneratorValue) or generator.seed is None:
        return False
    if generator.loop_depth >= run.loop_depth:
        return False  # it begins again in each turn, and gives the same numbers
    return is_of_settings(run, generator.seed)


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """The result of an operation on such numbers, or on them and on data of the rank.

    name: that of the function or method, or of the operator.
    """
    given = list(_flat(run, operands))
    noise = next((one for one in given if one in run.same_noise), None)
    mixed = next((run.mixed_data[one] for one in given if one in run.mixed_data), None)
    if noise is None:
        if mixed is not None:
            _note_mixed(run, mixed, result)
        return
    if any(depends_on_rank(one) or depends_on_process(one) for one in given):
        return
    if any(local_of(one) is not None for one in given):
        _note_mixed(run, noise, result)
    elif name in _KEEPS | _SCALES or all(map(partial(_is_same, run), given)):
        run.same_noise[result] = run.same_noise[noise]


def _is_same(run: Run, value: Value) -> bool:
    return value in run.same_noise or is_of_settings(run, value)


def _note_mixed(run: Run, noise: Value, result: Value) -> None:
    """Such numbers are mixed with data of the rank: under autograd, or for a forward under it."""
    if grad_mode.current(run.contexts, run.grad_default) is GradMode.ON:
        _emit(run, noise)
    else:
        run.mixed_data[result] = noise


def note_forward(run: Run, values: Iterable[Value], *, is_followed: bool) -> None:
    """A model gets values, among which there may be data that were mixed with such numbers.

    A model whose code is not known mixes the numbers that it gets with the data that it gets.
    """
    if grad_mode.current(run.contexts, run.grad_default) is not GradMode.ON:
        return
    values = [*values]
    if run.same_noise and not is_followed:
        given = list(_flat(run, values))
        noise = next((one for one in given if one in run.same_noise), None)
        if noise is not None and any(local_of(one) is not None for one in given):
            _emit(run, noise)
    if not run.mixed_data:
        return
    for value in values:
        for one in elements_in(run, value):
            if one in run.mixed_data:
                _emit(run, run.mixed_data[one])


def _emit(run: Run, noise: Value) -> None:
    drawn, generator = run.same_noise[noise]
    key = generator if isinstance(generator, GeneratorValue) else None
    if key not in run.noise_mixed:
        run.noise_mixed.add(key)
        run.emit(SameNoise, run.executing, drawn=drawn)


def _flat(run: Run, operands: list[Value]) -> Iterator[Value]:
    for operand in operands:
        yield from _elements(run, operand)
