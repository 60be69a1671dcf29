"""What of a file can have to do with FSDP: which of its functions, and whether running it can.

Code that neither speaks of FSDP nor uses a name behind which such code lies makes nothing happen
that the contract speaks of, so that it need not be followed for its own sake. See
`fsdplint.relevance` for how names are followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.files import Unreadable
from fsdplint.imports import Modules
from fsdplint.relevance import Followed, Relevance

if TYPE_CHECKING:
    from fsdplint.program.source import Source


@dataclass(frozen=True)
class Concerned:
    """What of a file has to do with FSDP.

    Attributes:
        names: the functions and classes at its top that do.
        runs: whether something else at its top does, which happens when it is run or imported.
    """

    names: frozenset[str]
    runs: bool


@dataclass
class Concern:
    """Tells of sources what of them has to do with FSDP.

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

    def of(self, source: Source) -> Concerned:
        """What of a source, whose text may be another one than when names were followed."""
        path = os.path.realpath(source.path)
        file = Followed.of(path, source.text.encode("utf-8", "surrogatepass"))
        file.reach(self.reached.get(path, frozenset()))
        file.follow()
        concerned = file.concerned
        names = frozenset(name for one in concerned if one.defines for name in one.bound)
        runs = any(one.runs and (one.speaks or not one.imports) for one in concerned)
        return Concerned(names, runs)
