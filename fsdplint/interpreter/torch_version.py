"""Tests of the installed torch: `version.parse(torch.__version__) >= version.parse("2.1")`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import libcst as cst

from fsdplint.interpreter.values import Const, LibraryObject, Symbol, Value
from fsdplint.trace.torch_versions import FIRST, as_numbers

PARSERS = (
    "packaging.version.parse",
    "packaging.version.Version",
    "packaging.version.LegacyVersion",
    "distutils.version.LooseVersion",
    "distutils.version.StrictVersion",
    "pkg_resources.parse_version",
    "torch.torch_version.TorchVersion",
)
_INSTALLED = {"torch.__version__", "torch.version.__version__", "torch.torch_version.__version__"}
_FIRST = as_numbers(FIRST)
_ORDERS: dict[type, Callable[[Any, Any], bool]] = {
    cst.LessThan: operator.lt,
    cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt,
    cst.GreaterThanEqual: operator.ge,
}
_BY_TEXT: dict[str, type] = {"<": cst.LessThan, "<=": cst.LessThanEqual, ">": cst.GreaterThan,
            ">=": cst.GreaterThanEqual}  # fmt: skip


def is_version(value: Value) -> bool:
    """Whether a value is a parsed version."""
    return isinstance(value, LibraryObject) and value.name in PARSERS


def compare_versions(left: Value, op: type, right: Value) -> bool | None:
    """The result of a test of the installed torch; None if it depends on the installation.

    Tests for a torch without FSDP2 have one result. A migration rewrites both sides, and rules look
    at one: see `Condition.with_fsdp2`.
    """
    if op not in _ORDERS:
        return None
    if _is_installed(left):
        bound = _numbers(right)
        return _ORDERS[op](_FIRST, bound) if bound and bound < _FIRST else None
    if _is_installed(right):
        bound = _numbers(left)
        return _ORDERS[op](bound, _FIRST) if bound and bound < _FIRST else None
    return None


def compare_with_installed(op: str, version: Value) -> bool | None:
    """The same for a function that gets the comparison as text: `is_torch_version(">=", "2.1")`."""
    known = _BY_TEXT.get(op)
    return compare_versions(Symbol("torch.__version__"), known, version) if known else None


def _is_installed(value: Value) -> bool:
    inner = _unparsed_version(value)
    return isinstance(inner, Symbol) and inner.name in _INSTALLED


def _unparsed_version(value: Value) -> Value | None:
    """What a version was parsed from; the value itself if it is not parsed."""
    return value.get("0") if isinstance(value, LibraryObject) and is_version(value) else value


def _numbers(value: Value) -> tuple[int, ...] | None:
    inner = _unparsed_version(value)
    text = inner.value if isinstance(inner, Const) else None
    found = re.match(r"v?(\d+(?:\.\d+)*)", text) if isinstance(text, str) else None
    return tuple(int(number) for number in found[1].split(".")) if found else None
