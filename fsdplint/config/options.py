"""The settings that checks and fixes depend on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsdplint.trace.torch_target import Target

# Help texts list these formats first, and all others by name.
_FIRST = (
    *("full", "concise", "grouped", "json", "json-lines", "json-full", "github", "gitlab"),
    *("junit", "sarif", "rdjson", "azure", "pylint", "markdown"),
)


def _formats() -> tuple[str, ...]:
    """The output formats: the names of the modules in `fsdplint.report.formats`.

    Only the module of the selected format is imported.
    """
    files = os.listdir(Path(__file__).parents[1] / "report" / "formats")
    modules = [PurePath(file).stem for file in files if file.endswith(".py") and file[0] != "_"]
    names = sorted(module.replace("_", "-") for module in modules)
    return tuple(sorted(names, key=lambda name: (*_FIRST, name).index(name)))


FORMATS = _formats()
FULL, DCP = "full", "dcp"
CHECKPOINTS = (FULL, DCP)


@dataclass(frozen=True)
class Refused:
    """Code whose rewrite made the migrated program worse, with the reason."""

    path: str
    start: int
    end: int
    reason: str


@dataclass(frozen=True)
class Assist:
    """An assisted migration: code that blocks is replaced by statements that raise.

    Attributes:
        refused: code that the validation of earlier attempts refused.
    """

    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True)
class Options:
    """The options of a program's checks and fixes.

    Attributes:
        target: the torch that the program must support; None if unknown.
        checkpoint: how fixes save sharded states: "full" (gathered and written by rank 0) or "dcp"
            (each rank writes its part with torch.distributed.checkpoint).
        assist: how migrations are assisted; None if blocked programs are left as they are.
    """

    target: Target | None = None
    checkpoint: str = FULL
    assist: Assist | None = None


DEFAULT = Options()
