"""A file whose names are tainted: those behind which code of FSDP may be."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, field, replace

from fsdplint.discovery.byte_scanner import Statement, reachable_statements, statements
from fsdplint.discovery.module_resolver import imports

_JAX = re.compile(rb"^\s*(?:import|from)\s+(?:jax|flax)\b", re.MULTILINE)
# A suppression comment is checked even in a file that is not relevant.
_OWN_COMMENT = re.compile(rb"\#[^\n]*(?:fsdplint|FSDP\d)")
# A class hook or a metaclass that puts the new class into a container.
_HOOK = re.compile(rb"\bdef\s+(?:__init_subclass__|__new__|__init__)\b(?:(?!\bdef\b).)*", re.DOTALL)
_PUTS = rb"\s*(?:\[[^\n]*\]\s*=(?!=)|\.\s*(?:append|add|insert|update|setdefault|register)\w*\()"
_PUTS_CLASS = re.compile(rb"\w%s[^\n]*\bcls\b" % _PUTS)


@dataclass(eq=False)
class TaintedFile:
    """A file, and the names in it that are tainted so far.

    Attributes:
        pending: its statements that are not known to be relevant.
        relevant: the statements that name FSDP or use a tainted name.
        imported: the names that its imports bind.
        tainted_names: its own names that are tainted.
        imported_from: tainted names of other files, as the dotted names that this file uses.
        tainted: `tainted_names` and `imported_from` together.
        registries: the tainted names of objects and classes that only got relevant code registered.
            Code that registers more there does not become relevant.
        exported: the tainted names that were spread to its importers.
        has_remarks: whether it must be checked even if it is not relevant.
    """

    path: str
    pending: list[Statement]
    imported: frozenset[str]
    relevant: list[Statement] = field(default_factory=list)
    tainted_names: set[str] = field(default_factory=set)
    imported_from: set[str] = field(default_factory=set)
    tainted: set[str] = field(default_factory=set)
    registries: set[str] = field(default_factory=set)
    exported: set[str] = field(default_factory=set)
    has_remarks: bool = False

    @classmethod
    def of(cls, path: str, code: bytes, max_bytes: int) -> TaintedFile:
        """A file, given by its real path, without tainted names.

        max_bytes: the largest size of code that is read.
        """
        imported = frozenset(name for one in imports(code) for name in one.binds())
        # A file that is too large, and a notebook that cannot be read, is reported.
        readable = 0 < len(code) <= max_bytes
        found = statements(code) if readable else []
        if _JAX.search(code) and b"torch" not in code:  # `fsdp` is the name of a mesh axis there
            found = [replace(one, mentions_fsdp=False, only_queries=False) for one in found]
        file = cls(path, found, imported)
        file.has_remarks = not readable or _OWN_COMMENT.search(code) is not None
        return file

    @property
    def relevant_statements(self) -> list[Statement]:
        """The relevant statements, including those that only query."""
        return [*self.relevant, *(one for one in self.pending if one.only_queries)]

    def add_imported(self, names: Set[str], registries: Set[str] = frozenset()) -> None:
        """Add dotted names by which this file uses tainted names of other files.

        registries: those of them that are registries.
        """
        self.registries |= registries - self.tainted
        self.imported_from |= names
        self.tainted |= names

    def propagate(self) -> set[str]:
        """Taint names to a fixpoint; returns those that are new to its importers."""
        relevant, self.pending = reachable_statements(
            self.pending, self.tainted, self._is_relevant, self._taints
        )
        self.relevant += relevant
        self.tainted_names = {name for name in self.tainted if "." not in name}
        new = self.tainted_names - self.exported
        self.exported |= new
        return new

    def _is_relevant(self, one: Statement) -> bool:
        if one.mentions_fsdp:
            return True
        if not one.uses(self.tainted):
            return False
        if not self.registries or one.uses(self.tainted - self.registries):
            return True
        return not (one.imports or self.registries.isdisjoint(one.inner_names))

    def _taints(self, one: Statement) -> Set[str]:
        """The names that a relevant statement taints. Only the defining file taints an imported
        name."""
        if one.imports:
            return one.bound if one.mentions_fsdp else frozenset()
        return one.bound - self.imported

    def register(self, name: str) -> set[str]:
        """Taint what keeps the code that is registered with a name of this file.

        Returns the names of registries that are new: the object itself, the class that collects its
        subclasses, or a function and the global objects in which it stores its arguments.
        """
        everything = [*self.relevant, *self.pending]
        found: set[str] = set()
        if name in self.imported:
            return found
        for one in everything:
            if name not in one.bound or one.imports:
                continue
            if not one.defines:
                found.add(name)
            elif one.is_class:
                found |= {name} if _collects(one) else set()
            else:
                keepers = {other for other in self._bound(everything) if _stores(one, other)}
                found |= {name, *keepers} if keepers else set()
        found -= self.tainted
        self.registries |= found
        self.tainted |= found
        return found

    @staticmethod
    def _bound(everything: list[Statement]) -> set[str]:
        """The names of the objects that the top level binds."""
        return {
            name for one in everything if not (one.defines or one.imports) for name in one.bound
        }


def _collects(cls: Statement) -> bool:
    """Whether a class keeps its subclasses."""
    if b"__init_subclass__" not in cls.text and b"(type" not in cls.text:
        return False
    return any(_PUTS_CLASS.search(hook) for hook in _HOOK.findall(cls.text))


def _stores(function: Statement, name: str) -> bool:
    """Whether a function puts something into a global object."""
    word = name.encode()
    if word not in function.text:
        return False
    pattern = rb"(?<![\w.])%s%s" % (re.escape(word), _PUTS)
    return re.search(pattern, function.text) is not None
