"""Which files of a program, and what in them, can have to do with FSDP.

What neither speaks of FSDP nor uses a name behind which such code lies comes last where the work is
bounded. See `fsdplint.discovery.relevance` for how names are followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.discovery.module_resolver import Modules
from fsdplint.discovery.relevance import Followed, Relevance
from fsdplint.source.files import Unreadable

if TYPE_CHECKING:
    from fsdplint.source.source import Source


@dataclass(frozen=True)
class Names:
    """The names of a source that have to do with FSDP.

    Attributes:
        bound: those at its top behind which code lies that has to do with FSDP.
        carriers: the dotted names by which it calls such code, be it that of other files; code that
            only asks whether something is sharded is not among them.
    """

    bound: frozenset[str]
    carriers: frozenset[str]


@dataclass
class Concern:
    """Tells what has to do with FSDP.

    Attributes:
        files: the real paths of the files that can have to do with FSDP.
        reached: for files, by their real paths, the dotted names by which they call what lies in
            other files and has to do with FSDP.
    """

    files: Set[str] = frozenset()
    reached: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def among(cls, paths: Iterable[Path], overrides: Mapping[Path, str]) -> Concern:
        """That of some files and of those that they import."""
        modules = Modules(overrides)
        contents: dict[str, bytes] = {}
        for path in paths:
            try:
                contents[modules.key(path)] = modules.read(path)
            except Unreadable:
                continue
        relevance = Relevance(modules)
        return cls(relevance.search(contents), relevance.reached())

    def names(self, source: Source) -> Names:
        """The names of a source, whose text may be another one than when names were followed."""
        path = os.path.realpath(source.path)
        file = Followed.of(path, source.text.encode("utf-8", "surrogatepass"))
        file.reach(self.reached.get(path, frozenset()))
        file.follow()
        bound = frozenset(name for one in file.concerned for name in one.bound)
        return Names(bound, frozenset(file.reaches))
