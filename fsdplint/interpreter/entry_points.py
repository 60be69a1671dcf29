"""Entry points of a file: its main program, and its functions and methods."""

from __future__ import annotations

import os

import libcst as cst

import fsdplint.interpreter.semantics  # noqa: F401 (registers all that a run can follow)
from fsdplint.source.fsdp_words import FSDP_WORDS
from fsdplint.source.source import Source
from fsdplint.syntax.kinds_of_files import MAIN_TEST
from fsdplint.syntax.named_sites import is_main_test
from fsdplint.syntax.qualified_names import walk


def entry_order(source: Source) -> tuple[bool, bool]:
    """Sort key: programs first, those that mention FSDP before others; steps are bounded."""
    return not MAIN_TEST.search(source.text), not FSDP_WORDS.search(source.text)


def is_package(file: str) -> bool:
    return os.path.basename(file) == "__init__.py"


def definitions(tree: cst.Module) -> list[tuple[cst.ClassDef | None, cst.FunctionDef]]:
    """The functions of a module and the methods of its classes."""
    result: list[tuple[cst.ClassDef | None, cst.FunctionDef]] = []
    for statement in tree.body:
        if isinstance(statement, cst.FunctionDef):
            result.append((None, statement))
        elif isinstance(statement, cst.ClassDef):
            result.extend(
                (statement, inner)
                for inner in statement.body.body
                if isinstance(inner, cst.FunctionDef)
            )
    return result


def entry_point(source: Source) -> cst.CSTNode:
    """The node where a program begins: its test of `__name__`, else its first statement."""
    body = source.tree.body
    for statement in body:
        if isinstance(statement, cst.If) and is_main_test(statement.test):
            return statement.test
    return body[0] if body else source.tree


def called_names(source: Source) -> set[str]:
    """The names of functions that the file itself calls."""
    names = set()
    for node in walk(source):
        if isinstance(node, cst.Call):
            target = node.func
            if isinstance(target, cst.Attribute):
                names.add(target.attr.value)
            elif isinstance(target, cst.Name):
                names.add(target.value)
    return names
