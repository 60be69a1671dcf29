"""Direct calls in the place of calls through partials, lambdas, method callers and helpers."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.analysis.variables import home_of
from fsdplint.migration.direct_form.argument_dicts import named_items
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.direct_form.meaning import Meaning, display_items
from fsdplint.migration.names import FSDP
from fsdplint.migration.text import atom
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.layout import descend


@dataclass
class Given:
    """The arguments of a direct call, as texts."""

    positional: list[str]
    named: dict[str, str]
    spread: list[str]  # arguments with a star that stay

    @property
    def texts(self) -> list[str]:
        named = [f"{name}={text}" for name, text in self.named.items()]
        return [*self.positional, *named, *self.spread]


def rewrite_call(inlining: Inlining, node: cst.Call) -> bool:
    """Make a call direct; whether it was not."""
    func = inlining.meanings.of(node.func)
    stars = [inlining.meanings.of(arg.value) for arg in node.args if arg.star]
    parts = [node, func.node, *(star.node for star in stars)]
    chosen = inlining.source.parent(node)  # `model.no_sync() if last else call(nullcontext)`
    around = [chosen] if isinstance(chosen, cst.IfExp) else []
    if not inlining.is_relevant(*parts, *around) or inlining.has_comments(*parts):
        return False
    return (
        _rewrite_lambda(inlining, node, func)
        or _rewrite_getattr(inlining, node)
        or _rewrite_function(inlining, node, func)
    )


def _rewrite_lambda(inlining: Inlining, node: cst.Call, func: Meaning) -> bool:
    """`(lambda: f(x))()` becomes `f(x)`."""
    function = func.node
    if not isinstance(function, cst.Lambda) or node.args or _parameters(function.params):
        return False
    inlining.use(func)
    inlining.put(node, atom(inlining.text(function.body)))
    return True


def _rewrite_getattr(inlining: Inlining, node: cst.Call) -> bool:
    """`getattr(x, "name")` becomes `x.name`."""
    source = inlining.source
    if not isinstance(node.func, cst.Name) or node.func.value != "getattr" or len(node.args) != 2:
        return False
    if home_of(source, node.func) is not None or any(a.star or a.keyword for a in node.args):
        return False
    name = node.args[1].value
    text = name.evaluated_value if isinstance(name, cst.SimpleString) else None
    if not isinstance(text, str) or not text.isidentifier():
        return False
    inlining.put(node, f"{atom(inlining.text(node.args[0].value))}.{text}")
    return True


def _rewrite_function(inlining: Inlining, node: cst.Call, func: Meaning) -> bool:
    """Name the function that is called, with all of its arguments."""
    if not _is_ordered(node):
        return False
    given, used = _given_arguments(inlining, node)
    function = _direct_function(inlining, node, func, given)
    if function is None and not used:
        return False
    inlining.use(*used)
    if function is not None:
        inlining.use(func)
    inlining.put_call(node, function or inlining.text(node.func), given.texts)
    return True


def _direct_function(inlining: Inlining, node: cst.Call, func: Meaning, given: Given) -> str | None:
    """The text of the function that is called in the end; adds to its arguments.

    None where the call is direct already.
    """
    called = func.node
    if isinstance(called, cst.Call):
        return _bound(inlining, called, given)
    if isinstance(called, cst.Name):
        forwarding = _forwards(inlining, called)
        if forwarding and given.positional:
            return atom(given.positional.pop(0))
    if called is node.func or not isinstance(called, cst.Name | cst.Attribute):
        return None
    return inlining.text(called)


def _bound(inlining: Inlining, called: cst.Call, given: Given) -> str | None:
    """The function of a call of `functools.partial` or `operator.methodcaller`."""
    symbol = inlining.migration.symbol(called.func)
    if not called.args or any(arg.star for arg in called.args):
        return None
    first, *bound = called.args
    if first.keyword is not None:
        return None
    values = [inlining.text(arg.value) for arg in bound if arg.keyword is None]
    named = {a.keyword.value: inlining.text(a.value) for a in bound if a.keyword is not None}
    if symbol == "functools.partial":
        given.positional[:0] = values
        given.named = {**named, **given.named}
        return atom(inlining.text(first.value))
    name = first.value.evaluated_value if isinstance(first.value, cst.SimpleString) else None
    if symbol != "operator.methodcaller" or not isinstance(name, str):
        return None
    if len(given.positional) != 1 or given.named or given.spread:
        return None
    receiver = atom(given.positional[0])
    given.positional, given.named = values, named
    return f"{receiver}.{name}"


def _given_arguments(inlining: Inlining, node: cst.Call) -> tuple[Given, list[Meaning]]:
    """The arguments of a call, and the displays among those with a star that are spread here."""
    given, used = Given([], {}, []), []
    for arg in node.args:
        if not arg.star:
            if arg.keyword is not None:
                given.named[arg.keyword.value] = inlining.text(arg.value)
            else:
                given.positional.append(inlining.text(arg.value))
            continue
        meaning = inlining.meanings.of(arg.value)
        if _add_elements(inlining, node, arg, meaning, given):
            used.append(meaning)
        else:
            given.spread.append(arg.star + inlining.text(arg.value))
    return given, used


def _is_ordered(node: cst.Call) -> bool:
    """Whether no argument by position stands behind one with a star."""
    stars = [bool(arg.star) for arg in node.args if arg.keyword is None]
    return stars == sorted(stars)


def _add_elements(
    inlining: Inlining, node: cst.Call, arg: cst.Arg, meaning: Meaning, given: Given
) -> bool:
    """Add the elements of a display that a call spreads; whether it is one."""
    if arg.star == "*":
        items = display_items(meaning.node) if not given.spread else None
        if items is None or not isinstance(meaning.node, cst.Tuple | cst.List):
            return False
        given.positional += [inlining.text(value) for _, value in items]
        return True
    if _is_left_to_constructor(inlining, node, meaning):
        return False
    named = named_items(meaning.node)
    if named is None or set(named) & set(given.named):
        return False
    given.named.update({name: inlining.text(value) for name, value in named.items()})
    return True


def _is_left_to_constructor(inlining: Inlining, node: cst.Call, meaning: Meaning) -> bool:
    """Whether the constructor spreads a variable, which its own rewrite follows."""
    is_constructor = inlining.migration.fsdp1(node.func) == FSDP
    return is_constructor and bool(meaning.reads) and not inlining.depth.spreads_to_constructor


def _parameters(node: cst.Parameters) -> list[cst.Param]:
    return [part for part in descend(node) if isinstance(part, cst.Param)]


# Helpers that call what they are given ---------------------------------------------------------------


def _forwards(inlining: Inlining, name: cst.Name) -> bool:
    """Whether a name is a function that returns the call of its first argument with the others."""
    function = function_named(inlining, name)
    if function is None or function.decorators or function.asynchronous is not None:
        return False
    p, value = function.params, only_return(function)
    if len(p.params) != 1 or p.kwonly_params or p.posonly_params or p.params[0].default is not None:
        return False
    if not isinstance(value, cst.Call) or not is_constant(value.func, p.params[0].name.value):
        return False
    stars = [(p.star_arg, "*"), (p.star_kwarg, "**")]
    wanted = [(one.name.value, star) for one, star in stars if isinstance(one, cst.Param)]
    passed = [(a.value.value, a.star) for a in value.args if isinstance(a.value, cst.Name)]
    return passed == wanted and len(passed) == len(value.args) and len(wanted) == 2


def function_named(inlining: Inlining, name: cst.Name) -> cst.FunctionDef | None:
    """The only function of the file's top level that a name refers to."""
    bindings = bindings_of(inlining.source)
    owner = bindings.owner(bindings.scope_at(name), name.value)
    if owner is not bindings.module or any(i.local == name.value for i in owner.imports):
        return None
    bound = owner.others.get(name.value, [])
    function = inlining.source.parent(bound[0]) if len(bound) == 1 else None
    return function if isinstance(function, cst.FunctionDef) else None


def only_return(function: cst.FunctionDef) -> cst.BaseExpression | None:
    """The value of a function whose only statement returns it."""
    body = [line for line in function.body.body if not _is_docstring(line)]
    if len(body) != 1 or not isinstance(body[0], cst.SimpleStatementLine):
        return None
    (small,) = body[0].body if len(body[0].body) == 1 else (None,)
    return small.value if isinstance(small, cst.Return) else None


def _is_docstring(line: cst.CSTNode) -> bool:
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    return isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString)
