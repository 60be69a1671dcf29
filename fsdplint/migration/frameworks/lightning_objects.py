"""Objects of Lightning's classes, known by what makes them, in code that no run may reach.

An expression is such an object if a run has made it one. Elsewhere its binding is followed: the
assignments of a variable or attribute, the annotation or the arguments of a parameter, and what a
function returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.interpreter.lightning_names import FABRICS, TRAINERS
from fsdplint.interpreter.values import Const, Instance, ModuleValue, Unknown
from fsdplint.migration.analysis.called_functions import Found, called_function
from fsdplint.migration.analysis.class_hierarchy import own_class, positional_parameters
from fsdplint.migration.analysis.passed_names import file_of
from fsdplint.migration.analysis.variables import definition_at
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import canonical, imported_names, symbols_in, walk

Place = tuple[Source, cst.ClassDef]
MAX_DEPTH = 12  # of the bindings that are followed
# Library classes whose objects have a Trainer or Fabric in an attribute.
_HOLDERS = (".LightningModule", ".LightningDataModule", ".LightningCLI")


def is_fabric(program: Program, source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression may be a Fabric."""
    return _Search(program, FABRICS, {"fabric": _HOLDERS}).is_one(source, node)


def is_trainer(program: Program, source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression may be a Trainer."""
    return _Search(program, TRAINERS, {"trainer": _HOLDERS}).is_one(source, node)


def is_strategy(
    program: Program, source: Source, node: cst.BaseExpression, classes: Set[str]
) -> bool:
    """Whether an expression may be the strategy of a Fabric or Trainer, of one of some classes."""
    return _Search(program, classes, {}, of_frameworks=True).is_one(source, node)


@dataclass
class _Search:
    """The search for what an expression is.

    Attributes:
        classes: the full names of the classes.
        holders: attributes of objects of libraries that are such an object, with the ends of the
            names of the classes that have them.
        of_frameworks: whether the attribute `strategy` of a Fabric or Trainer is one.
    """

    program: Program
    classes: Set[str]
    holders: Mapping[str, tuple[str, ...]]
    of_frameworks: bool = False
    depth: int = 0
    seen: set[cst.CSTNode] = field(default_factory=set)

    def is_one(self, source: Source, node: cst.CSTNode | None) -> bool:
        if node is None or node in self.seen or self.depth > MAX_DEPTH:
            return False
        self.seen.add(node)
        known = self._in_runs(node)
        if known is not None:
            return known
        self.depth += 1
        try:
            return self._is_bound(source, node)
        finally:
            self.depth -= 1

    def _in_runs(self, node: cst.CSTNode) -> bool | None:
        """Whether runs have made an expression such an object; None if they do not say."""
        values = self.program.values(node)
        for value in values:
            if isinstance(value, Unknown) and value.owner is None and value.library in self.classes:
                return True
            if isinstance(value, Instance) and self.classes & set(value.cls.library_bases()):
                return True
        known = all(isinstance(value, Const | Instance | ModuleValue) for value in values)
        return False if values and known else None

    def _is_bound(self, source: Source, node: cst.CSTNode) -> bool:
        match node:
            case cst.Name():
                return self._is_variable(source, node)
            case cst.Attribute():
                return self._is_attribute(source, node)
            case cst.Call():
                return self._is_call(source, node)
            case cst.IfExp():
                return self.is_one(source, node.body) or self.is_one(source, node.orelse)
            case cst.BooleanOperation():
                return self.is_one(source, node.left) or self.is_one(source, node.right)
            case cst.NamedExpr():
                return self.is_one(source, node.value)
        return False

    # Names ---------------------------------------------------------------------------------------

    def _is_variable(self, source: Source, name: cst.Name) -> bool:
        bindings = bindings_of(source)
        scope = bindings.owner(bindings.scope_at(name), name.value)
        if scope is None:
            return False
        if any(self._is_target(source, one) for one in scope.others.get(name.value, ())):
            return True
        for item in scope.imports:
            if item.local == name.value and item.name is not None:
                other = file_of(self.program, source, item.module)
                if other is not None and self._in_module(other, item.name):
                    return True
        return False

    def _in_module(self, source: Source, name: str) -> bool:
        targets = bindings_of(source).module.others.get(name, ())
        return any(self._is_target(source, one) for one in targets)

    def _is_target(self, source: Source, target: cst.CSTNode) -> bool:
        """Whether a name or attribute gets such an object at a place that binds it."""
        parent = source.parent(target)
        param = target if isinstance(target, cst.Param) else parent
        if isinstance(param, cst.Param):
            return self._is_parameter(source, param)
        if isinstance(parent, cst.AnnAssign) and parent.target is target:
            return self._is_annotated(source, parent.annotation) or self.is_one(
                source, parent.value
            )
        found = definition_at(source, target)
        return found is not None and self.is_one(source, found.value)

    def _is_annotated(self, source: Source, annotation: cst.Annotation | None) -> bool:
        """Whether an annotation names one of the classes, also in quotes."""
        if annotation is None:
            return False
        symbols = symbols_in(source)
        for part in descend(annotation.annotation):
            if symbols.get(part) in self.classes:
                return True
            if isinstance(part, cst.SimpleString):
                texts = str(part.evaluated_value).replace("|", " ").replace("[", " ").split()
                if any(_full_name(source, one.strip("],")) in self.classes for one in texts):
                    return True
        return False

    # Attributes ----------------------------------------------------------------------------------

    def _is_attribute(self, source: Source, node: cst.Attribute) -> bool:
        name = node.attr.value
        if self.of_frameworks and name in ("strategy", "_strategy"):
            if is_fabric(self.program, source, node.value) or is_trainer(
                self.program, source, node.value
            ):
                return True
        ends = self.holders.get(name, ())
        if ends and self._is_held(source, node.value, ends):
            return True
        module = self._module(source, node.value)
        if module is not None:
            return self._in_module(module, name)
        return any(self._has(one, name) for one in self._classes_of(source, node.value))

    def _is_held(self, source: Source, owner: cst.BaseExpression, ends: tuple[str, ...]) -> bool:
        """Whether an object is one of the classes of Lightning that hold such an object."""
        bases = {
            full
            for one in self._classes_of(source, owner)
            for place in self._with_bases(one)
            for full in _library_bases(*place)
        }
        for value in self.program.values(owner):
            bases |= {value.library} if isinstance(value, Unknown) else set()
        found = _definitions(source, owner)
        bases |= {_called(source, one) for one in found}
        return any(full.endswith(ends) and "lightning" in full for full in bases)

    def _module(self, source: Source, owner: cst.BaseExpression) -> Source | None:
        """The file of an imported module."""
        if not isinstance(owner, cst.Name):
            return None
        items = [one for one in bindings_of(source).imports() if one.local == owner.value]
        return file_of(self.program, source, items[0].full) if len(items) == 1 else None

    def _has(self, klass: Place, name: str) -> bool:
        """Whether an attribute of a class of the program, or of one of its bases, is such an object."""
        return any(
            self._is_target(source, target)
            for source, node in self._with_bases(klass)
            for target in _targets(source, node, name)
        ) or any(
            self._returns(source, method)
            for source, node in self._with_bases(klass)
            for method in _methods(node, name)
            if any(dotted_name(one.decorator).endswith("property") for one in method.decorators)
        )

    def _classes_of(self, source: Source, owner: cst.CSTNode) -> list[Place]:
        """The classes of the program of which an expression may be an object."""
        values = self.program.values(owner)
        made = [one.cls for one in values if isinstance(one, Instance)]
        made += [one.cls for one in values if isinstance(one, ModuleValue) and one.cls is not None]
        if made:
            return [(one.site.source, one.node) for one in made]
        if isinstance(owner, cst.Name) and _is_self(source, owner):
            klass = own_class(source, owner)
            return [(source, klass)] if klass is not None else []
        if isinstance(owner, cst.Call):
            found = self._class_named(source, owner.func)
            return [found] if found is not None else []
        calls = [one for one in _definitions(source, owner) if isinstance(one, cst.Call)]
        classes = [self._class_named(source, one.func) for one in calls]
        return [one for one in classes if one is not None]

    def _class_named(self, source: Source, name: cst.BaseExpression) -> Place | None:
        """The class of the program that a name refers to."""
        other: Source | None = source
        last = name
        if isinstance(name, cst.Attribute):
            other, last = self._module(source, name.value), name.attr
        if not isinstance(last, cst.Name) or other is None:
            return None
        if isinstance(name, cst.Name):
            for item in bindings_of(source).imports():
                if item.local == name.value and item.name is not None:
                    other = file_of(self.program, source, item.module)
                    return _class_in(other, item.name) if other is not None else None
        return _class_in(other, last.value)

    def _with_bases(self, klass: Place, depth: int = 0) -> Iterator[Place]:
        """A class and its bases in the program."""
        yield klass
        for base in klass[1].bases if depth < MAX_DEPTH else ():
            found = self._class_named(klass[0], base.value)
            if found is not None and found[1] is not klass[1]:
                yield from self._with_bases(found, depth + 1)

    # Functions -----------------------------------------------------------------------------------

    def _is_call(self, source: Source, node: cst.Call) -> bool:
        if symbols_in(source).get(node.func) in self.classes:
            return True
        klass = self._class_named(source, node.func)
        if klass is not None:
            return any(
                full in self.classes
                for place in self._with_bases(klass)
                for full in _library_bases(*place)
            )
        return any(self._returns(*one) for one in self._functions(source, node.func))

    def _functions(self, source: Source, func: cst.BaseExpression) -> list[Found]:
        """The functions or methods of the program that a call may run."""
        found = called_function(self.program, source, func)
        if found is not None or not isinstance(func, cst.Attribute):
            return [found] if found is not None else []
        return [
            (where, method)
            for one in self._classes_of(source, func.value)
            for where, node in self._with_bases(one)
            for method in _methods(node, func.attr.value)
        ]

    def _returns(self, source: Source, function: cst.FunctionDef) -> bool:
        if self._is_annotated(source, function.returns):
            return True
        return any(
            self.is_one(source, one.value)
            for one in descend(function.body)
            if isinstance(one, cst.Return) and function_around(source, one) is function
        )

    def _is_parameter(self, source: Source, param: cst.Param) -> bool:
        """Whether a parameter gets such an object: by its annotation, default, or arguments."""
        if param.annotation is not None:
            return self._is_annotated(source, param.annotation)
        function = function_around(source, param)
        if not isinstance(function, cst.FunctionDef):
            return False
        if self.is_one(source, param.default) or self._is_of_hook(source, function, param):
            return True
        names = [one.name.value for one in positional_parameters(source, function)]
        name = param.name.value
        called = function.name.value
        klass = own_class(source, function)
        called = klass.name.value if klass is not None and called == "__init__" else called
        for other in self.program.sources.values():
            if called not in other.text:
                continue
            for call in walk(other, skip_imports=True):
                if not isinstance(call, cst.Call):
                    continue
                if self._runs(other, call.func, function):
                    given = arguments(call, tuple(names))[0].get(name)
                    if given is not None and self.is_one(other, given.value):
                        return True
                elif names[:1] == [name] and self._is_launch(other, call, function):
                    return True
        return False

    def _runs(self, source: Source, func: cst.BaseExpression, function: cst.FunctionDef) -> bool:
        """Whether a call with this name runs a function, or the constructor that it is."""
        last = func.attr if isinstance(func, cst.Attribute) else func
        if not isinstance(last, cst.Name):
            return False
        if function.name.value == "__init__":
            klass = self._class_named(source, func)
            places = [] if klass is None else list(self._with_bases(klass))
            return any(function in _methods(node, "__init__") for _, node in places)
        if last.value != function.name.value:
            return False
        return any(found is function for _, found in self._functions(source, func))

    def _is_launch(self, source: Source, call: cst.Call, function: cst.FunctionDef) -> bool:
        """Whether `fabric.launch(function)` gives the Fabric to a function."""
        func = call.func
        if not isinstance(func, cst.Attribute) or func.attr.value != "launch" or not call.args:
            return False
        if self.classes is not FABRICS or not self.is_one(source, func.value):
            return False
        return any(one is function for _, one in self._functions(source, call.args[0].value))

    def _is_of_hook(self, source: Source, function: cst.FunctionDef, param: cst.Param) -> bool:
        """Whether Lightning gives the Trainer to a hook of a Callback."""
        klass = own_class(source, function)
        params = positional_parameters(source, function)
        if klass is None or self.classes is not TRAINERS or params[:1] != [param]:
            return False
        bases = {
            full for place in self._with_bases((source, klass)) for full in _library_bases(*place)
        }
        return any(full.endswith(".Callback") and "lightning" in full for full in bases)


def _full_name(source: Source, text: str) -> str:
    head, _, rest = text.partition(".")
    full = imported_names(source).get(head, head)
    return canonical(f"{full}.{rest}" if rest else full)


def _definitions(source: Source, node: cst.CSTNode) -> list[cst.BaseExpression]:
    """The values that assignments give to a variable."""
    if not isinstance(node, cst.Name):
        return []
    bindings = bindings_of(source)
    scope = bindings.owner(bindings.scope_at(node), node.value)
    targets = scope.others.get(node.value, ()) if scope is not None else ()
    found = [definition_at(source, one) for one in targets]
    return [one.value for one in found if one is not None]


def _called(source: Source, node: cst.CSTNode) -> str:
    return symbols_in(source).get(node.func, "") if isinstance(node, cst.Call) else ""


def _class_in(source: Source, name: str) -> Place | None:
    found = [
        one for one in source.tree.body if isinstance(one, cst.ClassDef) and one.name.value == name
    ]
    return (source, found[0]) if len(found) == 1 else None


def _library_bases(source: Source, klass: cst.ClassDef) -> Iterator[str]:
    symbols = symbols_in(source)
    for base in klass.bases:
        yield symbols.get(base.value, "")


def _is_self(source: Source, name: cst.Name) -> bool:
    """Whether a name is the first parameter of the method around it."""
    function = function_around(source, name)
    if not isinstance(function, cst.FunctionDef):
        return False
    params = [*function.params.posonly_params, *function.params.params]
    first = params[0].name.value if params else ""
    return first == name.value and own_class(source, function) is not None


def _methods(klass: cst.ClassDef, name: str) -> list[cst.FunctionDef]:
    body = klass.body.body
    return [x for x in body if isinstance(x, cst.FunctionDef) and x.name.value == name]


def _targets(source: Source, klass: cst.ClassDef, name: str) -> Iterator[cst.CSTNode]:
    """The targets in a class that give an attribute of its objects a value."""
    for statement in klass.body.body:
        for part in descend(statement):
            target = part.target if isinstance(part, cst.AssignTarget | cst.AnnAssign) else None
            if isinstance(target, cst.Name) and target.value == name:
                if function_around(source, part) is function_around(source, klass):
                    yield target
            elif isinstance(target, cst.Attribute) and target.attr.value == name:
                if isinstance(target.value, cst.Name) and _is_self(source, target.value):
                    yield target
