"""The calls of a value that an expression gives, and whether a function can take their arguments.

Of the members of a module, a name can only choose those that can be called as the program calls
the chosen one.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.functions import parameters_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Class, Function, Value
from fsdplint.source.positions import code_children
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import function_around


def calls_of(source: Source, node: cst.CSTNode) -> list[cst.Call]:
    """The calls of the value of an expression: it is called where it stands, or by the name that
    it is assigned to, in the same function."""
    parent = source.parent(node)
    if isinstance(parent, cst.Call) and parent.func is node:
        return [parent]
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return []
    target = parent.targets[0].target
    if not isinstance(target, cst.Name):
        return []
    return [
        call
        for call in _calls_in(function_around(source, node))
        if isinstance(call.func, cst.Name) and call.func.value == target.value
    ]


def _calls_in(node: cst.CSTNode) -> Iterator[cst.Call]:
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, cst.Call):
            yield current
        stack += code_children(current)


def accepts(run: Run, value: Value, call: cst.Call) -> bool:
    """Whether a function or class may take the arguments of a call."""
    value = run.settle(value)
    if isinstance(value, Class):
        made_by = value.lookup("__init__")
        if not isinstance(made_by, Function):
            inherits = value.library_bases() or value.has_unknown_base() or value.dataclass
            return bool(inherits) or not call.args
        return _takes(made_by.node.params, call, bound=True)
    return not isinstance(value, Function) or _takes(value.node.params, call, bound=False)


def _takes(parameters: cst.Parameters, call: cst.Call, *, bound: bool) -> bool:
    """bound: whether the first parameter is the receiver."""
    positional = [*parameters.posonly_params, *parameters.params][bound:]
    given = [arg for arg in call.args if not arg.star and arg.keyword is None]
    keywords = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    names = {one.name.value for one in parameters_of(parameters)}
    if not isinstance(parameters.star_arg, cst.Param) and len(given) > len(positional):
        return False
    if parameters.star_kwarg is None and not keywords <= names:
        return False
    if any(arg.star for arg in call.args):
        return True
    required = positional[len(given) :] + list(parameters.kwonly_params)
    return all(one.default is not None or one.name.value in keywords for one in required)
