"""Functions that only call one of FSDP1's policies with their own arguments.

    lambda module, recurse, nonwrapped_numel: transformer_auto_wrap_policy(
        module, recurse, nonwrapped_numel, {Block}
    )

They are the partial of the policy with its other arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.fixes.syntax import library_name
from fsdplint.migration.constructor.policy_kinds import GIVEN, POLICY_PARAMETERS
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.layout import descend

LAST = (GIVEN[2], "unwrapped_params")  # the names of the last argument that FSDP1 gives


def rewrite_lambda(inlining: Inlining, node: cst.Lambda) -> bool:
    """Write a lambda that forwards its arguments as a partial; whether it is one."""
    if inlining.has_comments(node):
        return False
    partial = _partial(inlining, node.params, node.body)
    if partial is None:
        return False
    inlining.put_call(node, *partial)
    return True


def rewrite_function(inlining: Inlining, node: cst.FunctionDef) -> bool:
    """Write a function that forwards its arguments as a variable that holds a partial."""
    if node.decorators or node.asynchronous is not None or inlining.has_comments(node):
        return False
    if isinstance(inlining.source.parent(inlining.source.parent(node) or node), cst.ClassDef):
        return False
    returned = _only_return(node)
    partial = _partial(inlining, node.params, returned) if returned is not None else None
    if partial is None:
        return False
    function, given = partial
    inlining.put_lines(node, [f"{node.name.value} = {function}({', '.join(given)})"])
    return True


def _only_return(node: cst.FunctionDef) -> cst.BaseExpression | None:
    """What a function returns that does nothing else; a docstring may stand before it."""
    if not isinstance(node.body, cst.IndentedBlock):
        return None
    lines = [line for line in node.body.body if not _is_docstring(line)]
    if len(lines) != 1 or not isinstance(lines[0], cst.SimpleStatementLine):
        return None
    statements = lines[0].body
    if len(statements) != 1 or not isinstance(statements[0], cst.Return):
        return None
    return statements[0].value


def _is_docstring(line: cst.CSTNode) -> bool:
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return False
    statement = line.body[0]
    return isinstance(statement, cst.Expr) and isinstance(
        statement.value, cst.SimpleString | cst.ConcatenatedString
    )


def _partial(
    inlining: Inlining, params: cst.Parameters, body: cst.BaseExpression
) -> tuple[str, list[str]] | None:
    """The name of `functools.partial` and its arguments for a function that forwards its own.

    None if the function does anything else.
    """
    own = _plain_names(params)
    if len(own) != len(GIVEN) or not isinstance(body, cst.Call):
        return None
    expected = POLICY_PARAMETERS.get(inlining.migration.fsdp1(body.func))
    if expected is None or own[:2] != list(GIVEN[:2]) or own[2] not in LAST:
        return None
    named, rest = arguments(body, expected)
    if LAST[1] in named:
        named[LAST[0]] = named.pop(LAST[1])
    if rest or not set(GIVEN) < set(named) <= set(expected):
        return None
    for name, param in zip(GIVEN, own, strict=True):
        value = named.pop(name).value
        if not isinstance(value, cst.Name) or value.value != param:
            return None
    if not all(_is_free(inlining, arg.value, own) for arg in named.values()):
        return None
    source = inlining.source
    function = library_name(inlining.migration.rewrite, source, "functools.partial", body)
    given = [f"{name}={inlining.text(arg.value)}" for name, arg in named.items()]
    return function, [inlining.text(body.func), *given]


def _plain_names(params: cst.Parameters) -> list[str]:
    """The names of the parameters, if each may be given by position or name and has no default."""
    if params.posonly_params or params.kwonly_params or params.star_kwarg is not None:
        return []
    if isinstance(params.star_arg, cst.Param) or any(param.default for param in params.params):
        return []
    return [param.name.value for param in params.params]


def _is_free(inlining: Inlining, value: cst.BaseExpression, own: Sequence[str]) -> bool:
    """Whether an expression has the same value where the function is made: it reads no parameter."""
    names = {part.value for part in (value, *descend(value)) if isinstance(part, cst.Name)}
    return not names & set(own) and inlining.meanings.is_inert(value)
