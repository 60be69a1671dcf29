"""Buffers that `to_empty` gave memory, and that nothing has written to since.

Only buffers with `persistent=False` are followed, which no checkpoint has. Code outside of a
forward that reads such a buffer, or gets its module, may write to it.
"""

from __future__ import annotations

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
    constant,
    is_none,
)
from fsdplint.trace import Called, GuardKind, ModuleMoved

# Methods and attributes of a module that give access to its buffers.
_GIVE_BUFFERS = frozenset(
    {"_apply", "_buffers", "__dict__", "buffers", "get_buffer", "named_buffers"}
)
_READING_METHODS = uninitialized.READING_METHODS - _GIVE_BUFFERS | {uninitialized.LOADING_METHOD}
_READING_FUNCTIONS = uninitialized.READING_FUNCTIONS + uninitialized.LOADING_FUNCTIONS


def register(run: Run, module: ModuleValue, name: str, call: Call) -> None:
    """`register_buffer`: the buffer has the value of its argument."""
    _note_written(run, (module.id, name))
    run.registered_buffers.add((module.id, name))
    tensor, persistent = call.arg(1, "tensor"), call.arg(2, "persistent")
    temporary = persistent is not None and constant(persistent) is False
    if temporary and tensor is not None and not is_none(tensor) and not call.open:
        run.temporary_buffers.add((module.id, name))


def origin_of(run: Run, module: ModuleValue, name: str) -> str:
    """The origin of the value of a buffer, with which those of its parts and views begin."""
    return f"{run.trace.modules[module.id].class_name}.{name}"


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
    _note_written(run, (module.id, name))
    run.registered_buffers.discard((module.id, name))


def note_read(run: Run, module: ModuleValue, name: str) -> None:
    """An attribute of a module is read: in a forward, or by code that may write to it."""
    if not run.unset_buffers:
        return
    if name in _GIVE_BUFFERS:
        _forget(run, module)
    elif (module.id, name) in run.unset_buffers:
        if _in_forward(run):
            run.unset_buffers_read.add((module.id, name))
        else:
            _note_written(run, (module.id, name))


def _note_written(run: Run, key: tuple[str, str]) -> None:
    """Something may have written to a buffer."""
    moved = run.unset_buffers.pop(key, None)
    if moved is not None:
        guards = (entry.guard for entry in run.guards)
        moved.set_under = tuple(dict.fromkeys((*moved.set_under, *guards)))


def _in_forward(run: Run) -> bool:
    if not run.calling:
        return False
    outermost = run.trace.events[run.calling[0]]
    return isinstance(outermost, Called) and outermost.via == "call"


def note_element_set(run: Run, container: Value) -> None:
    """An element or slice of a value is set."""
    if run.unset_buffers:
        _forget_value(run, container)


def note_call(run: Run, function: Value, call: Call) -> None:
    """A function is called, which may write to buffers, or to those of the modules that it gets."""
    if not run.unset_buffers:
        return
    function = run.settle(function)
    while isinstance(function, Partial):
        function = run.settle(function.function)
    if isinstance(function, ModuleValue | Function | Class | Bound):
        return  # what it does is executed
    if isinstance(function, Method):
        receiver = run.settle(function.receiver)
        if isinstance(receiver, ModuleValue):
            _note_method(run, receiver, function.name, call)
            return
    elif isinstance(function, Unknown) and function.origin.endswith("_"):
        _forget_value(run, function)  # a method that works in place
    reads = isinstance(function, Symbol) and _reads(function.name)
    for value in () if reads else call.values:
        value = run.settle(value)
        if isinstance(value, ModuleValue):
            _forget(run, value)
        elif not isinstance(function, Symbol) or _may_write(function.name) or "out" in call.kwargs:
            _forget_value(run, value)


def _note_method(run: Run, module: ModuleValue, name: str, call: Call) -> None:
    """A method of a module is called that is not code of the project."""
    if name in _GIVE_BUFFERS:
        _forget(run, module)
    elif name == "reset_parameters" and is_of_torch(module):
        return  # it sets the own parameters of a layer, and other modules have no such method
    elif name not in _READING_METHODS and not name.startswith("register_"):
        followed = [isinstance(run.settle(value), Function) for value in call.values]
        if name != "apply" or not all(followed):
            _forget(run, module)


def is_of_torch(module: ModuleValue) -> bool:
    """Whether the methods of a module that are not code of the project are those of torch.nn."""
    if module.cls is not None:
        bases = module.cls.library_bases()
        return not module.cls.has_unknown_base() and all(b.startswith("torch.nn.") for b in bases)
    return (module.library_class or "").startswith("torch.nn.")


def _reads(function: str) -> bool:
    """Whether a library function certainly writes to no buffer of a module that it gets."""
    if function == "builtins.vars" or function.endswith("__setattr__"):
        return False
    return function.startswith(_READING_FUNCTIONS)


def _may_write(function: str) -> bool:
    """Whether a library function may write to a tensor that it gets."""
    known = ("torch.", "builtins.", "math.")
    return (
        function.endswith("_")
        or function.startswith("torch.distributed.")
        or not function.startswith(known)
    )


def _forget(run: Run, module: ModuleValue) -> None:
    """Something may write to the buffers of a module and of its submodules."""
    parts = set(run.trace.submodules(module.id))
    for key in [key for key in run.unset_buffers if key[0] in parts]:
        _note_written(run, key)


def _forget_value(run: Run, value: Value) -> None:
    """Something may write to a value, which may be a buffer, or a part or view of one."""
    origin = value.origin if isinstance(value, Unknown) else ""
    for part, name in list(run.unset_buffers) if origin else ():
        module = run.objects.get(part)
        if isinstance(module, ModuleValue):
            own = origin_of(run, module, name)
            if origin == own or origin.startswith((f"{own}.", f"{own}[", f"{own}(")):
                _note_written(run, (part, name))


def note_end_of_forward(run: Run, module: ModuleValue, event: Called) -> None:
    """Note the buffers that the outermost call of a module has read without a value."""
    read, run.unset_buffers_read = run.unset_buffers_read, set()
    if event.ranks.partial or run.trace.family_escaped(module.id):
        return
    for part, name in sorted(read & run.unset_buffers.keys()):
        moved = run.unset_buffers.pop((part, name))
        moved.untouched_buffers = (*moved.untouched_buffers, name)
