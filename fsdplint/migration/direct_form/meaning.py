"""The expression that a node stands for: through variables with one assignment, and displays.

`bind = functools.partial(FSDP, ...)` and `bind(model)`: the name in the call stands for the partial.
An expression may only move from its assignment to the place that reads the variable if it gives the
same value there and has no effect that would come later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.edits.unused_imports import may_be_module
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.analysis.reaching import reach
from fsdplint.migration.analysis.variables import Definition, definitions, home_of
from fsdplint.migration.context import Migration
from fsdplint.migration.names import fsdp1_name
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend, statement_of

MAX_DEPTH = 4  # variables that lead to one another
# Functions of Python that only build an object of their arguments, or read an attribute.
BUILDERS = {"dict", "frozenset", "getattr", "list", "set", "tuple"}
BUILDING = {"functools.partial", "operator.methodcaller", "contextlib.nullcontext", "torch.device"}
# FSDP1's functions that have an effect at once; the others build a config or a context.
WITH_EFFECT = re.compile(r"FullyShardedDataParallel|.*(_state_dict\w*|fsdp_modules)|wrap")
CONTEXTS = re.compile(r"FullyShardedDataParallel\.(state_dict_type|summon_full_params)")
LOOPS = cst.For | cst.While | cst.ListComp | cst.SetComp | cst.DictComp | cst.GeneratorExp
DISPLAYS = cst.Dict | cst.List | cst.Set


@dataclass(frozen=True)
class Meaning:
    """What a node stands for.

    Attributes:
        node: the expression.
        reads: the reads of variables that led to it, each with the assignment of its variable.
    """

    node: cst.BaseExpression
    reads: tuple[tuple[cst.Name, Definition], ...] = ()


class Meanings:
    """Finds what the nodes of one file stand for."""

    def __init__(self, migration: Migration, source: Source) -> None:
        self._migration = migration
        self._source = source

    def of(self, node: cst.BaseExpression, depth: int = 0) -> Meaning:
        """What a node stands for; itself if that is not known."""
        found: Meaning | None = None
        if depth < MAX_DEPTH and isinstance(node, cst.Name):
            found = self._variable(node, depth)
        elif depth < MAX_DEPTH and isinstance(node, cst.Subscript):
            found = self._element(node, depth)
        return Meaning(node) if found is None else found

    def assigned_value(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """What the assignment of a variable gives it; any other node itself."""
        if not isinstance(node, cst.Name):
            return node
        found = definitions(self._source, node) or []
        if len(found) > 1:
            one = reach(self._source, node)
            return one.definition.value if one is not None else node
        return found[0].value if found else node

    def _variable(self, name: cst.Name, depth: int) -> Meaning | None:
        definition = self._definition(name)
        if definition is None:
            return None
        inner = self.of(definition.value, depth + 1)
        return Meaning(inner.node, ((name, definition), *inner.reads))

    def _element(self, node: cst.Subscript, depth: int) -> Meaning | None:
        """The element of a display under a constant key."""
        key = constant_key(node)
        held = self.of(node.value, depth + 1)
        if key is None or not isinstance(held.node, cst.Dict | cst.List | cst.Tuple):
            return None
        elements = dict(display_items(held.node) or ())
        if key not in elements or not all(map(self.is_inert, elements.values())):
            return None
        inner = self.of(elements[key], depth + 1)
        return Meaning(inner.node, (*held.reads, *inner.reads))

    def _definition(self, name: cst.Name) -> Definition | None:
        """The assignment of a variable whose value may move to a place that reads it."""
        source = self._source
        home = home_of(source, name)
        found = reach(source, name)
        if home is None or isinstance(home, cst.ClassDef) or found is None:
            return None
        definition, uses = found.definition, found.reads
        if home is source.tree and self.is_named_elsewhere(name.value):
            return None
        if self._may_change(definition.value) and not all(map(self._keeps_display, uses)):
            return None
        is_inert = self.is_inert(definition.value)
        if not is_inert and (len(uses) != 1 or not self._follows_at_once(definition, name)):
            return None
        return definition if self.keeps_value(definition, name) else None

    def is_named_elsewhere(self, name: str) -> bool:
        """Whether another file may read or set a variable of the module."""
        attribute = re.compile(rf"\.\s*{re.escape(name)}\b")
        for path, other in full_program(self._migration.program).sources.items():
            if path == self._source.path or name not in other.text:
                continue
            if attribute.search(other.text):
                return True
            bindings = bindings_of(other)
            taken = [item.module for item in bindings.imports() if item.name == name]
            if any(
                may_be_module(one, self._source.path) for one in (*taken, *bindings.module.star)
            ):
                return True
        return False

    def _may_change(self, value: cst.BaseExpression) -> bool:
        """Whether an expression makes a list, dict or set."""
        func = value.func if isinstance(value, cst.Call) else None
        is_made = isinstance(func, cst.Name) and func.value in ("dict", "list", "set")
        return is_made or isinstance(value, DISPLAYS)

    def _keeps_display(self, use: cst.Name) -> bool:
        """Whether a use of a list or dict spreads it, or reads an element by a constant key."""
        parent = self._source.parent(use)
        if isinstance(parent, cst.Arg):
            return bool(parent.star)
        if not isinstance(parent, cst.Subscript) or constant_key(parent) is None:
            return False
        return not isinstance(
            self._source.parent(parent), cst.AssignTarget | cst.AugAssign | cst.Del
        )

    # Moving an expression -----------------------------------------------------------------------

    def is_inert(self, node: cst.CSTNode) -> bool:
        """Whether an expression has no effect, and gives the same while its names keep their values."""
        match node:
            case cst.Name() | cst.BaseNumber() | cst.SimpleString() | cst.Lambda():
                return True
            case cst.Attribute():
                return self.is_inert(node.value)
            case cst.Tuple() | cst.List() | cst.Set() | cst.Dict():
                items = display_items(node)
                return items is not None and all(self.is_inert(value) for _, value in items)
            case cst.UnaryOperation():
                return self.is_inert(node.expression)
            case cst.Call():
                return self._only_builds(node) and all(self.is_inert(a.value) for a in node.args)
        return False

    def _only_builds(self, call: cst.Call) -> bool:
        """Whether a call makes an object without another effect."""
        func = call.func
        if isinstance(func, cst.Name) and func.value in BUILDERS:
            return home_of(self._source, func) is None
        symbol = self._migration.symbol(func)
        name = fsdp1_name(symbol)
        if name is not None:
            return bool(CONTEXTS.fullmatch(name)) or not WITH_EFFECT.match(name)
        if isinstance(func, cst.Attribute) and func.attr.value == "no_sync":
            return self.is_inert(func.value)
        return symbol in BUILDING

    def keeps_value(self, definition: Definition, use: cst.Name) -> bool:
        """Whether an expression gives the same at a use as at its assignment."""
        source = self._source
        start = source.span(definition.statement)[1]
        is_inside = function_around(source, use) is function_around(source, definition.statement)
        if is_inside and (source.span(use)[0] < start or not self._dominates(definition, use)):
            return False
        end = self._region_end(definition, use)
        parts = list(descend(definition.value))
        inside = set(parts)
        names = [
            part for part in parts if isinstance(part, cst.Name) and self._owner(part) not in inside
        ]
        if not all(self.is_same_variable(name, use) for name in names):
            return False
        attributes = {part.attr.value for part in parts if isinstance(part, cst.Attribute)}
        changes = [at for name in names for at in self._bindings(name)]
        changes += self._attribute_changes(attributes)
        targets = self._targets_after(use, end)
        return not any(
            start <= at < end and not any(left <= at < right for left, right in targets)
            for at in changes
        )

    def _owner(self, name: cst.Name) -> cst.CSTNode | None:
        """The lambda or function whose variable a name is."""
        bindings = bindings_of(self._source)
        owner = bindings.owner(bindings.scope_at(name), name.value)
        return owner.node if owner is not None else None

    def _targets_after(self, use: cst.Name, end: int) -> list[tuple[int, int]]:
        """The targets of the statement of a use, which get their value after it; `end`: of the region."""
        statement = statement_of(self._source, use)
        if not isinstance(statement, cst.Assign) or self._source.span(statement)[1] != end:
            return []
        return [self._source.span(target) for target in statement.targets]

    def is_same_variable(self, name: cst.Name, use: cst.CSTNode) -> bool:
        """Whether a name of an expression is the same variable at another place."""
        bindings = bindings_of(self._source)
        own = bindings.owner(bindings.scope_at(name), name.value)
        return (
            own is None
            or (own.kind == "function" and own.node is self._source.parent(name))
            or (bindings.owner(bindings.scope_at(use), name.value) is own)
        )

    def _dominates(self, definition: Definition, use: cst.Name) -> bool:
        """Whether the block of an assignment is around the use."""
        source = self._source
        line = source.parent(definition.statement)
        block = source.parent(line) if line is not None else None
        return block is source.tree or block in set(ancestors(source, use))

    def _region_end(self, definition: Definition, use: cst.Name) -> int:
        """The end of the code that may run between an assignment and a use."""
        around = set(ancestors(self._source, definition.statement))
        end = self._source.span(statement_of(self._source, use))[1]
        for node in ancestors(self._source, use):
            if node in around:
                break
            if isinstance(node, cst.FunctionDef | cst.Lambda):
                return len(self._source.text)
            if isinstance(node, LOOPS):
                end = self._source.span(node)[1]
        return end

    def _bindings(self, name: cst.Name) -> Iterator[int]:
        """Where the variable of a name gets its values."""
        bindings = bindings_of(self._source)
        scope = bindings.owner(bindings.scope_at(name), name.value)
        if scope is None:
            return
        for node in scope.others.get(name.value, ()):
            yield self._source.span(node)[0]
        for item in scope.imports:
            if item.local == name.value:
                yield self._source.span(item.statement)[0]

    def _attribute_changes(self, names: set[str]) -> Iterator[int]:
        """Where attributes with some names get values."""
        if not names:
            return
        for node in self._source.descend(self._source.tree):
            target = getattr(node, "target", None)
            if isinstance(target, cst.Attribute) and target.attr.value in names:
                yield self._source.span(target)[0]

    def _follows_at_once(self, definition: Definition, use: cst.Name) -> bool:
        """Whether nothing runs between an assignment and the use of its value."""
        source = self._source
        line = source.parent(definition.statement)
        block = source.parent(line) if line is not None else None
        after: cst.CSTNode = use
        for parent in ancestors(source, use):
            if parent is block:
                break
            after = parent
        body = getattr(block, "body", None)
        if not isinstance(body, tuple | list) or line not in body or after not in body:
            return False
        between = body[body.index(line) + 1 : body.index(after)]
        if any(isinstance(part, cst.Call) for one in between for part in self._effects(one)):
            return False
        head, limit = source.span(after)[0], source.span(use)[0]
        if source.line_start(limit) != source.line_start(head) and not isinstance(
            after, cst.SimpleStatementLine | cst.With | cst.If
        ):
            return False
        return not self._runs_before(after, use, limit)

    def _effects(self, statement: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The parts of a statement between that are no inert assignment."""
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        if isinstance(small, cst.Assign) and self.is_inert(small.value):
            return
        yield from descend(statement)

    def _runs_before(self, statement: cst.CSTNode, use: cst.Name, limit: int) -> bool:
        """Whether a statement makes a call before it reaches a use, or may repeat or skip the use."""
        source = self._source
        for parent in ancestors(source, use):
            if parent is statement:
                break
            if isinstance(parent, LOOPS | cst.FunctionDef | cst.Lambda | cst.IndentedBlock):
                return True
            if isinstance(parent, cst.IfExp | cst.BooleanOperation):
                return True
        calls = (part for part in descend(statement) if isinstance(part, cst.Call))
        return any(source.span(call)[1] <= limit for call in calls)


