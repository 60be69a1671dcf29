"""Other spellings of calls: of their arguments and of what is called."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst
import libcst.matchers as m
from refactoring import refactoring
from syntax_tools import bound, expression, statements, text_of, with_head

# Functions of Python that read their caller's scope, or that nobody calls otherwise.
_PYTHON = {
    *("print", "super", "locals", "globals", "vars", "eval", "exec", "dir", "isinstance"),
    *("range", "len", "zip", "enumerate", "list", "tuple", "set", "dict", "str", "int", "float"),
}
_DOTTED = m.Name() | m.Attribute()


def _is_plain(node: cst.Call) -> bool:
    """Whether a call is of a dotted name that is no function of Python, and `super` is not in it."""
    if not m.matches(node.func, _DOTTED) or m.findall(node, m.Name("super")):
        return False
    if m.findall(node.func, m.Call()):
        return False
    return not (isinstance(node.func, cst.Name) and node.func.value in _PYTHON)


class Calls(cst.CSTTransformer):
    """Changes calls in functions and at the top level, but none of decorators and of class bodies.

    `change` gives the new expression, or None. What it puts into `before` is executed before the
    statement that the call is in.
    """

    def __init__(self, change: Callable[[Calls, cst.Call], cst.BaseExpression | None]) -> None:
        self.change = change
        self.before: list[str] = []
        self.count = 0
        self.places: list[type] = [cst.Module]
        self.is_whole = True
        self.whole: set[cst.Call] = set()

    def visit_Decorator(self, node: cst.Decorator) -> bool:
        return False

    def visit_FormattedString(self, node: cst.FormattedString) -> bool:
        return False  # before Python 3.12 it cannot hold its own quotes

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.places.append(cst.ClassDef)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.places.append(cst.FunctionDef)

    def leave_ClassDef(
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.ClassDef:
        self.places.pop()
        return updated_node

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        self.places.pop()
        return updated_node

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> None:
        self.before = []
        self.whole = set()
        if len(node.body) == 1:
            value = getattr(node.body[0], "value", None)
            if isinstance(value, cst.Call):
                self.whole = {value}

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement]:
        before, self.before, self.whole = self.before, [], set()
        if not before:
            return updated_node
        return cst.FlattenSentinel([*statements("".join(before)), updated_node])

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if self.places[-1] is cst.ClassDef or not _is_plain(updated_node):
            return updated_node
        self.is_whole = original_node in self.whole
        changed = self.change(self, updated_node)
        return updated_node if changed is None else changed

    def new_name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"


def _changed(
    module: cst.Module,
    change: Callable[[Calls, cst.Call], cst.BaseExpression | None],
    head: str = "",
) -> cst.Module | None:
    visitor = Calls(change)
    changed = module.visit(visitor)
    if changed.code == module.code:
        return None
    return with_head(changed, head) if head else changed


def _arguments(node: cst.Call) -> tuple[list[str], list[tuple[str, str]]] | None:
    """The texts of the arguments, positional and by name; None if some have a star."""
    if any(arg.star for arg in node.args) or any(
        m.matches(a.value, m.GeneratorExp()) for a in node.args
    ):
        return None
    given = [text_of([arg.value]) for arg in node.args if arg.keyword is None]
    named = [(a.keyword.value, text_of([a.value])) for a in node.args if a.keyword is not None]
    return given, named


def _call(function: str, *arguments: str) -> cst.BaseExpression:
    return expression(f"{function}({', '.join(a for a in arguments if a)})")


@refactoring()
def dict_of_arguments(module: cst.Module) -> cst.Module | None:
    """The keyword arguments of a statement's call come from a dict, by `**`."""

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        arguments = _arguments(node)
        if arguments is None or not arguments[1] or not calls.is_whole:
            return None
        name = calls.new_name("options")
        pairs = ", ".join(f'"{key}": {value}' for key, value in arguments[1])
        calls.before.append(f"{name} = {{{pairs}}}\n")
        return _call(text_of([node.func]), *arguments[0], f"**{name}")

    return _changed(module, change)


