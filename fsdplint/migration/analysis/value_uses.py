"""The uses of a value, followed forward through variables, attributes, calls and returns.

A rewrite that changes the type of an object has to know every reader of it. Traces contain only the
readers that a run reaches; this module follows the syntax of all code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.values import Bound, Class, Function
from fsdplint.migration.analysis.class_hierarchy import positional_parameters
from fsdplint.migration.analysis.variables import reads
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source, once
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.bindings import Imported, bindings_of
from fsdplint.syntax.enclosing import ancestors

FUNCTIONS = cst.FunctionDef | cst.Lambda
MAX_PLACES = 1_000  # to follow for one value


@dataclass(frozen=True)
class Use:
    """A place that uses a value other than by passing it on.

    Attributes:
        node: the expression that has the value.
        place: its parent: an argument, a comparison, an attribute of it, ...
    """

    source: Source
    node: cst.CSTNode
    place: cst.CSTNode | None


class Uses:
    """Follows one value to the places that use it."""

    def __init__(self, migration: Migration) -> None:
        self.migration = migration
        self.sources = list(migration.program.sources.values())
        self._seen: set[cst.CSTNode] = set()
        self._todo: list[tuple[Source, cst.CSTNode]] = []

    def of(self, source: Source, node: cst.CSTNode) -> list[Use]:
        """The uses of the value that an expression makes."""
        self._follow(source, node)
        return self._all()

    def of_target(self, source: Source, target: cst.CSTNode) -> list[Use]:
        """The uses of the value that a variable, an attribute or a parameter gets."""
        if isinstance(source.parent(target), cst.Param):
            functions = (one for one in ancestors(source, target) if isinstance(one, FUNCTIONS))
            self._follow_variable(source, target, next(functions, None))
        else:
            self._follow_target(source, target)
        return self._all()

    def _all(self) -> list[Use]:
        """The uses of everything that is to be followed."""
        found: list[Use] = []
        while self._todo and len(self._seen) < MAX_PLACES:
            found += self._step(*self._todo.pop())
        # Places beyond the bound count as uses.
        return [*found, *(Use(at, last, at.parent(last)) for at, last in self._todo)]

    def _follow(self, source: Source, node: cst.CSTNode) -> None:
        if node not in self._seen:
            self._seen.add(node)
            self._todo.append((source, node))

    def _step(self, source: Source, node: cst.CSTNode) -> Iterator[Use]:
        place = source.parent(node)
        if isinstance(place, cst.IfExp) and place.test is not node:
            self._follow(source, place)
        elif isinstance(place, cst.BooleanOperation | cst.Await):
            self._follow(source, place)
        elif isinstance(place, cst.NamedExpr):
            self._follow_variable(source, place.target)
            self._follow(source, place)
        elif isinstance(place, cst.Assign | cst.AnnAssign):
            for target in _targets(place):
                self._follow_target(source, target)
        elif isinstance(place, cst.Param) and place.default is node:
            function = next((x for x in ancestors(source, place) if isinstance(x, FUNCTIONS)), None)
            self._follow_variable(source, place.name, function)
        elif isinstance(place, cst.Return | cst.Lambda):
            self._follow_return(source, place)
        elif isinstance(place, cst.Element) and self._follow_tuple(source, place):
            pass
        elif isinstance(place, cst.Arg) and self._follow_argument(source, place):
            pass
        else:
            yield Use(source, node, place)

    # Where a name or an attribute holds it --------------------------------------------------------

    def _follow_target(self, source: Source, target: cst.CSTNode) -> None:
        if isinstance(target, cst.Name):
            self._follow_variable(source, target)
        elif isinstance(target, cst.Attribute):
            self._follow_attribute(target.attr.value)

    def _follow_variable(
        self, source: Source, name: cst.CSTNode, function: cst.CSTNode | None = None
    ) -> None:
        """Follow a variable, or a parameter of a function, to its readers in all files."""
        if not isinstance(name, cst.Name):
            return
        bindings = bindings_of(source)
        start = bindings.scope_at(name) if function is None else bindings.scopes[function]
        scope = bindings.owner(start, name.value)
        if scope is None:
            return
        for node in reads(source, scope.node, name.value):
            if bindings.owner(bindings.scope_at(node), name.value) is scope:
                self._follow(source, node)
        if isinstance(scope.node, cst.ClassDef):
            self._follow_attribute(name.value)
        elif scope.node is source.tree:
            self._follow_imports(source, name.value)

    def _follow_imports(self, source: Source, name: str) -> None:
        """Follow a variable of a file to the files that import it."""
        module = source.path.replace("\\", "/").removesuffix(".py").removesuffix("/__init__")
        stem = module.rpartition("/")[2]
        for other in self.sources:
            if other is source or name not in other.text:
                continue
            for item in bindings_of(other).imports():
                if item.name == name and item.module.rpartition(".")[2] in (stem, ""):
                    for node in reads(other, other.tree, item.local):
                        self._follow(other, node)
                elif item.name in (None, stem):
                    for attribute in _attributes_by_name(other).get(name, ()):
                        if (
                            isinstance(attribute.value, cst.Name)
                            and attribute.value.value == item.local
                        ):
                            self._follow(other, attribute)

    def _follow_attribute(self, name: str) -> None:
        """Follow an attribute of any object to its readers."""
        for source in self.sources:
            for node in _attributes_by_name(source).get(name, ()):
                if node in self.migration.symbols:
                    continue
                if not isinstance(source.parent(node), cst.AssignTarget | cst.AnnAssign):
                    self._follow(source, node)

    # Functions ------------------------------------------------------------------------------------

    def _follow_return(self, source: Source, node: cst.CSTNode, index: int | None = None) -> None:
        """Follow a return value to the calls; `index` is its position in a tuple."""
        function = next(
            (
                x
                for x in (node, *ancestors(source, node))
                if isinstance(x, cst.Lambda | cst.FunctionDef)
            ),
            None,
        )
        if not isinstance(function, cst.FunctionDef):
            return
        if any(source.code(mark.decorator).endswith("property") for mark in function.decorators):
            self._follow_attribute(function.name.value)
            return
        for other, call in self._calls(source, function):
            if index is None:
                self._follow(other, call)
            else:
                self._follow_element(other, call, index)

    def _calls(self, home: Source, function: cst.FunctionDef) -> Iterator[tuple[Source, cst.Call]]:
        """The calls of a function: by its value, and by its name where the value is not known."""
        for source in self.sources:
            for call in _calls_by_name(source).get(function.name.value, ()):
                known = self._functions(call.func)
                if function in known or (not known and _may_be(source, call.func, home)):
                    yield source, call

    def _functions(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """The functions and classes of the program that a node may be."""
        found = [v.function if isinstance(v, Bound) else v for v in self.migration.values(node)]
        return [v.node for v in found if isinstance(v, Function | Class)]

    def _follow_tuple(self, source: Source, element: cst.Element) -> bool:
        """Follow an element of a tuple that is returned, or assigned to several names."""
        whole = source.parent(element)
        if not isinstance(whole, cst.Tuple):
            return False
        index = list(whole.elements).index(element)
        place = source.parent(whole)
        if isinstance(place, cst.Return):
            self._follow_return(source, place, index)
            return True
        if isinstance(place, cst.Assign):
            return self._follow_element(source, whole, index)
        return False

    def _follow_element(self, source: Source, whole: cst.CSTNode, index: int) -> bool:
        """Follow an element of a tuple to the name that it is assigned to."""
        place = source.parent(whole)
        if not isinstance(place, cst.Assign):
            return False
        for target in _targets(place):
            if not isinstance(target, cst.Tuple) or index >= len(target.elements):
                return False
            self._follow_target(source, target.elements[index].value)
        return True

    def _follow_argument(self, source: Source, arg: cst.Arg) -> bool:
        """Follow an argument into the functions of the program that get it."""
        call = source.parent(arg)
        if not isinstance(call, cst.Call) or arg.star or self.migration.symbol(call.func):
            return False
        known, name = self._functions(call.func), _last(call.func)
        found = [
            (other, node)
            for other in self.sources
            for node in known or _definitions_by_name(other).get(name, [])
            if not known or node in _definitions(other)
        ]
        taken = [self._follow_parameter(other, node, call, arg) for other, node in found]
        return bool(taken) and all(taken)

    def _follow_parameter(
        self, source: Source, node: cst.CSTNode, call: cst.Call, arg: cst.Arg
    ) -> bool:
        """Follow an argument to the parameter of a function. Returns whether there is one."""
        if isinstance(node, cst.ClassDef):
            return self._follow_field(source, node, call, arg)
        if not isinstance(node, cst.FunctionDef | cst.Lambda):
            return False
        if isinstance(node, cst.FunctionDef):
            params = positional_parameters(source, node)
        else:
            params = [*node.params.posonly_params, *node.params.params]
        names = [param.name.value for param in params]
        name = next((n for n, a in arguments(call, names)[0].items() if a is arg), "")
        for param in (*params, *node.params.kwonly_params):
            if param.name.value == name:
                self._follow_variable(source, param.name, node)
                return True
        return False

    def _follow_field(
        self, source: Source, klass: cst.ClassDef, call: cst.Call, arg: cst.Arg
    ) -> bool:
        """The same for the constructor of a class: its `__init__`, or the fields of a dataclass."""
        body = klass.body.body
        made = next(
            (x for x in body if isinstance(x, cst.FunctionDef) and x.name.value == "__init__"), None
        )
        if made is not None:
            return self._follow_parameter(source, made, call, arg)
        fields = [
            part.target.value
            for line in body
            for part in line.children
            if isinstance(part, cst.AnnAssign) and isinstance(part.target, cst.Name)
        ]
        name = next((n for n, a in arguments(call, fields)[0].items() if a is arg), "")
        if name:
            self._follow_attribute(name)
        return bool(name)


# Indexes of a file by name, cached for all values that are followed.


@once
def _definitions(source: Source) -> frozenset[cst.CSTNode]:
    kinds = cst.FunctionDef | cst.ClassDef | cst.Lambda
    return frozenset(node for node in source.descend(source.tree) if isinstance(node, kinds))


@once
def _definitions_by_name(source: Source) -> Mapping[str, list[cst.CSTNode]]:
    found: dict[str, list[cst.CSTNode]] = {}
    for node in source.descend(source.tree):
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            found.setdefault(node.name.value, []).append(node)
    return found


@once
def _calls_by_name(source: Source) -> Mapping[str, list[cst.Call]]:
    found: dict[str, list[cst.Call]] = {}
    for node in source.descend(source.tree):
        if isinstance(node, cst.Call):
            found.setdefault(_called_name(source, node.func), []).append(node)
    return found


def _called_name(source: Source, func: cst.BaseExpression) -> str:
    """The name of a called function in its own file, as far as imports show it."""
    item = _import_of(source, func)
    return item.name if item is not None and item.name else _last(func)


def _import_of(source: Source, func: cst.BaseExpression) -> Imported | None:
    """The import that binds a name, if exactly one does."""
    if not isinstance(func, cst.Name):
        return None
    bindings = bindings_of(source)
    scope = bindings.owner(bindings.scope_at(func), func.value)
    items = [item for item in scope.imports if item.local == func.value] if scope else []
    return items[0] if len(items) == 1 else None


def _may_be(source: Source, func: cst.BaseExpression, home: Source) -> bool:
    """Whether a call by a name may call the definition of that name in another file."""
    if not isinstance(func, cst.Name) or source is home or _import_of(source, func) is not None:
        return True
    return func.value not in _definitions_by_name(source)


@once
def _attributes_by_name(source: Source) -> Mapping[str, list[cst.Attribute]]:
    found: dict[str, list[cst.Attribute]] = {}
    for node in source.descend(source.tree):
        if isinstance(node, cst.Attribute):
            found.setdefault(node.attr.value, []).append(node)
    return found


def _targets(node: cst.Assign | cst.AnnAssign) -> list[cst.BaseExpression]:
    if isinstance(node, cst.AnnAssign):
        return [node.target]
    return [target.target for target in node.targets]


def _last(node: cst.CSTNode) -> str:
    name = node.attr if isinstance(node, cst.Attribute) else node
    return name.value if isinstance(name, cst.Name) else ""