def constant_key(node: cst.Subscript) -> str | int | None:
    """The constant in `x[constant]`."""
    index = node.slice[0].slice if len(node.slice) == 1 else None
    value = index.value if isinstance(index, cst.Index) else None
    if isinstance(value, cst.SimpleString) and isinstance(value.evaluated_value, str):
        return value.evaluated_value
    return int(value.value) if isinstance(value, cst.Integer) and value.value.isdigit() else None


def display_items(
    node: cst.BaseExpression,
) -> list[tuple[str | int, cst.BaseExpression]] | None:
    """The elements of a display by key or number; None if it spreads another, or repeats a key."""
    items: list[tuple[str | int, cst.BaseExpression]] = []
    if isinstance(node, cst.Tuple | cst.List | cst.Set):
        if any(isinstance(element, cst.StarredElement) for element in node.elements):
            return None
        return [(number, element.value) for number, element in enumerate(node.elements)]
    for element in node.elements if isinstance(node, cst.Dict) else ():
        key = element.key if isinstance(element, cst.DictElement) else None
        if not isinstance(key, cst.SimpleString) or not isinstance(key.evaluated_value, str):
            return None
        items.append((key.evaluated_value, element.value))
    keys = [key for key, _ in items]
    return items if isinstance(node, cst.Dict) and len(set(keys)) == len(keys) else None
