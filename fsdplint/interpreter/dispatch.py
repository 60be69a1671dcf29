"""The functions that evaluate expressions, execute statements and call values, by type.

Each gets the `Run`, whose class is in a module that imports this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import libcst as cst

from fsdplint.interpreter.values import Value

if TYPE_CHECKING:
    from fsdplint.interpreter.frames import Call
    from fsdplint.interpreter.signals import Signal

N = TypeVar("N", bound=cst.CSTNode)
V = TypeVar("V", bound=Value)
R = TypeVar("R", bound=Value)
S = TypeVar("S", bound="Signal | None")

EVALUATORS: dict[type[cst.CSTNode], Callable[[Any, Any], Value]] = {}
EXECUTORS: dict[type[cst.CSTNode], Callable[[Any, Any], Signal | None]] = {}
CALLERS: dict[type[Value], Callable[[Any, Any, Call], Value]] = {}


def evaluates(kind: type[N]) -> Callable[[Callable[[Any, N], R]], Callable[[Any, N], R]]:
    """Register the function that evaluates expressions of a type of node."""

    def register(function: Callable[[Any, N], R]) -> Callable[[Any, N], R]:
        EVALUATORS[kind] = function
        return function

    return register


def executes(kind: type[N]) -> Callable[[Callable[[Any, N], S]], Callable[[Any, N], S]]:
    """Register the function that executes statements of a type of node."""

    def register(function: Callable[[Any, N], S]) -> Callable[[Any, N], S]:
        EXECUTORS[kind] = function
        return function

    return register


def calls(
    *kinds: type[V],
) -> Callable[[Callable[[Any, V, Call], R]], Callable[[Any, V, Call], R]]:
    """Register the function that calls values of exactly these types; `Value`: all other types."""

    def register(function: Callable[[Any, V, Call], R]) -> Callable[[Any, V, Call], R]:
        for kind in kinds:
            CALLERS[kind] = function
        return function

    return register