@refactoring()
def dict_filled(module: cst.Module) -> cst.Module | None:
    """The keyword arguments come from a dict that is filled key by key."""

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        arguments = _arguments(node)
        if arguments is None or not arguments[1] or not calls.is_whole:
            return None
        name = calls.new_name("options")
        calls.before.append(f"{name} = {{}}\n")
        calls.before.extend(f'{name}["{key}"] = {value}\n' for key, value in arguments[1])
        return _call(text_of([node.func]), *arguments[0], f"**{name}")

    return _changed(module, change)


@refactoring()
def dict_call(module: cst.Module) -> cst.Module | None:
    """`f(key=value)` becomes `f(**dict(key=value))`."""

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        arguments = _arguments(node)
        if arguments is None or not arguments[1]:
            return None
        pairs = ", ".join(f"{key}={value}" for key, value in arguments[1])
        return _call(text_of([node.func]), *arguments[0], f"**dict({pairs})")

    return _changed(module, change)


@refactoring()
def star_arguments(module: cst.Module) -> cst.Module | None:
    """The arguments by position come from a tuple, by `*`."""

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        arguments = _arguments(node)
        if arguments is None or not arguments[0]:
            return None
        named = [f"{key}={value}" for key, value in arguments[1]]
        if not calls.is_whole:
            return _call(text_of([node.func]), f"*({', '.join(arguments[0])},)", *named)
        name = calls.new_name("arguments")
        calls.before.append(f"{name} = ({', '.join(arguments[0])},)\n")
        return _call(text_of([node.func]), f"*{name}", *named)

    return _changed(module, change)


@refactoring()
def partial_call(module: cst.Module) -> cst.Module | None:
    """The keyword arguments of a statement's call are bound by a `functools.partial` above it."""

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        arguments = _arguments(node)
        if arguments is None or not calls.is_whole:
            return None
        name = calls.new_name("bound")
        named = [f"{key}={value}" for key, value in arguments[1]]
        bind = text_of([_call("functools.partial", text_of([node.func]), *named)])
        calls.before.append(f"{name} = {bind}\n")
        return _call(name, *arguments[0])

    return _changed(module, change, "import functools\n")


@refactoring()
def lambda_call(module: cst.Module) -> cst.Module | None:
    """A statement's call is made by a lambda that the line above it assigns."""

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        if not calls.is_whole or m.findall(node, m.Await() | m.Yield() | m.NamedExpr()):
            return None
        name = calls.new_name("call")
        calls.before.append(f"{name} = lambda: {text_of([node])}\n")
        return _call(name)

    return _changed(module, change)


@refactoring()
def helper_calls(module: cst.Module) -> cst.Module | None:
    """`f(x)` becomes `call(f, x)` with a helper that calls what it is given."""

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        arguments = [text_of([a.with_changes(comma=cst.MaybeSentinel.DEFAULT)]) for a in node.args]
        if any(m.matches(a.value, m.GeneratorExp()) for a in node.args):
            return None
        return _call("call", text_of([node.func]), *arguments)

    helper = "def call(function, *args, **kwargs):\n    return function(*args, **kwargs)\n\n\n"
    if "call" in bound(module.body):
        return None
    return _changed(module, change, helper)


@refactoring()
def method_by_getattr(module: cst.Module) -> cst.Module | None:
    """`x.method(y)` becomes `getattr(x, "method")(y)`."""

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        if not isinstance(node.func, cst.Attribute):
            return None
        function = f'getattr({text_of([node.func.value])}, "{node.func.attr.value}")'
        return node.with_changes(func=expression(function))

    return _changed(module, change)


@refactoring()
def bound_method(module: cst.Module) -> cst.Module | None:
    """`x.method(y)` becomes `method = x.method` and `method(y)`."""

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        if not isinstance(node.func, cst.Attribute) or not calls.is_whole:
            return None
        name = calls.new_name(f"bound_{node.func.attr.value}")
        calls.before.append(f"{name} = {text_of([node.func])}\n")
        return node.with_changes(func=cst.Name(name))

    return _changed(module, change)


