"""The names that a file binds and uses, by scope.

Names are only text here: the module tells where a new name would clash, and whether an import is
used. The interpreter determines what names refer to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.source.positions import code_children, is_node
from fsdplint.source.source import Source, once
from fsdplint.syntax.dotted import dotted_name

COMPREHENSIONS = cst.ListComp | cst.SetComp | cst.DictComp | cst.GeneratorExp
IDENTIFIERS = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
# Node types with their own handling; the check is cached for each type.
SPECIAL = (
    cst.Name, cst.Attribute, cst.Import, cst.ImportFrom, cst.FunctionDef, cst.Lambda, cst.ClassDef,
    cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp, cst.Arg, cst.Global, cst.Nonlocal,
    cst.Annotation, cst.Call, cst.AssignTarget, cst.AnnAssign, cst.For, cst.CompFor, cst.NamedExpr,
    cst.AugAssign, cst.Del, cst.AsName, cst.MatchAs, cst.MatchStar, cst.TypeAlias, cst.MatchMapping,
    cst.MatchKeywordElement, cst.Assign, cst.Expr,
)  # fmt: skip
_is_special: dict[type, bool] = {}
TYPE_COMMENT = re.compile(r"#\s*type:\s*(?!ignore)(.+)")


@dataclass(eq=False)
class Imported:
    """One name that an import statement binds.

    Attributes:
        local: the bound name; for `import a.b` it is "a".
        module: the dotted module (with leading dots for a relative one: ".x").
        name: the name imported from it, None for `import module`.
        alias: the node; `statement` is its statement and `scope` the scope that binds it.
        renamed: whether it has an `as`.
    """

    local: str
    module: str
    name: str | None
    alias: cst.ImportAlias
    statement: cst.Import | cst.ImportFrom
    scope: Scope
    renamed: bool

    @property
    def full(self) -> str:
        return self.module if self.name is None else f"{self.module}.{self.name}"

    @property
    def spelling(self) -> str:
        """The name by which `unused` refers to it: "a.b" for `import a.b`."""
        return self.module if self.name is None and not self.renamed else self.local


@dataclass(eq=False)
class Scope:
    """A module, function, class body or comprehension.

    Attributes:
        key: the names of the definitions around it, which stay the same when other code changes.
        imports: the names that import statements bind here, in source order.
        others: the names bound here in other ways, with the nodes that bind them.
        references: dotted texts that start with a name read here.
        outer_names: names declared global or nonlocal.
        star: modules of `from x import *`.
    """

    node: cst.CSTNode
    kind: str
    key: str
    parent: Scope | None = None
    imports: list[Imported] = field(default_factory=list)
    others: dict[str, list[cst.CSTNode]] = field(default_factory=dict)
    references: list[str] = field(default_factory=list)
    outer_names: set[str] = field(default_factory=set)
    star: list[str] = field(default_factory=list)

    def binds(self, name: str) -> bool:
        if name in self.outer_names and self.parent is not None:
            return False
        return name in self.others or any(item.local == name for item in self.imports)

    def chain(self) -> Iterator[Scope]:
        """This scope and the enclosing scopes whose names are visible in it, up to the module."""
        yield self
        scope = self.parent
        while scope is not None:
            if scope.kind != "class":
                yield scope
            scope = scope.parent


class Bindings:
    """The scopes of one source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.module = Scope(source.tree, "module", "")
        self.scopes: dict[cst.CSTNode, Scope] = {source.tree: self.module}
        self.exported: set[str] = set()
        self._todo: list[tuple[cst.CSTNode, Scope]] = [
            (child, self.module) for child in reversed(code_children(source.tree))
        ]
        while self._todo:
            node, scope = self._todo.pop()
            self._visit(node, scope)
        for match in TYPE_COMMENT.finditer(source.text):
            self.module.references.extend(IDENTIFIERS.findall(match.group(1)))

    def imports(self) -> Iterator[Imported]:
        for scope in self.scopes.values():
            yield from scope.imports

    def scope_at(self, node: cst.CSTNode) -> Scope:
        """The scope in which code at a node runs."""
        child = node
        parent = self.source.parent(node)
        while parent is not None:
            scope = self.scopes.get(parent)
            if scope is not None and (
                isinstance(parent, COMPREHENSIONS | cst.Module)
                or child is getattr(parent, "body", None)
            ):
                return scope
            child, parent = parent, self.source.parent(parent)
        return self.module

    def uses(self) -> dict[tuple[str, str], list[str]]:
        """The dotted texts that read a name, by the key of the binding scope and the name.

        An unbound name counts as one of the module.
        """
        result: dict[tuple[str, str], list[str]] = {}
        for scope in self.scopes.values():
            for text in scope.references:
                name = text.partition(".")[0]
                owner = self.owner(scope, name) or self.module
                result.setdefault((owner.key, name), []).append(text)
        return result

    def owner(self, scope: Scope, name: str) -> Scope | None:
        """The scope that binds a name visible in a scope; None if no scope does."""
        return next((item for item in scope.chain() if item.binds(name)), None)

    def _scope(self, node: cst.CSTNode, kind: str, name: str, parent: Scope) -> Scope:
        scope = Scope(node, kind, f"{parent.key}.{name}" if parent.key else name, parent)
        self.scopes[node] = scope
        return scope

    def _visit_later(self, scope: Scope, *nodes: cst.CSTNode | None) -> None:
        self._todo.extend((x, scope) for x in reversed(nodes) if x is not None and is_node(x))

    def _visit(self, node: cst.CSTNode, scope: Scope) -> None:
        kind = type(node)
        special = _is_special.get(kind)
        if special is None:
            special = _is_special[kind] = issubclass(kind, SPECIAL)
        if not special:
            self._todo.extend((child, scope) for child in reversed(code_children(node)))
            return
        match node:
            case cst.Name():
                scope.references.append(node.value)
            case cst.Attribute():
                text = dotted_name(node)
                if text:
                    scope.references.append(text)
                else:
                    self._visit_later(scope, node.value)
            case cst.Import() | cst.ImportFrom():
                self._import(node, scope)
            case cst.FunctionDef():
                self._bind(node.name, scope)
                inner = self._scope(node, "function", node.name.value, scope)
                self._parameters(node.params, scope, inner)
                self._visit_later(scope, *node.decorators, node.returns)
                self._visit_later(inner, node.body, node.type_parameters)
            case cst.Lambda():
                inner = self._scope(node, "function", "<lambda>", scope)
                self._parameters(node.params, scope, inner)
                self._visit_later(inner, node.body)
            case cst.ClassDef():
                self._bind(node.name, scope)
                self._visit_later(scope, *node.decorators, *node.bases, *node.keywords)
                inner = self._scope(node, "class", node.name.value, scope)
                self._visit_later(inner, node.body, node.type_parameters)
            case cst.ListComp() | cst.SetComp() | cst.DictComp() | cst.GeneratorExp():
                inner = self._scope(node, "comprehension", "<for>", scope)
                self._visit_later(inner, *code_children(node))
            case cst.Arg():
                self._visit_later(scope, node.value)
            case cst.Global() | cst.Nonlocal():
                for item in node.names:
                    scope.outer_names.add(item.name.value)
                    scope.references.append(item.name.value)
                    if isinstance(node, cst.Global):
                        self.module.others.setdefault(item.name.value, []).append(node)
            case cst.Annotation():
                self._strings(node, scope)
                self._visit_later(scope, node.annotation)
            case cst.Call(func=cst.Name(value="cast") | cst.Attribute(attr=cst.Name(value="cast"))):
                self._strings(node, scope)
                self._visit_later(scope, *code_children(node))
            case _:
                self._bindings(node, scope)

    def _bindings(self, node: cst.CSTNode, scope: Scope) -> None:
        """Record what statements and expressions other than definitions and imports bind."""
        bound: cst.CSTNode | None = None
        match node:
            case cst.AssignTarget() | cst.AnnAssign() | cst.For() | cst.CompFor():
                bound = node.target
            case cst.NamedExpr():
                bound = node.target
            case cst.AugAssign():
                self._bind(node.target, scope)
            case cst.Del():
                self._bind(node.target, scope)
            case cst.AsName():
                bound = node.name
            case cst.MatchAs() | cst.MatchStar() | cst.TypeAlias():
                bound = node.name
            case cst.MatchMapping():
                bound = node.rest
            case cst.MatchKeywordElement():
                self._visit_later(scope, node.pattern)
                return
        if isinstance(node, cst.Assign | cst.AugAssign | cst.AnnAssign | cst.Expr):
            self._all(node, scope)
        owner = scope
        while isinstance(node, cst.NamedExpr) and owner.kind == "comprehension" and owner.parent:
            owner = owner.parent
        if bound is not None:
            self._bind(bound, owner)
        self._visit_later(scope, *[child for child in code_children(node) if child is not bound])

    def _bind(self, target: cst.CSTNode, scope: Scope) -> None:
        match target:
            case cst.Name():
                place = self.module if target.value in scope.outer_names else scope
                place.others.setdefault(target.value, []).append(target)
            case cst.Tuple() | cst.List():
                for element in target.elements:
                    self._bind(element.value, scope)
            case cst.StarredElement():
                self._bind(target.value, scope)
            case _:
                self._visit_later(scope, target)

    def _parameters(self, parameters: cst.Parameters, outer: Scope, inner: Scope) -> None:
        stack: list[cst.CSTNode] = [parameters]
        while stack:
            node = stack.pop()
            if isinstance(node, cst.Param):
                inner.others.setdefault(node.name.value, []).append(node)
                self._visit_later(outer, node.annotation, node.default)
            else:
                stack.extend(code_children(node))

    def _import(self, node: cst.Import | cst.ImportFrom, scope: Scope) -> None:
        base: str | None = None
        if isinstance(node, cst.ImportFrom):
            base = "." * len(node.relative) + (dotted_name(node.module) if node.module else "")
        if isinstance(node.names, cst.ImportStar):
            scope.star.append(base or "")
            return
        for alias in node.names:
            assert isinstance(alias, cst.ImportAlias)
            text = dotted_name(alias.name)
            renamed = alias.asname is not None
            local = alias.evaluated_alias or (text if base is not None else text.partition(".")[0])
            place = self.module if local in scope.outer_names else scope
            module, name = (text, None) if base is None else (base, text)
            place.imports.append(Imported(local, module, name, alias, node, place, renamed))

    def _strings(self, node: cst.CSTNode, scope: Scope) -> None:
        """Record names in the strings of an annotation, which may be evaluated."""
        stack = [node]
        while stack:
            current = stack.pop()
            if isinstance(current, cst.SimpleString):
                scope.references.extend(IDENTIFIERS.findall(current.raw_value))
            stack.extend(code_children(current))

    def _all(self, node: cst.CSTNode, scope: Scope) -> None:
        """Record names in `__all__ = [...]`, `__all__ += [...]` and `__all__.extend([...])`."""
        match node:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value="__all__")), *_]):
                pass
            case cst.AugAssign(target=cst.Name(value="__all__")):
                pass
            case cst.AnnAssign(target=cst.Name(value="__all__")):
                pass
            case cst.Expr(value=cst.Call(func=cst.Attribute(value=cst.Name(value="__all__")))):
                pass
            case _:
                return
        if scope is not self.module:
            return
        stack: list[cst.CSTNode] = [node]
        while stack:
            current = stack.pop()
            if isinstance(current, cst.SimpleString):
                self.exported.add(current.raw_value)
            stack.extend(code_children(current))


@once
def bindings_of(source: Source) -> Bindings:
    """The bindings of a source, cached. Raises libcst.ParserSyntaxError."""
    return Bindings(source)
