"""What a file is: a program, a test, or definitions that other files import."""

from __future__ import annotations

import os
import re

import libcst as cst

from fsdplint.source.source import Source

MAIN_TEST = re.compile(r"^if\s+__name__\s*==", re.MULTILINE)
_TEST_FILE = re.compile(r"test_.*|.*_tests?|tests?|conftest")


def is_test_file(path: str) -> bool:
    """Whether a file has tests, judged by its name."""
    return _TEST_FILE.fullmatch(os.path.basename(path).removesuffix(".py")) is not None


def only_defines(source: Source) -> bool:
    """Whether a file only contains imports and definitions."""
    kinds = (cst.FunctionDef, cst.ClassDef)
    simple = (cst.Import, cst.ImportFrom, cst.Assign, cst.AnnAssign, cst.Expr)
    for statement in source.tree.body:
        if isinstance(statement, kinds):
            continue
        if isinstance(statement, cst.SimpleStatementLine) and all(
            isinstance(part, simple)
            and not (isinstance(part, cst.Expr) and isinstance(part.value, cst.Call))
            for part in statement.body
        ):
            continue
        if isinstance(statement, cst.If | cst.Try):
            continue
        return False
    return True
