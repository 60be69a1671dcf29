"""The parameters that modules have themselves, and their numbers of dimensions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import is_new_parameter
from fsdplint.interpreter.values import (
    Const,
    LibraryObject,
    ModuleValue,
    Sequence,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace import KnownParameter, ParametersTied

_OF_SIZES = frozenset(f"torch.{name}" for name in "empty ones rand randn zeros".split())
_CONVOLUTION = re.compile(r"Conv(?:Transpose)?(\d)d")
_BATCH_NORM = re.compile(r"(?:Batch|SyncBatch)Norm(?:\d[dD])?")
# The positions of the argument `bias`, and of `elementwise_affine` or `affine`.
_BIAS = {"Linear": 2, "LayerNorm": 3, "Conv1d": 7, "Conv2d": 7, "Conv3d": 7}
_AFFINE = {"LayerNorm": 2, "RMSNorm": 2, "GroupNorm": 3}


def note_sizes(run: Run, name: str, call: Call, result: Value) -> None:
    """Note the sizes that a new tensor of torch gets."""
    if name not in _OF_SIZES or call.open or not call.args:
        return
    first = run.settle(call.args[0])
    if isinstance(first, Sequence):
        if not first.open:
            run.sizes[result] = tuple(map(run.settle, first.items))
        return
    run.sizes[result] = tuple(map(run.settle, call.args))


def note_data(run: Run, parameter: Value, data: Value | None) -> None:
    """Note the sizes of a parameter that is made of a tensor."""
    sizes = run.sizes.get(run.settle(data)) if data is not None else None
    if sizes is not None:
        run.sizes[parameter] = sizes


def note_layer(run: Run, module: ModuleValue, name: str, call: Call) -> None:
    """Note the parameters of a new layer of torch.nn, and that the numbers it gets are numbers."""
    if call.open:
        return
    if name in ("Linear", "Embedding") or _CONVOLUTION.fullmatch(name):
        run.whole_numbers.update(map(run.settle, call.args[:2]))
    found = dict(_parameters_of(run, name, call))
    if found:
        run.own_parameters[module.id] = found


def _parameters_of(run: Run, name: str, call: Call) -> Iterator[tuple[str, int | None]]:
    convolution = _CONVOLUTION.fullmatch(name)
    if name in ("Linear", "Embedding"):
        yield "weight", 2
    elif convolution is not None:
        yield "weight", 2 + int(convolution[1])
    elif name in _AFFINE or _BATCH_NORM.fullmatch(name):
        if not _is_set(call, _AFFINE.get(name, 3), "affine", "elementwise_affine"):
            return
        shape = run.settle(call.args[0]) if call.args else None
        of_number = name not in ("LayerNorm", "RMSNorm") or isinstance(shape, Const)
        yield "weight", 1 if of_number else None
        if name != "RMSNorm" and _is_set(call, _BIAS.get(name), "bias"):
            yield "bias", 1 if of_number else None
        return
    if name in _BIAS and _is_set(call, _BIAS[name], "bias"):
        yield "bias", 1


def _is_set(call: Call, position: int | None, *names: str) -> bool:
    """Whether an argument that is True by default certainly is True."""
    given = [call.kwargs[name] for name in names if name in call.kwargs]
    if position is not None and position < len(call.args):
        given.append(call.args[position])
    return all(constant(value) is True for value in given)


def parameters_below(run: Run, root: ModuleValue) -> list[KnownParameter]:
    """The known parameters of a module, with those of its parts.

    Those that are in the tree at several places have no certain name, and are left out.
    """
    found: dict[str, str] = {}
    shared: set[str] = set()
    stack = [("", root.id)]
    while stack:
        path, current = stack.pop()
        info = run.trace.modules.get(current)
        if info is None:
            continue
        if current in found:
            shared.add(current)
            continue
        found[current] = path
        for name, child in info.children.items():
            several = child in run.trace.modules and run.trace.modules[child].repeated
            part = "*" if name.startswith("*") or (several and name.isdigit()) else name
            stack.append((f"{path}.{part}".strip("."), child))
        if info.inner is not None:
            stack.append((path, info.inner))
    doubtful = {below for one in shared for below in run.trace.submodules(one)}
    doubtful |= {
        one for tie in run.trace.of(ParametersTied) for one in (tie.module, tie.other) if one
    }
    return [
        one
        for module, path in found.items()
        if module not in doubtful
        for one in _own_parameters_of(run, module, path)
    ]


def _own_parameters_of(run: Run, module: str, path: str) -> Iterator[KnownParameter]:
    held = run.objects.get(module)
    own: dict[str, int | None] = dict(run.own_parameters.get(module, {}))
    for name, value in held.attributes.items() if isinstance(held, ModuleValue) else ():
        own.pop(name, None)
        if is_new_parameter(value) and _is_trained(value) and not _is_shared(run, value):
            own[name] = _dimensions(run, run.sizes.get(value))
    for name, dimensions in own.items():
        yield KnownParameter(module, name, f"{path}.{name}".strip("."), dimensions)


def _is_trained(parameter: LibraryObject) -> bool:
    flag = parameter.get("requires_grad")
    return flag is None or constant(flag) is True


def _is_shared(run: Run, parameter: LibraryObject) -> bool:
    """Whether several attributes of modules have a parameter."""
    holders = [
        name
        for held in run.objects.values()
        if isinstance(held, ModuleValue)
        for name, value in held.attributes.items()
        if value is parameter
    ]
    return len(holders) > 1


def _dimensions(run: Run, sizes: tuple[Value, ...] | None) -> int | None:
    if sizes is None or any(isinstance(size, Sequence) for size in sizes):
        return None
    if len(sizes) != 1:
        return len(sizes)  # 0 for a scalar
    return 1 if _is_whole_number(run, sizes[0]) else None


def _is_whole_number(run: Run, size: Value) -> bool:
    """Whether a size is a number and no tuple: another layer of torch takes it for one."""
    if isinstance(size, Const):
        return isinstance(size.value, int)
    if size in run.whole_numbers:
        return True
    if not isinstance(size, Unknown) or size.varying or not size.origin:
        return False
    return any(
        isinstance(one, Unknown) and not one.varying and one.origin == size.origin
        for one in run.whole_numbers
    )