@refactoring()
def method_caller(module: cst.Module) -> cst.Module | None:
    """`x.method(y)` becomes `operator.methodcaller("method", y)(x)`; not of a module's functions."""
    modules = _imported(module)

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        func = node.func
        if not isinstance(func, cst.Attribute) or _root(func) in modules:
            return None
        arguments = [text_of([a.with_changes(comma=cst.MaybeSentinel.DEFAULT)]) for a in node.args]
        if any(m.matches(a.value, m.GeneratorExp()) for a in node.args):
            return None
        caller = text_of([_call("operator.methodcaller", f'"{func.attr.value}"', *arguments)])
        return _call(caller, text_of([func.value]))

    return _changed(module, change, "import operator\n")


@refactoring()
def dict_of_functions(module: cst.Module) -> cst.Module | None:
    """A statement's call is of an element of a dict of functions that the line above it builds."""

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        if not calls.is_whole:
            return None
        name = calls.new_name("functions")
        calls.before.append(f'{name} = {{"used": {text_of([node.func])}, "other": print}}\n')
        return node.with_changes(func=expression(f'{name}["used"]'))

    return _changed(module, change)


@refactoring()
def arguments_in_dataclass(module: cst.Module) -> cst.Module | None:
    """Constants that are keyword arguments come from the fields of a dataclass."""
    fields: list[str] = []

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        literal = m.SimpleString() | m.Integer() | m.Float() | m.Name("True") | m.Name("False")
        args = []
        for arg in node.args:
            if arg.keyword is not None and m.matches(arg.value, literal):
                name = calls.new_name("field")
                fields.append(f"    {name}: object = {text_of([arg.value])}\n")
                arg = arg.with_changes(value=expression(f"OPTIONS.{name}"))
            args.append(arg)
        return node.with_changes(args=args)

    changed = _changed(module, change)
    if changed is None:
        return None
    text = "".join(fields)
    head = f"import dataclasses\n\n\n@dataclasses.dataclass\nclass Options:\n{text}\n\nOPTIONS = Options()\n"
    return with_head(changed, head)


def _imported(module: cst.Module) -> set[str]:
    """The names that imports bind anywhere."""
    names = set()
    for alias in m.findall(module, m.ImportAlias()):
        assert isinstance(alias, cst.ImportAlias)
        names.add(alias.evaluated_alias or alias.evaluated_name.partition(".")[0])
    return names


def _root(node: cst.BaseExpression) -> str:
    while isinstance(node, cst.Attribute):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def _own_functions(module: cst.Module) -> dict[str, list[str]]:
    """The parameters of the module's functions that take no others than plain ones."""
    found: dict[str, list[str]] = {}
    for statement in module.body:
        if isinstance(statement, cst.FunctionDef) and not statement.decorators:
            p = statement.params
            plain = not (p.kwonly_params or p.posonly_params or p.star_kwarg)
            if plain and isinstance(p.star_arg, cst.MaybeSentinel):
                found[statement.name.value] = [one.name.value for one in p.params]
    return found


@refactoring()
def positional_to_keyword(module: cst.Module) -> cst.Module | None:
    """`f(x)` of a function of the file becomes `f(parameter=x)`."""
    functions = _own_functions(module)

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        arguments = _arguments(node)
        parameters = functions.get(text_of([node.func]))
        if arguments is None or parameters is None or len(arguments[0]) > len(parameters):
            return None
        named = [*zip(parameters, arguments[0], strict=False), *arguments[1]]
        return _call(text_of([node.func]), *(f"{key}={value}" for key, value in named))

    return _changed(module, change)


@refactoring()
def keyword_to_positional(module: cst.Module) -> cst.Module | None:
    """`f(parameter=x)` of a function of the file becomes `f(x)`."""
    functions = _own_functions(module)

    def change(calls: Calls, node: cst.Call) -> cst.BaseExpression | None:
        arguments = _arguments(node)
        parameters = functions.get(text_of([node.func]))
        if arguments is None or parameters is None:
            return None
        given, named = arguments
        while named and len(given) < len(parameters) and named[0][0] == parameters[len(given)]:
            given.append(named.pop(0)[1])
        return _call(text_of([node.func]), *given, *(f"{key}={value}" for key, value in named))

    return _changed(module, change)
