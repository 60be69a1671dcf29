"""FSDP imports, tests of the torch version, and lines that a program can do without."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

_PACKAGES = ("torch.distributed.fsdp", "torch.distributed._composable")
_BELOW = tuple(f"{package}." for package in _PACKAGES)
_VERSION = re.compile(
    r"version|TYPE_CHECKING|find_spec|hasattr|torch_?v?\d|available"
    r"|torch\w*(greater|less|newer|older|at_least|_[gl][te](_|\b))",
    re.IGNORECASE,
)


def is_of_fsdp(package: str) -> bool:
    """Whether a package contains, or contained, FSDP."""
    return package.startswith(_BELOW) or package in _PACKAGES


def asks_for_version(test: str) -> bool:
    """Whether a condition tests the torch version or its APIs."""
    return _VERSION.search(test) is not None


@lru_cache(maxsize=64)
def optional_lines(text: str) -> frozenset[int]:
    """The lines that a program can do without: in a `try`, or under a version test."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return frozenset()
    found: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST] = []
        if isinstance(node, ast.If) and asks_for_version(ast.unparse(node.test)):
            parts = [*node.body, *node.orelse]
        elif isinstance(node, ast.IfExp) and asks_for_version(ast.unparse(node.test)):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.Try) and node.handlers:
            parts = [*node.body, *node.handlers, *node.orelse]
        for part in parts:
            first = getattr(part, "lineno", 0)
            found.update(range(first, (getattr(part, "end_lineno", None) or first) + 1))
    return frozenset(found)


@lru_cache(maxsize=64)
def tried_lines(text: str) -> frozenset[int]:
    """The lines in the body of a `try` with handlers."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return frozenset()
    return frozenset(
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and node.handlers
        for part in node.body
        for line in range(part.lineno, (part.end_lineno or part.lineno) + 1)
    )
