"""The settings of the commands that run programs: the table `run`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class RunSettings:
    """How programs are run.

    Attributes:
        options: the values of options, by the names of the options without dashes in front.
        arguments: the arguments of programs, by patterns of their files.
    """

    options: Mapping[str, int | float | str] = field(default_factory=dict)
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_run_settings(value: object) -> RunSettings:
    """The settings in the table `run`.

    Raises:
        ValueError: it is no table, or has an unknown key or an invalid value.
    """
    if not isinstance(value, dict):
        raise ValueError(f"must be a table, is {value!r}")
    options = {}
    for key, given in value.items():
        if key == "arguments":
            continue
        if key not in _OPTIONS:
            close = difflib.get_close_matches(key, [*_OPTIONS, "arguments"], n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known keys: {_KNOWN}"
            raise ValueError(f"unknown key {key!r}; {hint}")
        try:
            options[key] = _OPTIONS[key](given)
        except ValueError as error:
            raise ValueError(f"{key} {error}") from error
    return RunSettings(options, _arguments(value.get("arguments", {})))


def _arguments(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError(f"arguments must be a table of patterns with lists, is {value!r}")
    for given in value.values():
        if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
            raise ValueError(f"arguments must have lists of strings, has {given!r}")
    return {str(pattern): tuple(given) for pattern, given in value.items()}


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"must be a number from 1, is {value!r}")
    return value


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"must be a whole number, is {value!r}")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 1:
        raise ValueError(f"must be a number of seconds from 1, is {value!r}")
    return float(value)


def _device(value: object) -> str:
    if value not in DEVICES:
        raise ValueError(f"must be one of {', '.join(DEVICES)}, is {value!r}")
    return str(value)


_OPTIONS: dict[str, Callable[[object], Any]] = {
    "nproc-per-node": _count,
    "steps": _count,
    "seed": _integer,
    "timeout": _seconds,
    "device": _device,
}
_KNOWN = ", ".join([*_OPTIONS, "arguments"])
