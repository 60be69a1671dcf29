"""Buffers that `to_empty` gave memory, and that nothing has written to since.

Only buffers with `persistent=False` are followed, which no checkpoint has. Code outside of a
forward that reads such a buffer, or gets its module, may write to it.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import uninitialized
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Function,
    Method,
    ModuleValue,
    Partial,
    Symbol,
    Unknown,
    Value,
    is_none,
)
from fsdplint.trace import Called, GuardKind, ModuleMoved

# Methods and attributes of a module that give access to its buffers.
_GIVE_BUFFERS = frozenset(
    {"_apply", "_buffers", "__dict__", "buffers", "get_buffer", "named_buffers"}
)
_LOADING = ("torch.distributed.checkpoint.", "torch.load")


def register(run: Run, module: ModuleValue, name: str, call: Call) -> None:
    """`register_buffer`: the buffer has the value of its argument."""
    run.unset_buffers.pop((module.id, name), None)
    tensor, persistent = call.arg(1, "tensor"), call.arg(2, "persistent")
    temporary = persistent is not None and uninitialized.is_false(persistent)
    if temporary and tensor is not None and not is_none(tensor) and not call.open:
        run.temporary_buffers.add((module.id, name))


def begin(run: Run, module: ModuleValue, event: ModuleMoved) -> None:
    """`to_empty` of a module: its buffers lose their values."""
    if any(entry.guard.kind is not GuardKind.CONFIG for entry in run.guards):
        return
    parts = set(run.trace.submodules(module.id))
    for part, name in run.temporary_buffers:
        if part in parts:
            run.unset_buffers[part, name] = event


def note_set(run: Run, module: ModuleValue, name: str) -> None:
    """An attribute of a module is set."""
    run.unset_buffers.pop((module.id, name), None)


def note_read(run: Run, module: ModuleValue, name: str, node: cst.CSTNode) -> None:
    """An attribute of a module is read: in a forward, or by code that may write to it."""
    if not run.unset_buffers:
        return
    if name in _GIVE_BUFFERS:
        _forget(run, module)
    elif (module.id, name) in run.unset_buffers:
        if _in_forward(run) and not _writes(run, node):
            run.unset_buffers_read.add((module.id, name))
        else:
            del run.unset_buffers[module.id, name]


def _in_forward(run: Run) -> bool:
    if not run.calling:
        return False
    outermost = run.trace.events[run.calling[0]]
    return isinstance(outermost, Called) and outermost.via == "call"


def _writes(run: Run, node: cst.CSTNode) -> bool:
    """Whether an expression that reads a buffer is the object of a method that works in place,
    or of an assignment, or the argument of a function that may write to it."""
    parent = run.source.parent(node)
    while isinstance(parent, cst.Attribute | cst.Subscript | cst.SubscriptElement | cst.Index):
        if isinstance(parent, cst.Attribute) and parent.attr.value.endswith("_"):
            return True
        parent = run.source.parent(parent)
    if isinstance(parent, cst.AssignTarget | cst.AugAssign):
        return True
    if isinstance(parent, cst.Arg):
        call = run.source.parent(parent)
        callee = run.evaluations.get(call.func) if isinstance(call, cst.Call) else None
        named = parent.keyword is not None and parent.keyword.value == "out"
        return named or (isinstance(callee, Symbol) and _may_write(callee.name))
    return False


def _may_write(function: str) -> bool:
    """Whether a library function may write to a tensor that it gets."""
    return function.endswith("_") or not function.startswith(("torch.", "builtins.", "math."))


def note_call(run: Run, function: Value, call: Call) -> None:
    """A function is called, which may write to the buffers of the modules that it gets."""
    if not run.unset_buffers:
        return
    function = run.settle(function)
    while isinstance(function, Partial):
        function = run.settle(function.function)
    if isinstance(function, Method):
        receiver = run.settle(function.receiver)
        if isinstance(receiver, ModuleValue) and function.name in _GIVE_BUFFERS:
            _forget(run, receiver)
        return
    if isinstance(function, ModuleValue | Function | Class | Bound):
        return  # what it does is executed
    if isinstance(function, Symbol) and function.name.startswith(
        uninitialized.READING_FUNCTIONS + _LOADING
    ):
        return
    for value in call.values:
        value = run.settle(value)
        if isinstance(value, ModuleValue):
            _forget(run, value)
        elif isinstance(value, Unknown) and not isinstance(function, Symbol):
            _forget_value(run, value)


def _forget(run: Run, module: ModuleValue) -> None:
    family = set(run.trace.family(module.id))
    for key in [key for key in run.unset_buffers if key[0] in family]:
        del run.unset_buffers[key]


def _forget_value(run: Run, value: Unknown) -> None:
    """Unknown code gets a value, which may be a buffer."""
    for part, name in list(run.unset_buffers):
        module = run.objects.get(part)
        if isinstance(module, ModuleValue) and module.attributes.get(name) is value:
            del run.unset_buffers[part, name]


def note_end_of_forward(run: Run, module: ModuleValue, event: Called) -> None:
    """Note the buffers that the outermost call of a module has read without a value."""
    read, run.unset_buffers_read = run.unset_buffers_read, set()
    if event.ranks.partial or run.trace.family_escaped(module.id):
        return
    for part, name in sorted(read & run.unset_buffers.keys()):
        moved = run.unset_buffers.pop((part, name))
        moved.untouched_buffers = (*moved.untouched_buffers, name)
