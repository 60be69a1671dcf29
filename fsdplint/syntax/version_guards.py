"""FSDP imports, tests of the torch version, and lines that a program can do without."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import lru_cache

from fsdplint.source.source import NodeSite

_PACKAGES = ("torch.distributed.fsdp", "torch.distributed._composable")
_BELOW = tuple(f"{package}." for package in _PACKAGES)
_VERSION = re.compile(
    r"version|TYPE_CHECKING|find_spec|hasattr|torch_?v?\d|available"
    r"|torch\w*(greater|less|newer|older|at_least|_[gl][te](_|\b))",
    re.IGNORECASE,
)
_READS_VERSION = re.compile(r"__version__|torch\.version\b|find_spec|hasattr\(torch")
_NAME = re.compile(r"[^\W\d]\w*")
MAX_STATEMENTS = 4  # of a function that tests the version


def is_of_fsdp(package: str) -> bool:
    """Whether a package contains, or contained, FSDP."""
    return package.startswith(_BELOW) or package in _PACKAGES


def asks_for_version(test: str, text: str) -> bool:
    """Whether a condition in a file with this text tests the torch version or its APIs.

    It may name variables and functions of the file that do.
    """
    if _VERSION.search(test) is not None:
        return True
    definitions = _definitions(text)
    todo, seen = [test], set[str]()
    for code in todo:  # the loop extends it
        names = set(_NAME.findall(code)) & definitions.keys() - seen
        seen |= names
        todo += [one for name in sorted(names) for one in definitions[name]]
    return any(_READS_VERSION.search(code) for code in todo[1:])


def is_under_version_test(conditions: Iterable[tuple[str, object]]) -> bool:
    """Whether one of some conditions, each with its place, tests the torch version or its APIs."""
    return any(
        asks_for_version(text, site.source.text if isinstance(site, NodeSite) else "")
        for text, site in conditions
    )


@lru_cache(maxsize=64)
def _definitions(text: str) -> dict[str, list[str]]:
    """The values that a file assigns to names, and its functions, by name."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    found: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(ast.unparse(node.value))
        elif isinstance(node, ast.FunctionDef) and len(node.body) <= MAX_STATEMENTS:
            found.setdefault(node.name, []).extend(map(ast.unparse, node.body))
    return found


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
        if isinstance(node, ast.If) and asks_for_version(ast.unparse(node.test), text):
            parts = [*node.body, *node.orelse]
        elif isinstance(node, ast.IfExp) and asks_for_version(ast.unparse(node.test), text):
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
