"""Tests: functions that a test runner calls, so that they get no model from a caller.

Most tests of a project are about a single process. The names in such a test lead to no call that
shards a model or communicates, so that a run of it shows nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Set
from pathlib import Path

import libcst as cst

from fsdplint.interpreter.code_behind import CodeBehind
from fsdplint.interpreter.functions import parameters_of
from fsdplint.interpreter.project import Project
from fsdplint.source.folders import project_root
from fsdplint.source.reading import read
from fsdplint.source.source import Source
from fsdplint.syntax.api_sites import SiteKind
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.named_sites import IMPORTED, may_shard, names_in

_DISTRIBUTED = {
    SiteKind.SHARDING,
    SiteKind.COLLECTIVE,
    SiteKind.SYNCHRONIZATION,
    SiteKind.UNSHARD,
}
# Classes by which a framework shards, and the function without which no collective works.
_DISTRIBUTED_NAMES = re.compile(r"(?:FSDP|FullySharded)\w*(?:Strategy|Plugin)|init_process_group")
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


class Tests:
    """Which tests of a file are about more than a single process.

    Args:
        project: its files.
        source: the file.
    """

    def __init__(self, project: Project, source: Source) -> None:
        self._project, self._source = project, source
        self._code = CodeBehind(project)

    def are_distributed(self, function: cst.FunctionDef, names: Set[str]) -> bool:
        """Whether a test may shard a model or communicate.

        names: those of what a test runner calls for it, see `names_of_test`.
        """
        if self._project.fsdp_words.stand_in(function):
            return True
        self._code.add(self._source)
        sites, read = self._code.behind([IMPORTED, *names])
        if any(map(_DISTRIBUTED_NAMES.fullmatch, read)):
            return True
        return not _DISTRIBUTED.isdisjoint(self._code.named.kinds_of(sites))

    def sites_in(self, function: cst.FunctionDef) -> set[cst.CSTNode]:
        """The sites in a test."""
        self._code.add(self._source)
        return self._code.named.within(function)


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
