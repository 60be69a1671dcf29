"""Which files can have to do with FSDP, and which of them belong together.

What speaks of FSDP in its code does, and whatever uses, however indirectly, a name of the project
behind which such code lies: that name's definition speaks of FSDP or uses one that does. A file
that imports something else from such files does not, nor one that is farther than `MAX_DISTANCE`
from all of them. Code that only asks whether something is sharded matters itself, but passes that
on to nobody. See `fsdplint.discovery.byte_scanner` for what is looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from fsdplint.discovery.byte_scanner import Statement, mentions, statements
from fsdplint.discovery.module_resolver import Modules, Target, code_of, imports
from fsdplint.source.files import Limits, Unreadable, is_too_large

MAX_DISTANCE = 3  # files through which a name may come that themselves do not speak of FSDP

_JAX = re.compile(rb"^\s*(?:import|from)\s+(?:jax|flax)\b", re.MULTILINE)
# A comment that turns findings off is looked at even where there is nothing to find.
_OWN_COMMENT = re.compile(rb"\#[^\n]*(?:fsdplint|FSDP\d)")


@dataclass(eq=False)
class Followed:
    """A file, as far as names were followed through it.

    Attributes:
        todo: its statements of which nothing is known yet.
        done: those that speak of FSDP or use a carrier, and by which their names are carriers.
        imported: the names that its imports bind.
        carriers: its names behind which FSDP lies.
        reached: other files' carriers, by the dotted names by which this file calls them.
        reaches: both.
        told: the carriers that its users know of.
        remarkable: whether something is to be said of it even if it has nothing to do with FSDP.
    """

    path: str
    todo: list[Statement]
    imported: frozenset[str]
    done: list[Statement] = field(default_factory=list)
    carriers: set[str] = field(default_factory=set)
    reached: set[str] = field(default_factory=set)
    reaches: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    remarkable: bool = False

    @classmethod
    def of(cls, path: str, code: bytes) -> Followed:
        """A file, given by its real path, of which nothing is followed yet."""
        imported = frozenset(name for one in imports(code) for name in one.binds())
        # What is too large, or no notebook that can be read, is to be told of.
        readable = 0 < len(code) <= Limits.max_bytes
        found = statements(code) if readable else []
        if _JAX.search(code) and b"torch" not in code:  # which calls an axis of its mesh so
            found = [replace(one, speaks=False, asks=False) for one in found]
        file = cls(path, found, imported)
        file.remarkable = not readable or _OWN_COMMENT.search(code) is not None
        return file

    @property
    def concerned(self) -> list[Statement]:
        """The statements that have to do with FSDP."""
        return [*self.done, *(one for one in self.todo if one.asks)]

    def reach(self, names: Set[str]) -> None:
        """Carriers of other files are called by these dotted names here."""
        self.reached |= names
        self.reaches |= names

    def follow(self) -> set[str]:
        """Follow the names through the file; gives the carriers that are new to its users."""
        while True:
            rest = []
            found: set[str] = set()
            for one in self.todo:
                if one.speaks or one.uses(self.reaches):
                    self.done.append(one)
                    found |= self._carried(one)
                else:
                    rest.append(one)
            self.todo = rest
            self.reaches |= found
            if not found:
                break
        self.carriers = {name for name in self.reaches if "." not in name}
        new = self.carriers - self.told
        self.told |= new
        return new

    def _carried(self, one: Statement) -> Set[str]:
        """The names behind which FSDP lies because of a statement. What is imported carries what
        it does in its own file, whatever is done with it here."""
        if one.imports:
            return one.bound if one.speaks else frozenset()
        return one.bound - self.imported


class Relevance:
    """Decides which of some files can have to do with FSDP.

    Attributes:
        importers: for files, those who import them.
        scanned: whose imports are known.
        joined: pairs of files, by their real paths, of which one uses what lies in the other.
    """

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._files: dict[str, Followed] = {}
        self._contents: dict[str, bytes] = {}
        self.importers: dict[str, list[tuple[str, Target]]] = {}
        self.scanned: set[str] = set()
        self._called: dict[tuple[str, str], bool] = {}
        self.joined: set[tuple[str, str]] = set()

    def search(self, contents: Mapping[str, bytes]) -> set[str]:
        """The files, of those given and those that they import, that can have to do with FSDP.

        contents: those of the files given, by their real paths.
        """
        self._contents = dict(contents)
        level = self._scan(list(contents))
        for _ in range(MAX_DISTANCE + 2):  # the file that speaks of it, those between, and its user
            users: dict[Followed, None] = {}
            for file in level:
                new = file.follow()
                if new:
                    users.update(dict.fromkeys(self._spread(file, new)))
            level = list(users)
        found = {path for path, file in self._files.items() if file.remarkable or file.concerned}
        self.joined |= {
            (importer, path)
            for path in found
            for importer, target in self.importers.get(path, ())
            if importer in found and not target.passing
        }
        return found

    def reached(self) -> dict[str, frozenset[str]]:
        """For the files found, by their real paths, the dotted names by which they call what lies
        in other files and has to do with FSDP."""
        return {path: frozenset(file.reached) for path, file in self._files.items()}

    def _scan(self, queue: list[str]) -> list[Followed]:
        """Find out who imports whom; gives the files that mention FSDP."""
        found = []
        seen = set(queue)
        for path in queue:  # grows while it is walked
            data = self._read(path)
            self.scanned.add(path)
            if data is None:
                continue
            if mentions(data):
                found.append(self._file(path, data))
            for target in self._modules.targets(path, data):
                self.importers.setdefault(target.file, []).append((path, target))
                if target.file not in seen:
                    seen.add(target.file)
                    queue.append(target.file)
        return found

    def _read(self, path: str) -> bytes | None:
        data = self._contents.get(path)
        if data is None:
            try:
                data = self._modules.read(Path(path))
            except Unreadable:
                return None
            if is_too_large(Path(path), data):
                data = b""
            self._contents[path] = data
        return data

    def _file(self, path: str, data: bytes) -> Followed:
        if path not in self._files:
            self._files[path] = Followed.of(path, code_of(path, data))
        return self._files[path]

    def _spread(self, file: Followed, new: Set[str]) -> list[Followed]:
        """Tell the users of a file of its new carriers; gives those to look at again."""
        result = []
        for path, prefix, target in self._users(file.path):
            data = self._read(path)
            if data is None or path == file.path:
                continue
            if prefix is not None and "." in prefix and not self._calls(path, prefix, data):
                continue
            reached = set(_reached(new, prefix, target, data))
            if reached:
                user = self._file(path, data)
                user.reach(reached)
                result.append(user)
        return result

    def _calls(self, path: str, dotted: str, data: bytes) -> bool:
        """Whether a file with some content uses a dotted name."""
        key = (path, dotted)
        known = self._called.get(key)
        if known is None:
            above = dotted.rpartition(".")[0]
            known = ("." not in above or self._calls(path, above, data)) and (
                f"{dotted}.".encode() in data
            )
            self._called[key] = known
        return known

    def _users(self, path: str) -> Iterator[tuple[str, str | None, Target]]:
        """The files that import a file, or a package that it lies in, with the dotted name through
        which they reach it; None where they import names of it."""
        for importer, target in self.importers.get(path, ()):
            yield importer, target.bound, target
        below = os.path.dirname(path) if path.endswith("__init__.py") else path.removesuffix(".py")
        names: list[str] = []
        while True:
            names.insert(0, os.path.basename(below))
            below = os.path.dirname(below)
            package = os.path.join(below, "__init__.py")
            if package == path or not os.path.isfile(package):
                return
            for importer, target in self.importers.get(package, ()):
                if target.bound is not None:
                    yield importer, ".".join([target.bound, *names]), target


def _reached(carriers: Set[str], prefix: str | None, target: Target, data: bytes) -> Iterator[str]:
    """The dotted names by which a file with some content calls another one's carriers."""
    if prefix is None:
        for name, alias in target.names:
            if name == "*":
                yield from (one for one in carriers if "." not in one)
            elif name in carriers:
                yield alias
        return
    for name in carriers:
        if name.encode() in data:
            yield f"{prefix}.{name}"
