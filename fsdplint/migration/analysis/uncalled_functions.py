"""Functions that nothing calls and that use internals of FSDP1, such as a patch of its class.

Torch still has FSDP1, so these functions work as before. They stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.migration.analysis.variables import outer_function
from fsdplint.migration.blockers import Blocked
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend

Functions = dict[cst.FunctionDef, Source]


def find_uncalled(program: Program, blockers: Iterable[Blocked]) -> Functions:
    """The functions of the top level that nothing calls and that only FSDP1's internals block.

    A function that reads an attribute of FSDP1's wrapper counts only if another such function
    mentions it. Otherwise it is meant for a model, which FSDP2 shards after the migration.
    """
    found: Functions = {}
    excluded: set[cst.CSTNode] = set()
    parts: set[cst.CSTNode] = set()
    for blocker in blockers:
        function = outer_function(blocker.source, blocker.node)
        if (
            isinstance(function, cst.FunctionDef)
            and blocker.internal
            and _is_called_by_name_only(function)
        ):
            found[function] = blocker.source
            if blocker.internal == "attribute":
                parts.add(function)
        elif function is not None:
            excluded.add(function)
    found = {function: source for function, source in found.items() if function not in excluded}
    sources = program.sources.values()
    while True:
        inside = {node for function in found for node in descend(function)}
        called = [
            function
            for function in found
            if _is_mentioned(sources, function, inside)
            or (function in parts and not _is_part(function, found))
        ]
        if not called:
            return found
        for function in called:
            del found[function]


def _is_part(function: cst.FunctionDef, functions: Functions) -> bool:
    """Whether another one of the functions mentions a function."""
    name = function.name.value
    return any(
        isinstance(node, cst.Name) and node.value == name
        for other in functions
        if other is not function
        for node in descend(other)
    )


def _is_called_by_name_only(function: cst.FunctionDef) -> bool:
    """Whether neither a decorator nor pytest may call a function."""
    return not function.decorators and not function.name.value.startswith("test")


def _is_mentioned(
    sources: Iterable[Source], function: cst.FunctionDef, inside: set[cst.CSTNode]
) -> bool:
    """Whether code or a string mentions a function, other than imports and the nodes `inside`."""
    name = function.name.value
    word = re.compile(rf"\b{re.escape(name)}\b")
    for source in sources:
        if not word.search(source.text):
            continue
        for node in source.descend(source.tree):
            if node in inside:
                continue
            if isinstance(node, cst.SimpleString) and word.search(node.value):
                return True
            if isinstance(node, cst.Name) and node.value == name:
                if not isinstance(source.parent(node), cst.ImportAlias):
                    return True
    return False
