"""Parameters of functions: their defaults, and the arguments that calls give them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from fsdplint.interpreter.functions import parameters_of
from fsdplint.migration.analysis.class_hierarchy import class_around, positional_parameters
from fsdplint.migration.analysis.variables import calls_of, definitions, home_of
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments

MAX_DEPTH = 4  # variables and functions that pass a value on
Given = tuple[Source, cst.BaseExpression]


def function_of_parameter(source: Source, value: cst.BaseExpression) -> cst.FunctionDef | None:
    """The function whose parameter an expression is, if nothing else binds the name in it."""
    if not isinstance(value, cst.Name) or definitions(source, value):
        return None
    function = home_of(source, value)
    if not isinstance(function, cst.FunctionDef):
        return None
    names = {param.name.value for param in parameters_of(function.params)}
    return function if value.value in names else None


def default_of(function: cst.FunctionDef, name: str) -> cst.BaseExpression | None:
    """The default of a parameter."""
    return next((p.default for p in parameters_of(function.params) if p.name.value == name), None)


def callee(source: Source, function: cst.FunctionDef) -> cst.FunctionDef | cst.ClassDef:
    """What a call names to call a function: the class of an `__init__`."""
    owner = class_around(source, function)
    return owner if owner is not None and function.name.value == "__init__" else function


def calls_with(
    sources: Iterable[Source], source: Source, function: cst.FunctionDef, name: str
) -> Iterator[tuple[Source, cst.Call | None, cst.Arg | None, bool]]:
    """The calls by a function's name, with the argument for one parameter.

    The last item says whether the call has `*` or `**`, which may give the parameter a value. The
    call is None for any other use of the name.
    """
    names = [param.name.value for param in positional_parameters(source, function)]
    for other, call in calls_of(sources, callee(source, function)):
        if call is None:
            yield other, None, None, False
        else:
            named, rest = arguments(call, names)
            yield other, call, named.get(name), bool(rest)


def origins(
    sources: Iterable[Source], source: Source, value: cst.BaseExpression, depth: int = 0
) -> Iterator[Given]:
    """The expressions that an expression may get its value from.

    Follows variables to their assignments, and parameters to defaults and to the arguments of calls
    by the name of the function.
    """
    sources = list(sources)
    yield source, value
    if depth > MAX_DEPTH or not isinstance(value, cst.Name):
        return
    for one in definitions(source, value) or ():
        yield from origins(sources, source, one.value, depth + 1)
    function = function_of_parameter(source, value)
    if function is None:
        return
    calls = list(calls_with(sources, source, function, value.value))
    default = default_of(function, value.value)
    if default is not None and (not calls or any(given is None for _, _, given, _ in calls)):
        yield from origins(sources, source, default, depth + 1)
    for other, _, given, _ in calls:
        if given is not None:
            yield from origins(sources, other, given.value, depth + 1)
