"""Records whether lines of the program are reached, with a mark before their statements.

The program's files are compiled with a call before these statements, without changing line numbers.
Unlike a trace function, a mark costs nothing elsewhere, and works on every version of Python.
"""

from __future__ import annotations

import ast
import builtins
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

from fsdplint.runtime.recorder.recording import current

# Names a file with {path: [lines]} as JSON.
VARIABLE = "FSDPLINT_LINES"
_MARK = "__fsdplint_reached__"


class Lines:
    """The requested lines and those that were reached."""

    def __init__(self, wanted: Mapping[str, Sequence[int]]) -> None:
        self.wanted = {os.path.realpath(path): sorted(set(at)) for path, at in wanted.items()}
        self.seen: set[tuple[str, int]] = set()

    def mark(self, path: str, *lines: int) -> None:
        for line in lines:
            if (path, line) not in self.seen:
                self.seen.add((path, line))
                current().recorder.write({"t": "reached", "path": path, "line": line})

    def compile(self, source: bytes, path: str) -> CodeType:
        """Compile a file with marks before its requested lines."""
        lines = self.wanted.get(os.path.realpath(path))
        if not lines:
            return compile(source, path, "exec", dont_inherit=True)
        tree = ast.parse(source, path)
        _Marker(os.path.realpath(path), lines).visit(tree)
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class _Marker(ast.NodeTransformer):
    def __init__(self, path: str, lines: Sequence[int]) -> None:
        self.path = path
        self.lines = lines

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, name, self._mark_statements(block, isinstance(node, ast.Module)))
        return node

    def _mark_statements(self, block: list[ast.stmt], module: bool) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for index, statement in enumerate(block):
            lines = [line for line in self.lines if self._belongs(statement, line)]
            docstring = index == 0 and _is_text(statement)
            future = (
                module
                and isinstance(statement, ast.ImportFrom)
                and (statement.module == "__future__")
            )
            if lines and not docstring and not future:
                result.append(self._call(lines, statement))
            result.append(statement)
        return result

    @staticmethod
    def _belongs(statement: ast.stmt, line: int) -> bool:
        """Whether the line belongs to the statement itself, not to the block in it."""
        start = statement.lineno
        decorators = getattr(statement, "decorator_list", ())
        if decorators:
            start = min(start, *(d.lineno for d in decorators))
        body = getattr(statement, "body", None) or getattr(statement, "cases", None)
        end = statement.end_lineno or start
        if body:
            first = body[0]
            end = max(start, getattr(first, "lineno", getattr(first, "pattern", first).lineno) - 1)
        return start <= line <= end

    def _call(self, lines: Sequence[int], at: ast.stmt) -> ast.stmt:
        call = ast.Call(
            func=ast.Name(id=_MARK, ctx=ast.Load()),
            args=[ast.Constant(self.path), *(ast.Constant(line) for line in lines)],
            keywords=[],
        )
        return ast.copy_location(ast.Expr(ast.copy_location(call, at)), at)


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


class _Loader(importlib.machinery.SourceFileLoader):
    lines: Lines

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self.lines.compile(self.get_data(path), path)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, lines: Lines) -> None:
        self.lines = lines

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or not spec.has_location:
            return None
        if os.path.realpath(spec.origin) not in self.lines.wanted:
            return None
        loader = _Loader(fullname, spec.origin)
        loader.lines = self.lines
        spec.loader = loader
        return spec


def install() -> Lines | None:
    """Mark the lines that the environment requests; None if it requests none."""
    import json

    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            lines = Lines(json.load(file))
    except (OSError, ValueError):
        return None
    setattr(builtins, _MARK, lines.mark)
    sys.meta_path.insert(0, _Finder(lines))
    return lines
