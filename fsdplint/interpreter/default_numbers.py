"""The numbers that settings have unless the user sets others."""

from __future__ import annotations

import re

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Unknown, Value
from fsdplint.syntax.argument_defaults import argument_defaults
from fsdplint.trace.numbers import Number

_ARGUMENT = re.compile(r"argparse\.ArgumentParser\.parse_args\(\)\.(\w+)")


def default_number(run: Run, value: Value | None) -> float | None:
    """The number that a value is, or that a setting is by default; None if it is not known."""
    if isinstance(value, Unknown):
        if value.default is None:
            return _of_argument(run, value.origin)
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
    """The default of an argument of a command line, which all parsers of the program agree on."""
    name = _ARGUMENT.fullmatch(origin)
    if name is None:
        return None
    known = [argument_defaults(source) for source in run.project.sources.values()]
    found = {defaults[name[1]] for defaults in known if name[1] in defaults}
    return found.pop() if len(found) == 1 else None


def _number(value: Const) -> float | None:
    """A number, also as the text that a settings file has."""
    if isinstance(value.value, bool) or not isinstance(value.value, int | float | str):
        return None
    try:
        return float(value.value)
    except (OverflowError, ValueError):
        return None
