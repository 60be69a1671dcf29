"""Code of the program that may give parameters gradients without a backward pass.

A gradient that was set to zero stays zero if the program only reads it, or multiplies it by a
number. Everything else that may write into a tensor counts as new gradients once the program has
read a gradient: the tensor may be one, or a view of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.method_names import attribute_name
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import LocalGradient, ShardTensor, TensorValue
from fsdplint.interpreter.values import (
    Lazy,
    Method,
    ModuleValue,
    OptimizerValue,
    Sequence,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.source.source import NodeSite
from fsdplint.trace import BackwardRun, Clipped, Event, GradientsZeroed, OptimizerStepped

# In place, and zero stays zero.
KEEPS_ZERO = frozenset(
    "abs_ clamp_ clip_ clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ detach_ div_ divide_ "
    "mul_ multiply_ nan_to_num_ neg_ requires_grad_ true_divide_ zero_ _foreach_clamp_max_ "
    "_foreach_clamp_min_ _foreach_div_ _foreach_mul_ _foreach_zero_".split()
)
# Functions that return tensors.
_TENSORS = re.compile(r"torch\.(?:linalg\.|nn\.functional\.)?[a-z]\w*")
_WRITE = ("torch.distributed.", "torch.nn.utils.vector_to_parameters")


def note_made(run: Run) -> None:
    """Parameters may have new gradients now."""
    run.gradients_made_at = len(run.trace.events)


def note_dropped(run: Run) -> None:
    """Code other than `zero_grad()` of an optimizer may set gradients to zero now."""
    run.gradients_dropped_at = len(run.trace.events)


@contextmanager
def in_hooks(run: Run) -> Iterator[None]:
    """Execute hooks, which may set gradients to zero each time that they fire."""
    begin, outer = len(run.trace.events), run.gradients_dropped_at
    run.gradients_dropped_at = 0
    try:
        yield
    finally:
        zeroed = any(isinstance(one, GradientsZeroed) for one in run.trace.events[begin:])
        run.hooks_drop_gradients |= zeroed or run.gradients_dropped_at > 0
        run.gradients_dropped_at = max(outer, run.gradients_dropped_at)


def are_zero(run: Run, optimizer: str) -> bool:
    """Whether nothing makes gradients after those of an optimizer were set to zero."""
    for event in reversed(run.trace.events):
        if isinstance(event, BackwardRun):
            return False
        if isinstance(event, GradientsZeroed) and event.optimizer == optimizer:
            return run.gradients_made_at <= event.index
    return False


def are_zero_in(run: Run, modules: Iterable[ModuleValue]) -> bool:
    """Whether the same holds of all optimizers that have parameters of some modules."""
    of = set(modules)
    found = [
        one
        for one in run.objects.values()
        if isinstance(one, OptimizerValue) and not of.isdisjoint(one.modules)
    ]
    return bool(found) and all(are_zero(run, one.id) for one in found)


def are_clipped(run: Run, node: cst.CSTNode) -> bool:
    """Whether a clipping gets gradients again that its last execution has clipped.

    The optimizer may step and set them to zero in between, but not in each turn of a loop.
    """
    clippings = (one for one in reversed(run.trace.events) if isinstance(one, Clipped))
    last = next((one for one in clippings if _is_at(run, one, node)), None)
    return last is not None and _adds_to(run, last)


def are_kept(run: Run, optimizer: str, node: cst.CSTNode) -> bool:
    """Whether a step adds new gradients to those that its last execution has used.

    Nothing sets gradients to zero after that, and a backward pass makes new ones.
    """
    kinds = GradientsZeroed, OptimizerStepped
    uses = (one for one in reversed(run.trace.events) if isinstance(one, kinds))
    last = next((one for one in uses if getattr(one, "optimizer", "") == optimizer), None)
    stepped = isinstance(last, OptimizerStepped) and _is_at(run, last, node)
    return last is not None and stepped and _adds_to(run, last)


def _is_at(run: Run, event: Event, node: cst.CSTNode) -> bool:
    """Whether an event is at this place, which the same calls of functions lead to."""
    at_node = isinstance(event.site, NodeSite) and event.site.node is node
    return at_node and list(event.stack) == run.stack


def _adds_to(run: Run, last: Event) -> bool:
    """Whether backward passes add to the gradients that an event has used, which stay until now."""
    if run.hooks_drop_gradients:
        return False
    passes = (one for one in run.trace.events[last.index :] if isinstance(one, BackwardRun))
    return run.gradients_dropped_at <= last.index and next(passes, None) is not None


def note_call(run: Run, function: Value, call: Call) -> None:
    """Note a call of a library that may write into a gradient that the program has read."""
    if run.gradients_read_at and _may_write(function, call):
        note_made(run)


def note_unknown_call(run: Run, function: Value, name: str) -> None:
    """Note a call of unknown code, which may run a backward pass; methods of tensors do not."""
    receiver = function.receiver if isinstance(function, Method) else None
    if isinstance(function, Unknown):
        receiver = function.owner
    of_tensor = isinstance(receiver, TensorValue) or (
        isinstance(receiver, Unknown) and _TENSORS.fullmatch(receiver.library) is not None
    )
    if name not in KEEPS_ZERO and not (of_tensor and name != "backward"):
        note_made(run)


def _may_write(function: Value, call: Call) -> bool:
    if "out" in call.kwargs:
        return True
    name = ""
    if isinstance(function, Symbol):
        if function.name.startswith(_WRITE):
            return True
        name = function.name.rpartition(".")[2]
    elif isinstance(function, Method):
        name = function.name
    elif isinstance(function, Unknown):
        name = attribute_name(function)
    in_place = name.endswith("_") and not name.startswith("__")
    return in_place and name not in KEEPS_ZERO


def is_gradient(value: Value) -> bool:
    """Whether a value may be the memory of a gradient, and not a number that was computed of it."""
    if isinstance(value, ShardTensor):
        return value.source == "gradient" and not value.reduction
    return isinstance(value, LocalGradient)


def note_element_set(run: Run, container: Value) -> None:
    """`p.grad[i] = value`"""
    if is_gradient(run.settle(container)):
        note_made(run)


def keeps_zero(operator: cst.BaseAugOp) -> bool:
    """Whether an operation in place leaves a gradient zero: `p.grad *= factor`."""
    return isinstance(operator, cst.DivideAssign | cst.MultiplyAssign)


_JOINS = frozenset("cat concat concatenate hstack stack vstack".split())
_KEEPS = frozenset(
    "bfloat16 clone contiguous cpu cuda detach float half flatten ravel reshape to view".split()
)


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """Note that a new tensor has all elements of gradients: `torch.cat([p.grad for p in ...])`."""
    first = run.settle(operands[0]) if operands else None
    first = first.elements if isinstance(first, Lazy) and first.elements is not None else first
    if name in _JOINS and isinstance(first, Sequence):
        parts = [run.settle(one) for one in first.items]
    elif name in _KEEPS and first is not None:
        parts = [first]
    else:
        return
    found = [modules for one in parts if (modules := _modules_of(run, one))]
    if found and len(found) == len(parts) and result not in parts:
        run.joined_gradients[result] = tuple(dict.fromkeys(sum(found, ())))


def _modules_of(run: Run, value: Value) -> tuple[str, ...]:
    """The modules whose gradients, as a whole, a tensor has."""
    if isinstance(value, ShardTensor) and is_gradient(value):
        return tuple(module.id for module in value.modules)
    return run.joined_gradients.get(value, ())
