"""Functions of torch that return tensors, and the device of new tensors."""

from __future__ import annotations

import math
import re

from fsdplint.interpreter import gathered_rows, meta_device
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.randomness import note_weights_drawn, note_weights_set
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.optimizers import take_parameters
from fsdplint.interpreter.own_numbers import own_numbers
from fsdplint.interpreter.own_sizes import fills_by_data
from fsdplint.interpreter.parameter_sizes import note_sizes
from fsdplint.interpreter.random_functions import SAME_DRAWS
from fsdplint.interpreter.rank_invariance import is_rank_invariant
from fsdplint.interpreter.rank_local import own_data
from fsdplint.interpreter.ranks import depends_on_rank, note_rank_use
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.scalars import FEW, is_number
from fsdplint.interpreter.tensor_devices import is_cpu
from fsdplint.interpreter.torch_values import (
    GeneratorValue,
    ParametersOf,
    RankChoice,
    RankTest,
    TensorValue,
    derived,
)
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import (
    Const,
    Context,
    LibraryObject,
    RankLocal,
    Sequence,
    Unknown,
    Value,
    constant,
)

_FIXED = re.compile(r"\.(constant|zeros|ones|eye|dirac)_$")  # not at random


@function("torch.")
def tensor_result(run: Run, name: str, call: Call) -> Value:
    """torch functions without a model: tensors in, tensors out."""
    if not name.startswith("torch.nn."):
        keeps_dtype = not name.endswith(".swap_tensors")
        meta_device.leave_meta_in_arguments(run, call.values, keeps_dtype=keeps_dtype)
    for value in call.values:
        if isinstance(value, TensorValue):
            scaled = value.scaled or name in ("torch.mul", "torch.multiply")
            return TensorValue(value.source, value.modules, scaled=scaled)
        if isinstance(value, ParametersOf):
            if name.startswith("torch.nn.init."):
                note = note_weights_set if _FIXED.search(name) else note_weights_drawn
                note(run, call.node, [value])
            taken = take_parameters(run, value, element=True)
            return derived(taken, partial=run.ranks().partial)
    if name.startswith("torch.cuda.") or name.startswith("torch.backends."):
        return Unknown(origin=f"{name}()")
    result = unknown_result(call)
    note_sizes(run, name, call, result)
    if isinstance(result, Unknown) and _draws_alike(run, call):
        result.library = SAME_DRAWS
    return result


def _draws_alike(run: Run, call: Call) -> bool:
    """Whether a call gets a generator that certainly has the same seed on all ranks."""
    given = call.kwargs.get("generator")
    generator = run.settle(given) if given is not None else None
    return isinstance(generator, GeneratorValue) and is_rank_invariant(run, generator)


@function(*(f"torch.{name}" for name in ("tensor", "zeros", "ones", "full", "empty", "arange")))
def new_tensor(run: Run, name: str, call: Call) -> Value:
    """A tensor that is not computed from others, unless `torch.tensor` copies one."""
    result = tensor_result(run, name, call)
    if isinstance(result, Unknown | TensorValue):
        result.on_cpu = is_cpu(run, call.kwargs.get("device")) or _is_cpu_by_default(
            run, name, call
        )
    if name == "torch.arange":
        gathered_rows.note_labels(run, call, result)
        if isinstance(result, Unknown) and (own := own_numbers(run, call, immutable=False)):
            result.rank_local = own
            return result
    if isinstance(result, Unknown):
        result.own_size = _has_own_size(run, name, call)
        result.rank_local = _own_number(run, name, call)
        result.few_elements = _has_few_elements(run, name, call)
        result.new_tensor = name != "torch.tensor" or isinstance(call.arg(0, "data"), Const)
    return result


def _has_few_elements(run: Run, name: str, call: Call) -> bool:
    """Whether the program writes the size of a new tensor, and it is small."""
    if call.open or "size" in call.kwargs or not call.args:
        return False
    first = run.settle(call.args[0])
    if name == "torch.tensor":
        if isinstance(first, Sequence):
            return not first.open and len(first.items) <= FEW
        return isinstance(first, Const)
    given = call.args[:1] if name == "torch.full" or isinstance(first, Sequence) else call.args
    sizes = first.items if isinstance(first, Sequence) else given
    known = [constant(run.settle(size)) for size in sizes]
    numbers = [one for one in known if isinstance(one, int)]
    return len(numbers) == len(known) and math.prod(numbers) <= FEW


def _has_own_size(run: Run, name: str, call: Call) -> bool:
    """Whether the size of a new tensor differs between ranks: it, or the filled list, does."""
    if name == "torch.tensor":
        return fills_by_data(run.settle(call.arg(0, "data") or Unknown()))
    sizes = call.args[:1] if name == "torch.full" else call.args
    inner = [part for size in sizes if isinstance(size, Sequence) for part in size.items]
    return any(depends_on_rank(part) for part in (*sizes, *inner))


def _own_number(run: Run, name: str, call: Call) -> RankLocal | None:
    """What makes the number in a new tensor different on each rank.

    It is the length of a list, or a value that a branch for one rank sets.
    """
    data = run.settle(call.arg(0, "data") or Unknown()) if name == "torch.tensor" else None
    held = data.items if isinstance(data, Sequence) else [data]
    values = [run.settle(one) for one in held if one is not None]
    if any(isinstance(one, RankTest | RankChoice) for one in values):
        if run.decisions.single_rank:
            return None
        return own_data(run, run.site(call.node), position=True)
    found = (one.own_number for one in values if isinstance(one, Unknown))
    local = next(filter(None, found), None)
    return RankLocal(local.source) if local is not None else None


def _is_cpu_by_default(run: Run, name: str, call: Call) -> bool:
    """Whether a new tensor is on the CPU because nothing says otherwise.

    `torch.tensor` of a tensor keeps its device, but one of a list or number has the default device.
    """
    if call.open or "device" in call.kwargs or run.other_default_device:
        return False
    if any(_is_device(context) for context in run.contexts):
        return False
    data = run.settle(call.arg(0, "data") or Unknown())
    return name != "torch.tensor" or isinstance(data, Const | Sequence) or is_number(data)


def _is_device(context: object) -> bool:
    """Whether a `with` block may set the device of new tensors."""
    if isinstance(context, Context):
        return context.kind == "meta_device"
    return not isinstance(context, LibraryObject) or context.name == "torch.device"


@function("torch.set_default_device", "torch.set_default_tensor_type")
def set_default_device(run: Run, name: str, call: Call) -> Value:
    run.other_default_device = run.other_default_dtype = True
    return Const(None)


@function("torch.set_default_dtype")
def set_default_dtype(run: Run, name: str, call: Call) -> Value:
    run.other_default_dtype = True
    return Const(None)


@function("torch.device")
def device(run: Run, name: str, call: Call) -> Value:
    kind = constant(call.arg(0, "type"))
    note_rank_use(run, call.node, *call.values)
    args = {str(n): v for n, v in enumerate(call.args)} | call.kwargs
    if isinstance(kind, str) and kind.startswith("meta"):
        return Context("meta_device", details=args)
    return LibraryObject(name, args)
