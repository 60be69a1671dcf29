"""Tests: functions that a test runner calls, so that they get no model from a caller."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import libcst as cst

from fsdplint.interpreter.functions import parameters_of
from fsdplint.interpreter.project import Project
from fsdplint.source.folders import project_root
from fsdplint.source.reading import read
from fsdplint.source.source import Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.named_sites import may_shard, names_in

_TEST_FILE = re.compile(r"test_.*|.*_tests?|tests?")
# Methods of a class, or functions of a file, that a test runner calls before its tests.
_SETUP = frozenset(
    ("setUp", "setUpClass", "setUpModule", "setup_class", "setup_function", "setup_method")
)


def names_of_test(
    project: Project, source: Source, owner: cst.ClassDef | None, function: cst.FunctionDef
) -> frozenset[str]:
    """The names of what a test runner calls for a test: the test, its fixtures and its setup.

    There are none if the function is no test, or if a `conftest.py` may give it a sharded model.

    Args:
        project: its files.
        source: the file of the function.
        owner: its class, if it is a method.
        function: the function.
    """
    if not _is_test(source, owner, function):
        return frozenset()
    if any(map(may_shard, _conftests(project, source))):
        return frozenset()
    names = {function.name.value, *_SETUP}
    names |= {one.name.value for one in parameters_of(function.params)}
    for decorator in (*function.decorators, *(owner.decorators if owner is not None else ())):
        names |= names_in(decorator)
    if owner is not None:
        names |= {owner.name.value, *(name for base in owner.bases for name in names_in(base))}
    return frozenset(names)


def _is_test(source: Source, owner: cst.ClassDef | None, function: cst.FunctionDef) -> bool:
    """Whether pytest, or unittest, takes a function for a test."""
    if not function.name.value.startswith("test"):
        return False
    if owner is None:
        name = os.path.splitext(os.path.basename(source.path))[0]
        return _TEST_FILE.fullmatch(name) is not None
    bases = (dotted_name(base.value).rpartition(".")[2] for base in owner.bases)
    return owner.name.value.startswith("Test") or any("Test" in base for base in bases)


def _conftests(project: Project, source: Source) -> Iterator[str]:
    """The texts of the `conftest.py` of the folder of a file and of those above it."""
    root = Path(project.root or project_root(Path(source.path))).absolute()
    for folder in Path(source.path).absolute().parents:
        file = folder / "conftest.py"
        text = project.override(file)
        if text is None and file.is_file():
            text = read(str(file)).decode("utf-8", "replace")
        if text is not None:
            yield text
        if folder == root:
            return
