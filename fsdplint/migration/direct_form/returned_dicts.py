"""Functions that return a dict of arguments: they return the values, and the callers name them.

`options = get_options()` becomes `precision, policy = get_options()` and a dict of these variables.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.analysis.variables import bound_names, calls_of, definition_at
from fsdplint.migration.direct_form.argument_dicts import (
    KEYS,
    Items,
    Users,
    named_items,
    read_dict,
    returns_of,
)
from fsdplint.migration.direct_form.calls import only_return
from fsdplint.migration.direct_form.defaults import default
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.text import width
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend, line_indent, statement_of

Variable = tuple[cst.CSTNode, str]  # the function that has it, and its name


@dataclass(frozen=True)
class Caller:
    """`name = function()`, or `FSDP(model, **function())`.

    Attributes:
        name: the variable that gets the dict, None where the call itself is spread.
    """

    inlining: Inlining
    call: cst.Call
    name: cst.Name | None

    @property
    def is_first(self) -> bool:
        """Whether a line before the statement runs directly before the call."""
        arg = self.inlining.source.parent(self.call)
        return not isinstance(arg, cst.Arg) or _is_first(self.inlining, arg)


@dataclass(frozen=True)
class Returning:
    """A function whose callers only spread what they get."""

    inlining: Inlining
    function: cst.FunctionDef
    callers: list[Caller]


def returning(inlinings: list[Inlining], users: Users) -> list[Returning]:
    """The functions that return arguments of FSDP1."""
    names: dict[str, None] = {}
    for inlining in inlinings:
        for call in _called_for_dicts(inlining, users):
            assert isinstance(call.func, cst.Name)
            names.setdefault(call.func.value)
    result = []
    for name in names:
        one = _returning(inlinings, users, name)
        if one is not None:
            result.append(one)
    return result


def _called_for_dicts(inlining: Inlining, users: Users) -> list[cst.Call]:
    """The calls of functions whose results calls of FSDP1 spread."""
    source = inlining.source
    found = []
    for call in users.calls:
        for arg in call.args if isinstance(call, cst.Call) and source.parent(call) else ():
            value = inlining.meanings.assigned_value(arg.value) if arg.star == "**" else None
            if isinstance(value, cst.Call) and isinstance(value.func, cst.Name):
                found.append(value)
    return found


def _returning(inlinings: list[Inlining], users: Users, name: str) -> Returning | None:
    """A function with all of its callers; None if one of them does something else."""
    owners = [
        (inlining, statement)
        for inlining in inlinings
        for statement in inlining.source.tree.body
        if isinstance(statement, cst.FunctionDef) and statement.name.value == name
    ]
    if len(owners) != 1:
        return None
    ((inlining, function),) = owners
    if function.decorators or function.asynchronous is not None or not _ends_with_return(function):
        return None
    files = full_program(inlining.migration.program).sources.values()
    if any(i.name == name != i.local for x in files for i in bindings_of(x).imports()):
        return None
    by_source = {one.source: one for one in inlinings}
    callers = []
    for source, call in calls_of(files, function):
        caller = _caller(by_source[source], users, call) if call and source in by_source else None
        if caller is None:
            return None
        callers.append(caller)
    return Returning(inlining, function, callers)


def _ends_with_return(function: cst.FunctionDef) -> bool:
    if any(isinstance(part, cst.Yield) for part in descend(function)):
        return False
    last = function.body.body[-1]
    return isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Return)


def _caller(inlining: Inlining, users: Users, call: cst.Call) -> Caller | None:
    source = inlining.source
    parent = source.parent(call)
    if isinstance(parent, cst.Arg) and parent.star == "**":
        is_spread = source.parent(parent) in users.calls
        return Caller(inlining, call, None) if is_spread else None
    target = parent.targets[0].target if isinstance(parent, cst.Assign) else None
    if not isinstance(target, cst.Name) or definition_at(source, target) is None:
        return None
    found = read_dict(source, users, target, {}, inlining.meanings.is_named_elsewhere)
    return Caller(inlining, call, target) if found is not None else None


def _is_first(inlining: Inlining, arg: cst.Arg) -> bool:
    """Whether nothing runs between the start of a statement and an argument of a call in it."""
    source = inlining.source
    call = source.parent(arg)
    assert isinstance(call, cst.Call)
    statement = statement_of(source, call)
    if isinstance(statement, cst.With):
        first: cst.CSTNode | None = statement.items[0].item
    elif isinstance(statement, cst.Assign | cst.Return | cst.Expr):
        first = statement.value
    else:
        return False
    before = [other.value for other in call.args[: call.args.index(arg)]]
    return first is call and all(map(inlining.meanings.is_inert, before))


# Writing ---------------------------------------------------------------------------------------------


def return_values(one: Returning, taken: set[Variable]) -> None:
    """Return the values of the dicts, and give them names in the callers.

    taken: the variables that the callers of other functions get; gets these variables, too.
    """
    dicts: list[tuple[cst.Return, Items]] = []
    for statement in returns_of(one.function):
        items = named_items(statement.value) if statement.value is not None else None
        if items is None or not set(items) <= set(KEYS):
            return
        dicts.append((statement, items))
    keys = [key for key in KEYS if any(key in items for _, items in dicts)]
    moved = _shared_values(one, dicts)
    kept = [key for key in keys if key not in moved]
    drops_calls = not kept and _only_builds(one)
    if not drops_calls and not all(caller.is_first for caller in one.callers):
        return
    for statement, items in dicts if not drops_calls else ():
        texts = [
            one.inlining.text(items[key]) if key in items else default(one.inlining, key, statement)
            for key in kept
        ]
        assert statement.value is not None
        _put_values(one.inlining, statement.value, texts)
    if drops_calls:
        one.inlining.delete(one.function)
    else:
        _annotate(one, len(kept))
    for caller in one.callers:
        names = {key: _variable(caller, key, taken) for key in kept}
        _name_values(caller, names, moved, drops_calls=drops_calls)


def _put_values(inlining: Inlining, node: cst.BaseExpression, texts: list[str]) -> None:
    """Put several values in the place of the one that is returned."""
    source = inlining.source
    line = f"{line_indent(source, source.span(node)[0])}return {', '.join(texts)}"
    if len(texts) > 1 and len(line.expandtabs(4)) > width(source):
        inlining.put(node, inlining.migration.indent_at(source, node, _in_lines(texts)))
    else:
        inlining.put(node, ", ".join(texts) or "None")


def _annotate(one: Returning, count: int) -> None:
    """Annotate a function that returned a dict with what it returns now."""
    returns, source = one.function.returns, one.inlining.source
    if returns is None:
        return
    if count != 1:
        one.inlining.put(returns.annotation, "tuple" if count else "None")
        return
    end = source.span(returns.annotation)[1]
    start = source.text.rindex("->", 0, source.span(returns.annotation)[0])
    start = len(source.text[:start].rstrip())
    one.inlining.migration.forget(source, returns.annotation)
    one.inlining.migration.substitute_span(source, start, end, "")


def _only_builds(one: Returning) -> bool:
    """Whether a function only makes the dict, of the same values for all callers."""
    given = [arg.value for caller in one.callers for arg in caller.call.args]
    return only_return(one.function) is not None and all(map(one.inlining.meanings.is_inert, given))


def _shared_values(one: Returning, dicts: list[tuple[cst.Return, Items]]) -> dict[str, str]:
    """The values that are the same in the callers, by key."""
    if len(dicts) != 1:
        return {}
    meanings = one.inlining.meanings
    return {
        key: one.inlining.text(value)
        for key, value in dicts[0][1].items()
        if meanings.is_inert(value) and all(_is_same(one, caller, value) for caller in one.callers)
    }


def _is_same(one: Returning, caller: Caller, value: cst.BaseExpression) -> bool:
    """Whether an expression has the same value in a caller."""
    source = one.inlining.source
    names = [part for part in source.descend(value) if isinstance(part, cst.Name)]
    bindings = bindings_of(source)
    for name in names:
        parent = source.parent(name)
        if isinstance(parent, cst.Attribute) and parent.attr is name:
            continue
        if isinstance(parent, cst.Arg) and parent.keyword is name:
            continue
        owner = bindings.owner(bindings.scope_at(name), name.value)
        if owner is None and name.value in ("True", "False", "None"):
            continue
        if caller.inlining is not one.inlining or owner not in (None, bindings.module):
            return False
        if owner is not None and not _is_bound_once(source, name.value):
            return False
        if not one.inlining.meanings.is_same_variable(name, caller.call):
            return False
    return True


def _is_bound_once(source: Source, name: str) -> bool:
    module = bindings_of(source).module
    imports = [item for item in module.imports if item.local == name]
    return len(module.others.get(name, ())) + len(imports) == 1


def _variable(caller: Caller, key: str, taken: set[Variable]) -> str:
    """A new variable for a value that a caller gets."""
    source = caller.inlining.source
    function = function_around(source, caller.call)
    bound = bound_names(source, caller.call)
    numbered = (f"fsdp_{key}_{number}" for number in itertools.count(2))
    wanted = itertools.chain((key, f"fsdp_{key}"), numbered)
    name = next(one for one in wanted if one not in bound and (function, one) not in taken)
    taken.add((function, name))
    return name


def _name_values(
    caller: Caller, names: dict[str, str], moved: dict[str, str], *, drops_calls: bool
) -> None:
    """Give the values that a call returns variables, and spread these."""
    inlining, source = caller.inlining, caller.inlining.source
    statement = statement_of(source, caller.call)
    text = inlining.text(caller.call)
    lines = [_assignment(source, caller.call, list(names.values()), text)]
    values = {**names, **moved}
    if drops_calls:
        lines = []
    if caller.name is None:
        for line in lines:
            inlining.put_before(statement, line)
        arg = source.parent(caller.call)
        assert arg is not None
        inlining.put(arg, ", ".join(f"{key}={value}" for key, value in values.items()))
        return
    pairs = (f"{string_literal(source, key)}: {value}" for key, value in values.items())
    lines.append(f"{caller.name.value} = {{{', '.join(pairs)}}}")
    inlining.put_lines(statement, lines)


def _assignment(source: Source, at: cst.Call, names: list[str], text: str) -> str:
    """The statement that gives names the values of a call; the names are in parentheses if it is too
    long."""
    line = f"{', '.join(names)} = {text}" if names else text
    room = width(source) - len(line_indent(source, source.span(at)[0]).expandtabs(4))
    if len(names) < 2 or len(line) <= room:
        return line
    return f"{_in_lines(names)} = {text}"


def _in_lines(texts: list[str]) -> str:
    """A tuple with a line for each element; tabs indent them."""
    return "(\n" + "".join(f"\t{text},\n" for text in texts) + ")"
