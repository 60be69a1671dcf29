"""Functions that only hand their arguments on to FSDP1: the callers call FSDP1 themselves.

`def shard(*args, **kwargs): return FSDP(*args, **kwargs)` and `shard(model, ...)` become
`FSDP(model, ...)`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from fsdplint.edits.unused_imports import may_be_module
from fsdplint.migration.analysis.variables import home_of, reads
from fsdplint.migration.direct_form.calls import only_return
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.names import PREFIX
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import bindings_of


def call_directly(inlining: Inlining, files: Sequence[Inlining]) -> None:
    """Put calls of FSDP1 in the place of calls of such functions of one file.

    files: all files of the program.
    """
    for function in inlining.source.tree.body:
        if isinstance(function, cst.FunctionDef):
            called = _forwarding_target(inlining, function)
            if called is not None:
                _replace(inlining, function, called, files)


def _forwarding_target(inlining: Inlining, function: cst.FunctionDef) -> cst.BaseExpression | None:
    """What a function calls with all of its arguments, if that is a name of FSDP1."""
    p, value = function.params, only_return(function)
    star, stars = p.star_arg, p.star_kwarg
    if function.decorators or function.asynchronous is not None or not isinstance(value, cst.Call):
        return None
    if p.params or p.posonly_params or p.kwonly_params:
        return None
    if not isinstance(star, cst.Param) or stars is None:
        return None
    if not inlining.migration.fsdp1(value.func) or len(value.args) != 2:
        return None
    first, second = value.args
    if first.star != "*" or not is_constant(first.value, star.name.value):
        return None
    if second.star != "**" or not is_constant(second.value, stars.name.value):
        return None
    return value.func


def _replace(
    inlining: Inlining,
    function: cst.FunctionDef,
    called: cst.BaseExpression,
    files: Sequence[Inlining],
) -> None:
    migration, name = inlining.migration, function.name.value
    found = _calls(inlining, name, files)
    if not found:
        return
    full = migration.fsdp1(called)
    for one, call in found:
        if one is inlining:
            text = inlining.text(called)
        else:
            text = migration.need(one.source, PREFIX, full, call)
            migration.rewrite.remove_import_if_unused(one.source, name, anyway=True)
        one.put(call.func, text)
    inlining.delete(function)


def _calls(
    home: Inlining, name: str, files: Sequence[Inlining]
) -> list[tuple[Inlining, cst.Call]] | None:
    """The calls of a function in all files; None if one of them may use it in another way."""
    found = []
    for one in files:
        source, bindings = one.source, bindings_of(one.source)
        if name not in source.text or not _binds(home, one, name):
            continue
        if one is home and len(bindings.module.others.get(name, ())) != 1:
            return None
        if one is not home and not _imports_plainly(home, one, name):
            return None
        for use in reads(source, source.tree, name):
            if home_of(source, use) is not source.tree:
                continue
            call = source.parent(use)
            if not isinstance(call, cst.Call) or call.func is not use:
                return None
            found.append((one, call))
    return found


def _binds(home: Inlining, one: Inlining, name: str) -> bool:
    """Whether a file has the function, its module, or all names of it."""
    bindings = bindings_of(one.source)
    path = home.source.path
    return (
        one is home
        or any(may_be_module(star, path) for star in bindings.module.star)
        or any(
            may_be_module(item.full, path)
            or (item.name == name and may_be_module(item.module, path))
            for item in bindings.imports()
        )
    )


def _imports_plainly(home: Inlining, one: Inlining, name: str) -> bool:
    """Whether a file has the function only by `from module import name`, under its own name."""
    bindings = bindings_of(one.source)
    path = home.source.path
    items = [item for item in bindings.imports() if item.name == name]
    attribute = re.compile(rf"\.\s*{re.escape(name)}\b")
    has_module = any(may_be_module(item.full, path) for item in bindings.imports())
    return (
        len(items) == 1
        and items[0].local == name
        and items[0].scope is bindings.module
        and name not in bindings.module.others
        and not any(may_be_module(star, path) for star in bindings.module.star)
        and not (has_module and attribute.search(one.source.text))
    )
