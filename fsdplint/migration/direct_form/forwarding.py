"""Functions that only hand their arguments on to FSDP1: the callers call FSDP1 themselves.

`def shard(*args, **kwargs): return FSDP(*args, **kwargs)` and `shard(model, ...)` become
`FSDP(model, ...)`.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.analysis.variables import calls_of
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
            called = _called(inlining, function)
            if called is not None:
                _replace(inlining, function, called, files)


def _called(inlining: Inlining, function: cst.FunctionDef) -> cst.BaseExpression | None:
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
    sources = full_program(migration.program).sources.values()
    if any(i.name == name != i.local for x in sources for i in bindings_of(x).imports()):
        return
    by_source = {one.source: one for one in files}
    found = list(calls_of(sources, function))
    if not found or any(call is None or source not in by_source for source, call in found):
        return
    full = migration.fsdp1(called)
    for source, call in found:
        assert call is not None
        if source is inlining.source:
            text = inlining.text(called)
        else:
            text = migration.need(source, PREFIX, full, call)
            migration.rewrite.remove_import_if_unused(source, name, anyway=True)
        by_source[source].put(call.func, text)
    inlining.delete(function)
