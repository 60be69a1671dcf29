"""Subclasses of FSDP1 that set arguments and add methods: they become functions of a model.

`class Sharded(FSDP)` with an `__init__` that ends with `super().__init__(...)` becomes a function that
returns `FSDP(...)`, and a method `model.total()` becomes `total(model)`. FSDP2 has no wrapper whose class
could be derived.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.edits.unused_imports import may_be_module
from fsdplint.interpreter.values import Instance, ModuleValue, Value
from fsdplint.migration.analysis.variables import function_name
from fsdplint.migration.context import attributes
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.names import FSDP, PREFIX
from fsdplint.migration.symbols import CHANGED, MEMBERS
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import annotation_around, function_around
from fsdplint.syntax.layout import descend

# Methods that torch calls, or that all modules have: a function does not replace them.
OF_MODULES = re.compile(
    r"forward|(get_)?(extra_)?state(_dict)?|.*state_dict|(named_)?(parameters|buffers|modules|children)"
    r"|train|eval|to|cuda|cpu|apply|half|float|double|bfloat16|type|zero_grad|requires_grad_"
    r"|register_.*|add_module|(get|set)_(submodule|parameter|buffer)|compile|share_memory|to_empty|_.*"
)


@dataclass
class Subclass:
    """A subclass of FSDP1 with all of its uses.

    Attributes:
        files: all files of the program.
        constructor: its `__init__`, None if it has none.
        methods: its methods and properties, by name.
        calls: the calls of the class.
        annotations: the mentions of the class in annotations.
        imports: the names of the class in `from module import name`.
        uses: the attributes that read a method or property of an object, inner ones first.
    """

    inlining: Inlining
    files: Sequence[Inlining]
    node: cst.ClassDef
    constructor: cst.FunctionDef | None = None
    methods: dict[str, cst.FunctionDef] = field(default_factory=dict)
    calls: list[tuple[Inlining, cst.Call]] = field(default_factory=list)
    annotations: list[tuple[Inlining, cst.BaseExpression]] = field(default_factory=list)
    imports: list[tuple[Inlining, cst.ImportAlias]] = field(default_factory=list)
    uses: list[tuple[Inlining, cst.Attribute]] = field(default_factory=list)


def write_functions(inlining: Inlining, files: Sequence[Inlining]) -> None:
    """Put functions in the place of the subclasses of a file, and call these.

    files: all files of the program.
    """
    for statement in inlining.source.tree.body:
        if isinstance(statement, cst.ClassDef) and _derives_from_fsdp(inlining, statement):
            found = Subclass(inlining, files, statement)
            if _add_members(found) and _add_names(found) and _add_uses(found):
                _Writer(found).write()


def _derives_from_fsdp(inlining: Inlining, node: cst.ClassDef) -> bool:
    if node.decorators or node.keywords or len(node.bases) != 1:
        return False
    return inlining.migration.fsdp1(node.bases[0].value) == FSDP


# Reading ---------------------------------------------------------------------------------------------


def _add_members(found: Subclass) -> bool:
    """Add the methods of a class; whether functions can replace all of them."""
    for line in found.node.body.body:
        if isinstance(line, cst.FunctionDef):
            name = line.name.value
            if name == "__init__" and _only_calls_super(line):
                found.constructor = line
            elif _may_be_function(line) and name not in found.methods:
                found.methods[name] = line
            else:
                return False
        elif not isinstance(line, cst.SimpleStatementLine) or not all(map(_is_text, line.body)):
            return False
    return not _has_other_texts(found.node)


def _is_text(node: cst.CSTNode) -> bool:
    """Whether a statement is a docstring or `pass`."""
    return isinstance(node, cst.Pass) or (
        isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString)
    )


def _only_calls_super(function: cst.FunctionDef) -> bool:
    """Whether a constructor ends with `super().__init__(...)` and uses its object nowhere else."""
    p = function.params
    if function.decorators or len(p.params) < 2 or p.params[1].default is not None:
        return False
    last = function.body.body[-1]
    if not isinstance(last, cst.SimpleStatementLine) or len(last.body) != 1:
        return False
    small = last.body[0]
    call = small.value if isinstance(small, cst.Expr) else None
    if not isinstance(call, cst.Call) or not _is_super(call.func, "__init__"):
        return False
    inside = set(descend(call.func))
    names = [x for x in descend(function.body) if isinstance(x, cst.Name) and x not in inside]
    own = p.params[0].name.value
    return not any(name.value in (own, "super", "__class__") for name in names)


def _is_super(node: cst.BaseExpression, method: str) -> bool:
    """Whether a node is `super().method`."""
    if not isinstance(node, cst.Attribute) or node.attr.value != method:
        return False
    return isinstance(node.value, cst.Call) and is_constant(node.value.func, "super")


def _may_be_function(function: cst.FunctionDef) -> bool:
    """Whether a function of the model can replace a method."""
    name, p = function.name.value, function.params
    if name.startswith("__") or OF_MODULES.fullmatch(name) or name in CHANGED or name in MEMBERS:
        return False
    if not p.params or p.params[0].default is not None or p.posonly_params:
        return False
    marks = [mark.decorator for mark in function.decorators]
    if not all(is_constant(mark, "property") for mark in marks):
        return False
    own = p.params[0].name.value
    for part in descend(function):
        if is_constant(part, "super", "__class__"):
            return False
        targets = cst.AssignTarget | cst.AugAssign | cst.AnnAssign
        if isinstance(part, targets) and isinstance(part.target, cst.Attribute):
            if is_constant(part.target.value, own):
                return False
    return True


def _has_other_texts(node: cst.ClassDef) -> bool:
    """Whether a class has text of several lines that is no docstring: its indentation counts."""
    docs = {
        line.body[0].value
        for part in descend(node)
        if isinstance(part, cst.IndentedBlock)
        for line in part.body[:1]
        if isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Expr)
    }
    return any(
        isinstance(part, cst.SimpleString) and "\n" in part.value and part not in docs
        for part in descend(node)
    ) or any(isinstance(part, cst.FormattedString) and "\n" in part.start for part in descend(node))


def _add_names(found: Subclass) -> bool:
    """Add the mentions of the class; whether all of them are known."""
    name = found.node.name.value
    for one in found.files:
        source = one.source
        for node in source.descend(source.tree) if name in source.text else ():
            if isinstance(node, cst.SimpleString) and node.evaluated_value == name:
                return False
            if isinstance(node, cst.Name) and node.value == name and node is not found.node.name:
                if not _add_name(found, one, node):
                    return False
    return True


def _add_name(found: Subclass, one: Inlining, node: cst.Name) -> bool:
    source = one.source
    place = source.parent(node)
    if isinstance(place, cst.ImportAlias):
        found.imports.append((one, place))
        return place.asname is None and place.name is node
    mention: cst.BaseExpression = node
    if isinstance(place, cst.Attribute) and place.attr is node:
        mention, place = place, source.parent(place)
    if isinstance(place, cst.Call) and place.func is mention:
        found.calls.append((one, place))
        return True
    if annotation_around(source, mention):
        found.annotations.append((one, mention))
        return True
    return False


def _add_uses(found: Subclass) -> bool:
    """Add the reads of methods; whether all of them are known."""
    for one in found.files:
        source = one.source
        if not any(name in source.text for name in found.methods):
            continue
        for node in source.descend(source.tree):
            if isinstance(node, cst.SimpleString) and node.evaluated_value in found.methods:
                return False  # perhaps of `getattr`
            if isinstance(node, cst.FunctionDef) and node.name.value in found.methods:
                if node is not found.methods[node.name.value] and _is_method(source, node):
                    return False
        for use in sorted(attributes(source), key=lambda node: source.span(node)[1]):
            if use.attr.value in found.methods and not _add_use(found, one, use):
                return False
    return True


def _is_method(source: Source, node: cst.FunctionDef) -> bool:
    body = source.parent(node)
    return body is not None and isinstance(source.parent(body), cst.ClassDef)


def _add_use(found: Subclass, one: Inlining, use: cst.Attribute) -> bool:
    """Add a read of a method or property, unless it is one of another object."""
    values = one.migration.values(use.value)
    if one.migration.symbol(use):
        return True
    is_known = bool(values) and all(_is_model(found, value) for value in values)
    if not is_known and not _is_own_object(found, one, use.value):
        return False
    place = one.source.parent(use)
    if isinstance(place, cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.Del):
        return False
    if not _is_property(found.methods[use.attr.value]):
        if not isinstance(place, cst.Call) or place.func is not use:
            return False
    found.uses.append((one, use))
    return True


def _is_own_object(found: Subclass, one: Inlining, node: cst.BaseExpression) -> bool:
    """Whether a node is the first parameter of a method of the class."""
    method = function_around(one.source, node)
    if not isinstance(method, cst.FunctionDef) or method not in found.methods.values():
        return False
    return is_constant(node, method.params.params[0].name.value)


def _is_model(found: Subclass, value: Value) -> bool:
    """Whether a value may be an object of the class."""
    if isinstance(value, Instance):
        return value.cls.node is found.node
    return isinstance(value, ModuleValue)


def _is_property(function: cst.FunctionDef) -> bool:
    return bool(function.decorators)


# Writing ---------------------------------------------------------------------------------------------


class _Writer:
    """Writes the functions of one class."""

    def __init__(self, found: Subclass) -> None:
        self._found = found
        self._inlining = found.inlining
        self._source = found.inlining.source
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", found.node.name.value).lower()
        self._name = function_name(self._source, name)
        self._functions = {x: function_name(self._source, x) for x in found.methods}

    def write(self) -> None:
        places = [self._place(one) for one in self._found.files]
        if any(place is None for place in places):
            return
        for function in self._found.methods.values():
            self._rename_object(function)
        for one, use in self._found.uses:
            self._write_use(one, use)
        for one, mention in self._found.annotations:
            one.put(mention, one.migration.need(one.source, PREFIX, FSDP, mention))
        for one, alias in self._found.imports:
            if self._found.constructor is not None:
                one.put(alias, self._name)
            else:
                text = one.source.code(alias)
                one.migration.rewrite.remove_import_if_unused(one.source, text, anyway=True)
        for one, call in self._found.calls:
            one.put(call.func, self._constructor_text(one, call))
        functions = list(self._texts())
        self._inlining.put(self._found.node, "\n\n\n".join(functions))

    def _constructor_text(self, one: Inlining, call: cst.Call) -> str:
        if self._found.constructor is None:
            return one.migration.need(one.source, PREFIX, FSDP, call)
        if isinstance(call.func, cst.Attribute):
            return f"{one.text(call.func.value)}.{self._name}"
        return self._name

    def _place(self, one: Inlining) -> str | None:
        """The module under which a file imports that of the class; None if it needs it and has none."""
        if one is self._inlining or all(other is not one for other, _ in self._found.uses):
            return ""
        for item in bindings_of(one.source).imports():
            full = item.module if item.name else item.full
            if may_be_module(full, self._source.path) and not full.startswith("."):
                return full
        return None

    def _write_use(self, one: Inlining, use: cst.Attribute) -> None:
        """`model.total(x)` becomes `total(model, x)`."""
        name = self._functions[use.attr.value]
        if one is not self._inlining:
            name = one.migration.need(one.source, str(self._place(one)), name, use)
        given = [one.text(use.value)]
        call = one.source.parent(use)
        if _is_property(self._found.methods[use.attr.value]):
            one.put_call(use, name, given)
            return
        assert isinstance(call, cst.Call)
        for arg in call.args:
            key = f"{arg.keyword.value}=" if arg.keyword is not None else arg.star
            given.append(key + one.text(arg.value))
        one.put_call(call, name, given)

    def _rename_object(self, function: cst.FunctionDef) -> None:
        """Name the first parameter of a method `model`."""
        own = function.params.params[0].name.value
        new = self._object_name(function)
        for part in descend(function.body):
            if isinstance(part, cst.Name) and part.value == own:
                parent = self._source.parent(part)
                if isinstance(parent, cst.Attribute) and parent.attr is part:
                    continue
                if not isinstance(parent, cst.Arg) or parent.keyword is not part:
                    self._inlining.put(part, new)

    def _object_name(self, function: cst.FunctionDef) -> str:
        taken = {part.value for part in descend(function) if isinstance(part, cst.Name)}
        return next(name for name in ("model", "fsdp_model", "sharded_model") if name not in taken)

    def _texts(self) -> Iterator[str]:
        made = self._found.constructor
        if made is not None:
            star = made.params.star_arg
            keeps_star = isinstance(star, cst.Param) and self._gives_more(made)
            head = ", ".join(self._parameters(made, keeps_star=keeps_star))
            *lines, last = made.body.body
            assert isinstance(last, cst.SimpleStatementLine)
            body = [*self._docstring(made), *(self._statement(line) for line in lines)]
            indent = self._source.tree.default_indent
            call = f"{indent}return {self._call(last.body[0], keeps_star=keeps_star)}"
            yield "\n".join([f"def {self._name}({head}):", *body, call])
        for name, function in self._found.methods.items():
            given = [self._object_name(function), *self._parameters(function, keeps_star=True)]
            returns = function.returns
            result = f" -> {self._source.code(returns.annotation)}" if returns is not None else ""
            head = f"def {self._functions[name]}({', '.join(given)}){result}:"
            yield "\n".join([head, *(self._statement(line) for line in function.body.body)])

    def _docstring(self, made: cst.FunctionDef) -> list[str]:
        """The docstring of the class, if the constructor has none."""
        first = self._found.node.body.body[0]
        own = made.body.body[0]
        if isinstance(own, cst.SimpleStatementLine) and _is_text(own.body[0]):
            return []
        if not isinstance(first, cst.SimpleStatementLine) or isinstance(first.body[0], cst.Pass):
            return []
        return [f"{self._source.tree.default_indent}{self._source.code(first.body[0])}"]

    def _gives_more(self, made: cst.FunctionDef) -> bool:
        """Whether a call gives more arguments by position than the constructor names."""
        named = len(made.params.params) - 1
        return any(
            any(arg.star == "*" for arg in call.args)
            or sum(arg.keyword is None and not arg.star for arg in call.args) > named
            for _, call in self._found.calls
        )

    def _parameters(self, function: cst.FunctionDef, *, keeps_star: bool) -> list[str]:
        """The texts of the parameters besides the object."""
        p = function.params
        found = [self._parameter(one) for one in p.params[1:]]
        if isinstance(p.star_arg, cst.Param):
            if keeps_star:
                found.append(self._parameter(p.star_arg, "*"))
            elif p.kwonly_params:
                found.append("*")
        elif isinstance(p.star_arg, cst.ParamStar):
            found.append("*")
        found += [self._parameter(one) for one in p.kwonly_params]
        if p.star_kwarg is not None:
            found.append(self._parameter(p.star_kwarg, "**"))
        return found

    def _parameter(self, node: cst.Param, star: str = "") -> str:
        text = star + node.name.value
        if node.annotation is not None:
            text += f": {self._inlining.text(node.annotation.annotation)}"
        if node.default is not None:
            equal = " = " if node.annotation is not None else "="
            text += equal + self._inlining.text(node.default)
        return text

    def _call(self, statement: cst.CSTNode, *, keeps_star: bool) -> str:
        """The call of FSDP1 in the place of `super().__init__(...)`."""
        assert isinstance(statement, cst.Expr) and isinstance(statement.value, cst.Call)
        base = self._inlining.text(self._found.node.bases[0].value)
        given = []
        for arg in statement.value.args:
            if arg.star != "*" or keeps_star:
                key = f"{arg.keyword.value}=" if arg.keyword is not None else arg.star
                given.append(key + self._inlining.text(arg.value))
        return f"{base}({', '.join(given)})"

    def _statement(self, node: cst.CSTNode) -> str:
        """The text of a statement of a method, with its comments, one step less indented."""
        unit = self._source.tree.default_indent
        leading = getattr(node, "leading_lines", ())
        comments = [line.comment.value for line in leading if line.comment is not None]
        blank = [""] if leading and leading[0].comment is None else []
        trailing = getattr(getattr(node, "trailing_whitespace", None), "comment", None)
        text = self._inlining.text(node)
        if trailing is not None and trailing.value not in text:
            text = f"{text}  {trailing.value}"
        first, *rest = text.replace("\r\n", "\n").split("\n")
        lines = [unit + one for one in (*comments, first)]
        return "\n".join([*blank, *lines, *(line.removeprefix(unit) for line in rest)])
