"""A parameter for each argument of FSDP1 that a function hands on as `**kwargs`, or in a dict.

`def shard(model, **kwargs): return FSDP(model, **kwargs)` gets the parameters that its callers give.
`def shard(model, options): return FSDP(model, **options)` takes `**options` first.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.analysis.variables import calls_of, home_of, reads
from fsdplint.migration.direct_form.argument_dicts import KEYS, fsdp1_spreads
from fsdplint.migration.direct_form.defaults import default
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import function_around

Call = tuple[Source, cst.Call]


@dataclass(frozen=True)
class Receiver:
    """A function that only hands a parameter on to FSDP1.

    Attributes:
        spreads: the arguments `**name` of calls of FSDP1 in its body, and of its calls of itself.
        calls: its own calls, all of them.
    """

    function: cst.FunctionDef
    parameter: cst.Param
    spreads: list[cst.Arg]
    calls: list[Call]

    def hands_all_on(self, call: cst.Call) -> bool:
        """Whether the function calls itself with all that it got."""
        return any(arg in self.spreads for arg in call.args)


def name_parameters(inlining: Inlining) -> None:
    """Give the functions of a file parameters of their own in the place of a dict."""
    for receiver in _receivers(inlining):
        if receiver.parameter is receiver.function.params.star_kwarg:
            _write_parameters(inlining, receiver)
        else:
            _take_keywords(inlining, receiver)


def handing_on(inlining: Inlining) -> set[cst.CSTNode]:
    """The calls of functions of a file that hand `**kwargs` on to FSDP1."""
    return {
        call
        for receiver in _receivers(inlining)
        if receiver.parameter is receiver.function.params.star_kwarg
        for _, call in receiver.calls
    }


def _receivers(inlining: Inlining) -> list[Receiver]:
    source = inlining.source
    found: dict[cst.Param, list[cst.Arg]] = {}
    for spread in fsdp1_spreads(inlining.migration, source):
        function = function_around(source, spread)
        assert isinstance(spread.value, cst.Name)
        if isinstance(function, cst.FunctionDef) and home_of(source, spread.value) is function:
            parameter = _parameter(function, spread.value.value)
            if parameter is not None:
                found.setdefault(parameter, []).append(spread)
    receivers = (_receiver(inlining, *pair) for pair in found.items())
    return [one for one in receivers if one is not None]


def _parameter(function: cst.FunctionDef, name: str) -> cst.Param | None:
    p = function.params
    several = [*p.params, *p.posonly_params, *p.kwonly_params]
    several += [p.star_kwarg] if p.star_kwarg is not None else []
    return next((one for one in several if one.name.value == name), None)


def _receiver(inlining: Inlining, parameter: cst.Param, spreads: list[cst.Arg]) -> Receiver | None:
    source = inlining.source
    function = function_around(source, spreads[0])
    assert isinstance(function, cst.FunctionDef)
    name = parameter.name.value
    found = [use for use in reads(source, function, name) if home_of(source, use) is function]
    if parameter is function.params.star_kwarg:
        spreads = spreads + _given_to_itself(source, function, found)
    uses = {spread.value for spread in spreads}
    if function.decorators or uses != set(found):
        return None
    bound = bindings_of(source).scope_at(function.body).others.get(name, ())
    if len(bound) != 1 or _has_second_name(inlining, function.name.value):
        return None
    files = full_program(inlining.migration.program).sources.values()
    calls: list[Call] = []
    for other, call in calls_of(files, function):
        if call is None:
            return None
        calls.append((other, call))
    return Receiver(function, parameter, spreads, calls) if calls else None


def _given_to_itself(
    source: Source, function: cst.FunctionDef, uses: list[cst.Name]
) -> list[cst.Arg]:
    """The arguments `**name` with which a function calls itself."""
    found = []
    for use in uses:
        arg = source.parent(use)
        call = source.parent(arg) if isinstance(arg, cst.Arg) and arg.star == "**" else None
        if isinstance(arg, cst.Arg) and isinstance(call, cst.Call):
            called = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
            if isinstance(called, cst.Name) and called.value == function.name.value:
                found.append(arg)
    return found


def _has_second_name(inlining: Inlining, name: str) -> bool:
    """Whether a file imports a function by another name."""
    return any(
        item.name == name and item.local != name
        for source in full_program(inlining.migration.program).sources.values()
        for item in bindings_of(source).imports()
    )


# `**kwargs` ------------------------------------------------------------------------------------------


def _write_parameters(inlining: Inlining, receiver: Receiver) -> None:
    """Name the parameters that the callers give, in the place of `**kwargs`."""
    keys = _given_keys(receiver)
    if keys is None or keys & _names_of(inlining.source, receiver):
        return
    p, parameter = receiver.function.params, receiver.parameter
    ordered = [key for key in KEYS if key in keys]
    texts = [
        key if _is_always_given(receiver, key) else f"{key}={default(inlining, key, parameter)}"
        for key in ordered
    ]
    if not p.kwonly_params and not isinstance(p.star_arg, cst.Param | cst.ParamStar):
        texts.insert(0, "*")
    if not ordered:
        return
    _put_parameter(inlining, parameter, ", ".join(texts))
    for spread in receiver.spreads:
        inlining.put(spread, ", ".join(f"{key}={key}" for key in ordered))


def _given_keys(receiver: Receiver) -> set[str] | None:
    """The keys that callers give; None if one of them spreads a dict, or gives something else."""
    p = receiver.function.params
    own = {one.name.value for one in (*p.params, *p.kwonly_params)}
    keys: set[str] = set()
    for _, call in receiver.calls:
        if any(arg.star and arg not in receiver.spreads for arg in call.args):
            return None
        keys |= {arg.keyword.value for arg in call.args if arg.keyword is not None} - own
    return keys if keys <= set(KEYS) else None


def _is_always_given(receiver: Receiver, key: str) -> bool:
    return all(
        receiver.hands_all_on(call)
        or any(arg.keyword is not None and arg.keyword.value == key for arg in call.args)
        for _, call in receiver.calls
    )


def _put_parameter(inlining: Inlining, parameter: cst.Param, text: str) -> None:
    """Put a text in the place of a parameter and of its annotation."""
    start, end = inlining.source.span(parameter)
    if parameter.annotation is not None:
        end = inlining.source.span(parameter.annotation)[1]
    inlining.put(parameter, text)
    inlining.migration.substitute_span(inlining.source, start, end, text)


def _names_of(source: Source, receiver: Receiver) -> set[str]:
    """The names that a function uses, and the keywords that its calls of FSDP1 have already."""
    found = set()
    for node in source.descend(receiver.function):
        parent = source.parent(node)
        if isinstance(node, cst.Name) and not isinstance(parent, cst.Attribute | cst.Arg):
            found.add(node.value)
        elif isinstance(node, cst.Name) and getattr(parent, "value", None) is node:
            found.add(node.value)
    calls = (source.parent(spread) for spread in receiver.spreads)
    args = (arg for call in calls if isinstance(call, cst.Call) for arg in call.args)
    return found | {arg.keyword.value for arg in args if arg.keyword is not None}


# A dict ----------------------------------------------------------------------------------------------


def _take_keywords(inlining: Inlining, receiver: Receiver) -> None:
    """Turn the last parameter, a dict, into `**kwargs`; the callers spread what they give."""
    p, parameter = receiver.function.params, receiver.parameter
    is_last = p.params and p.params[-1] is parameter and not p.kwonly_params
    if not is_last or p.star_kwarg is not None or p.star_arg is not cst.MaybeSentinel.DEFAULT:
        return
    names = [one.name.value for one in p.params]
    given = [_given_dict(receiver, call, names) for _, call in receiver.calls]
    if parameter.default is not None or any(one is None for one in given):
        return
    _put_parameter(inlining, parameter, f"**{parameter.name.value}")
    for (source, _), arg in zip(receiver.calls, given, strict=True):
        assert arg is not None
        inlining.migration.substitute(source, arg, f"**{source.code(arg.value)}")


def _given_dict(receiver: Receiver, call: cst.Call, names: list[str]) -> cst.Arg | None:
    """The dict that a call gives, as a variable or a display."""
    is_method = names[:1] == ["self"] and isinstance(call.func, cst.Attribute)
    named, rest = arguments(call, names[1:] if is_method else names)
    arg = named.get(receiver.parameter.name.value)
    if arg is None or rest or not isinstance(arg.value, cst.Name | cst.Dict | cst.Call):
        return None
    others = {key for key in named if key not in names}
    return None if others else arg
