"""Functions that return `functools.partial(FSDP, ...)`.

    return functools.partial(FSDP, auto_wrap_policy=policy)

The partial of a policy has no counterpart in FSDP2, which shards in several statements. So the function
returns a function of its own:

    def shard_model(model):
        return FSDP(model, auto_wrap_policy=policy)

    return shard_model

The arguments are evaluated when the model is wrapped, so they must only build objects.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import Partial, Symbol
from fsdplint.migration.analysis.variables import fresh
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.direct_form.building import only_builds
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.names import FSDP, fsdp1_name
from fsdplint.migration.text import atom
from fsdplint.syntax.enclosing import function_around


def rewrite_return(inlining: Inlining, node: cst.Return) -> bool:
    """Return a function that wraps a model, in the place of a partial; whether it is one."""
    migration, source = inlining.migration, inlining.source
    statement, call = source.parent(node), node.value
    if not isinstance(call, cst.Call) or not _is_partial(migration, call):
        return False
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    if not isinstance(function_around(source, node), cst.FunctionDef):
        return False
    wrapper, *given = call.args
    if inlining.has_comments(statement) or any(a.star or a.keyword is None for a in given):
        return False
    if not all(only_builds(migration, source, arg.value) for arg in given):
        return False
    if not _gets_only_models(migration):
        return False
    name, model = fresh(source, node, "shard_model"), fresh(source, node, "model", "module")
    named = [
        f"{arg.keyword.value}={inlining.text(arg.value)}"
        for arg in given
        if arg.keyword is not None
    ]
    text = f"{atom(inlining.text(wrapper.value))}({', '.join([model, *named])})"
    block = source.parent(statement)
    first = isinstance(block, cst.IndentedBlock) and block.body[0] is statement
    lines = [f"def {name}({model}):", f"\treturn {text}", "", f"return {name}"]
    if not first:
        inlining.put_before(statement, "")
    inlining.put_lines(statement, lines)
    return True


def _is_partial(migration: Migration, call: cst.Call) -> bool:
    """Whether a call makes a partial of FSDP1's class that shards more than one module."""
    if migration.symbol(call.func) != "functools.partial" or not call.args:
        return False
    keywords = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    return "auto_wrap_policy" in keywords and migration.any_name(call.args[0].value) == FSDP


def _gets_only_models(migration: Migration) -> bool:
    """Whether each call of a partial of FSDP1's class gets a model, and nothing else."""
    found = [
        node
        for source in migration.program.sources.values()
        for node in nodes(source)
        if isinstance(node, cst.Call) and _calls_partial(migration, node)
    ]
    return bool(found) and all(
        len(call.args) == 1 and not call.args[0].star and call.args[0].keyword is None
        for call in found
    )


def _calls_partial(migration: Migration, call: cst.Call) -> bool:
    return any(
        isinstance(value, Partial)
        and isinstance(value.function, Symbol)
        and fsdp1_name(value.function.name) == FSDP
        for value in migration.values(call.func)
    )
