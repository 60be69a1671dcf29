"""The numbers that settings have unless the user sets others."""

from __future__ import annotations

import re

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Unknown, Value
from fsdplint.trace.numbers import Number

_ARGUMENT = re.compile(r"argparse\.ArgumentParser\.parse_args\(\)\.(\w+)")


def default_number(run: Run, value: Value | None) -> float | None:
    """The number that a value is, or that a setting is by default; None if it is not known."""
    if isinstance(value, Unknown):
        if value.default is None:
            named = run.environment_defaults.get(value.origin)
            return _number(named) if named is not None else _of_argument(run, value.origin)
        value = value.default
    return _number(value) if isinstance(value, Const) else None


def default_count(run: Run, number: Number | None) -> int | None:
    """The integer that a number is, with the defaults of arguments; None if it is not known."""
    if number is None:
        return None
    found = number.constant
    for atom, times in number.parts:
        default = _of_argument(run, atom) if isinstance(atom, str) else None
        if default is None or default != int(default):
            return None
        found += times * int(default)
    return found


def _of_argument(run: Run, origin: str) -> float | None:
    """The default of an argument of a command line."""
    name = _ARGUMENT.fullmatch(origin)
    known = run.argument_defaults.get(name[1], ()) if name is not None else ()
    return _number(Const(known[0])) if known else None


def _number(value: Const) -> float | None:
    """A number, also as the text that a settings file has."""
    if isinstance(value.value, bool) or not isinstance(value.value, int | float | str):
        return None
    try:
        return float(value.value)
    except (OverflowError, ValueError):
        return None
