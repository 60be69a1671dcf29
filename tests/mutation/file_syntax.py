"""What the syntax of one file shows: calls by their canonical names, and which names are sharded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

import libcst as cst
import libcst.matchers as m
from libcst.metadata import (
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    QualifiedNameProvider,
)
from planting import Statement, text_of

FSDP1, FSDP2 = 1, 2
_FSDP1 = ("FullyShardedDataParallel",)
_FSDP2 = ("fully_shard",)
_DOTTED = m.Name() | m.Attribute()
Scope = cst.FunctionDef | cst.Module


class FileSyntax:
    """The syntax of a file, with the facts that operators ask for."""

    def __init__(self, text: str) -> None:
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        self.module = wrapper.module
        self.text = text
        self._names = wrapper.resolve(QualifiedNameProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)
        self._positions = wrapper.resolve(PositionProvider)

    @staticmethod
    @lru_cache(maxsize=64)
    def of(text: str) -> FileSyntax | None:
        """The syntax of a text, or None if it cannot be parsed."""
        try:
            return FileSyntax(text)
        except cst.ParserSyntaxError:
            return None

    def line(self, node: cst.CSTNode) -> int:
        return self._positions[node].start.line

    # Nodes ----------------------------------------------------------------------------------------

    @cached_property
    def all_calls(self) -> list[cst.Call]:
        found = [node for node in m.findall(self.module, m.Call()) if node in self._positions]
        return sorted(found, key=lambda node: self._key(node))  # type: ignore[arg-type,return-value]

    def _key(self, node: cst.CSTNode) -> tuple[int, int]:
        start = self._positions[node].start
        return start.line, start.column

    def canonical(self, node: cst.CSTNode) -> str:
        """The name by which a call's function, or a name, is known outside of the file."""
        target = node.func if isinstance(node, cst.Call) else node
        names = self._names.get(target, ())
        names = names() if callable(names) else names
        return next((one.name for one in names), "")

    def calls(self, *last: str, of: str = "torch.") -> Iterator[cst.Call]:
        """The calls of torch's functions with these last names."""
        for call in self.all_calls:
            name = self.canonical(call)
            if name.startswith(of) and name.rpartition(".")[2] in last:
                yield call

    def method_calls(self, name: str, owners: Iterable[str] | None = None) -> Iterator[cst.Call]:
        """The calls `OWNER.name(...)` of one of these owners; of any dotted name if none are given."""
        known = None if owners is None else set(owners)
        for call in self.all_calls:
            if m.matches(call.func, m.Attribute(value=_DOTTED, attr=m.Name(name))):
                if known is None or text_of(call.func.value) in known:  # type: ignore[attr-defined]
                    yield call

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self._parents.get(node)

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        parent = self.parent(node)
        while parent is not None:
            yield parent
            parent = self.parent(parent)

    def statement(self, node: cst.CSTNode) -> cst.SimpleStatementLine | None:
        """The simple statement that a node is in; None if it is in the head of a compound one."""
        for one in (node, *self.ancestors(node)):
            if isinstance(one, cst.SimpleStatementLine):
                return one if len(one.body) == 1 else None
            if isinstance(one, cst.BaseCompoundStatement | cst.Lambda):
                return None
        return None

    def scope(self, node: cst.CSTNode) -> Scope:
        """The function that a node is in, or the module."""
        return next(one for one in self.ancestors(node) if isinstance(one, Scope))

    def class_of(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """The class whose method a node is in."""
        scope = self.scope(node)
        if isinstance(scope, cst.Module):
            return None
        outer = list(self.ancestors(scope))
        return outer[1] if len(outer) > 1 and isinstance(outer[1], cst.ClassDef) else None

    def block(self, statement: cst.CSTNode) -> Sequence[Statement]:
        """The statements of the block that a statement is in; an `elif` stands for itself."""
        parent = self.parent(statement)
        if not isinstance(parent, cst.IndentedBlock | cst.Module):
            return [statement]  # type: ignore[list-item]
        return list(parent.body)  # type: ignore[arg-type]

    def chain(self, statement: cst.CSTNode) -> list[cst.CSTNode]:
        """A statement and the compound statements around it, out to its function."""
        found = [statement]
        for one in self.ancestors(statement):
            if isinstance(one, Scope):
                break
            if isinstance(one, cst.BaseCompoundStatement):
                found.append(one)
        return found

    def loop(self, node: cst.CSTNode) -> cst.For | cst.While | None:
        """The innermost loop around a node in its function."""
        for one in self.chain(node)[1:]:
            if isinstance(one, cst.For | cst.While):
                return one
        return None

    def tests(self, node: cst.CSTNode) -> str:
        """The text of all tests that a node stands under in its function."""
        found = [text_of(one.test) for one in self.chain(node) if isinstance(one, cst.If)]
        return " ".join(found)

    def is_guarded_by_rank(self, node: cst.CSTNode) -> bool:
        """Whether a test around a node may be one of the rank."""
        tests = self.tests(node).lower()
        return any(word in tests for word in ("rank", "main", "master", "primary", "leader"))

    # Facts ----------------------------------------------------------------------------------------

    @cached_property
    def roots(self) -> dict[str, int]:
        """The dotted names of sharded models, each with its version of FSDP."""
        found: dict[str, int] = {}
        for call in self.calls(*_FSDP2):
            target = _first_argument(call)
            if target is not None and not self._is_loop_variable(call, target):
                found.setdefault(target, FSDP2)
        for call in self.calls(*_FSDP1):
            for target in self.targets(call):
                found.setdefault(target, FSDP1)
        for function, version in self._sharding_functions(found).items():
            for call in self.all_calls:
                if text_of(call.func) in (function, f"self.{function}"):
                    for target in self.targets(call):
                        found.setdefault(target, version)
        return found

    @property
    def version(self) -> int | None:
        """The version of FSDP that the file uses; None if it uses both or none."""
        versions = {*([FSDP1] if any(self.calls(*_FSDP1)) else [])}
        versions |= {*([FSDP2] if any(self.calls(*_FSDP2)) else [])}
        return versions.pop() if len(versions) == 1 else None

    def roots_of(self, version: int) -> list[str]:
        return [name for name, own in self.roots.items() if own == version]

    def _sharding_functions(self, sharded: dict[str, int]) -> dict[str, int]:
        """The functions of the file that return what they shard."""
        found = {}
        for call in (*self.calls(*_FSDP2), *self.calls(*_FSDP1)):
            scope = self.scope(call)
            if isinstance(scope, cst.FunctionDef):
                for one in m.findall(scope, m.Return()):
                    value = one.value  # type: ignore[attr-defined]
                    text = text_of(value) if value is not None else ""
                    if value is call or sharded.get(text):
                        version = FSDP2 if call in set(self.calls(*_FSDP2)) else FSDP1
                        found[scope.name.value] = sharded.get(text, version)
        return found

    def _is_loop_variable(self, node: cst.CSTNode, name: str) -> bool:
        loops = [one for one in self.chain(node) if isinstance(one, cst.For)]
        return any(name in _names(text_of(one.target)) for one in loops)

    def targets(self, value: cst.CSTNode) -> list[str]:
        """The dotted names that an expression is assigned to as a whole."""
        parent = self.parent(value)
        if isinstance(parent, cst.Assign):
            return [text_of(t.target) for t in parent.targets if m.matches(t.target, _DOTTED)]
        if isinstance(parent, cst.AnnAssign) and m.matches(parent.target, _DOTTED):
            return [text_of(parent.target)]
        return []

    @cached_property
    def sharding(self) -> list[cst.Call]:
        """The calls that shard a root."""
        roots = self.roots
        own = [c for c in self.calls(*_FSDP2) if _first_argument(c) in roots]
        return [*own, *(c for c in self.calls(*_FSDP1) if self.targets(c))]

    @cached_property
    def optimizers(self) -> dict[str, cst.Call]:
        """The optimizers that the file builds over `MODEL.parameters()`, by their dotted names."""
        found: dict[str, cst.Call] = {}
        for call in self.all_calls:
            name = self.canonical(call)
            is_torchs = name.startswith("torch.optim.") and "lr_scheduler" not in name
            if is_torchs and ".parameters()" in text_of(call):
                for target in self.targets(call):
                    found.setdefault(target, call)
        return found

    @cached_property
    def dist(self) -> tuple[str, str]:
        """The name of `torch.distributed` in the file, and the import that it needs."""
        for node in m.findall(self.module, m.Attribute(value=m.Name())):
            if self.canonical(node.value) == "torch.distributed":  # type: ignore[attr-defined]
                return node.value.value, ""  # type: ignore[attr-defined]
        return "torch.distributed", "import torch\nimport torch.distributed\n"

    @cached_property
    def linears(self) -> dict[str, list[tuple[str, str, cst.Call]]]:
        """The linear layers of each class: attribute, arguments and call, by the class's name."""
        found: dict[str, list[tuple[str, str, cst.Call]]] = {}
        for call in self.calls("Linear", of="torch.nn."):
            owner = self.class_of(call)
            for target in self.targets(call):
                if owner is not None and target.startswith("self."):
                    arguments = ", ".join(text_of(a).rstrip(", ") for a in call.args)
                    found.setdefault(owner.name.value, []).append((target[5:], arguments, call))
        return found

    def class_built(self, model: str) -> str | None:
        """The class of the file that a name is an object of, if one constructor is assigned to it."""
        classes = {n.name.value for n in m.findall(self.module, m.ClassDef())}  # type: ignore[attr-defined]
        found = set()
        for call in self.all_calls:
            name = text_of(call.func)
            if name in classes:
                outer: cst.CSTNode = call
                parent = self.parent(outer)
                while isinstance(parent, cst.Attribute | cst.Call) and parent.__class__:
                    if isinstance(parent, cst.Attribute) and parent.attr.value not in (
                        "to",
                        "cuda",
                        "train",
                    ):
                        break
                    outer, parent = parent, self.parent(parent)
                if model in self.targets(outer):
                    found.add(name)
        return found.pop() if len(found) == 1 else None


def _first_argument(call: cst.Call) -> str | None:
    for index, argument in enumerate(call.args):
        named = argument.keyword is not None and argument.keyword.value == "module"
        if named or (index == 0 and argument.keyword is None and not argument.star):
            return text_of(argument.value) if m.matches(argument.value, _DOTTED) else None
    return None


first_argument = _first_argument


def _names(target: str) -> set[str]:
    return {part.strip(" ()") for part in target.split(",")}


def argument(call: cst.Call, name: str, position: int | None = None) -> cst.Arg | None:
    """An argument by its name, or by its position."""
    for index, one in enumerate(call.args):
        if one.keyword is not None and one.keyword.value == name:
            return one
        if one.keyword is None and not one.star and index == position:
            return one
    return None


def without(call: cst.Call, *names: str) -> cst.Call:
    """A call without some of its keyword arguments."""
    kept = [a for a in call.args if a.keyword is None or a.keyword.value not in names]
    if kept:
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return call.with_changes(args=kept)


def with_argument(call: cst.Call, text: str) -> cst.Call:
    """A call with a further keyword argument."""
    further = cst.parse_expression(f"f({text})")
    assert isinstance(further, cst.Call)
    return call.with_changes(args=[*call.args, *further.args])
