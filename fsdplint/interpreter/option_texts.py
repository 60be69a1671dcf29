"""The options of constructors as a trace holds them."""

from __future__ import annotations

from fsdplint.interpreter.default_numbers import default_number
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.user_settings import is_setting
from fsdplint.interpreter.values import (
    Class,
    Const,
    Function,
    LibraryObject,
    Partial,
    Symbol,
    Unknown,
    Value,
    constant,
)

PRECISION = "torch.distributed.fsdp.MixedPrecision"
OFFLOAD = "torch.distributed.fsdp.CPUOffload"
INFINITE = float("inf")  # the bound of a clipping that clips nothing
_INFINITE = frozenset({"math.inf", "numpy.inf", "torch.inf", "torch._six.inf"})


def as_number(value: Value) -> Value:
    """The number that a name of a library stands for, else the value itself."""
    infinite = isinstance(value, Symbol) and value.name in _INFINITE
    return Const(INFINITE) if infinite else value


def bound(run: Run, value: Value | None) -> object:
    """The bound of a clipping: see `option`. The origin of a setting of the program's users, which
    is an argument of the command line, an attribute, an entry of a file or a variable of the
    environment."""
    value = None if value is None else as_number(value)
    if default_number(run, value) == INFINITE:
        return INFINITE  # it measures, unless the user asks for more
    if isinstance(value, Unknown) and not value.is_default:
        if is_setting(value):
            return value.origin
    return option(value or Unknown())


def option(value: Value) -> object:
    """The value of an option in a trace: a constant, a dotted name, or "?".

    A `CPUOffload` includes its argument, and a `MixedPrecision` its `param_dtype`, as the recorder
    writes them.
    """
    if isinstance(value, Unknown) and value.is_default and value.default is not None:
        value = value.default
    if isinstance(value, LibraryObject) and value.name == PRECISION and not value.open:
        dtype = value.get("param_dtype", "0") or Const(None)
        return f"{value.name}(param_dtype={option(dtype)})"
    if isinstance(value, LibraryObject) and value.name == OFFLOAD and not value.open:
        offloads = constant(value.get("offload_params", "0") or Const(False))
        return f"{value.name}(offload_params={offloads if isinstance(offloads, bool) else '?'})"
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Symbol | LibraryObject):
        return value.name
    if isinstance(value, Partial):
        return f"functools.partial({option(value.function)})"
    if isinstance(value, Function | Class):
        return value.name
    return "?"
