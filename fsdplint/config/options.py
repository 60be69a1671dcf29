"""What the settings say that checks and fixes depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsdplint.trace.torch_target import Target

FORMATS = (
    *("full", "concise", "grouped", "json", "json-lines", "github", "gitlab", "junit", "sarif"),
    *("rdjson", "azure", "pylint"),
)
FULL, DCP = "full", "dcp"
CHECKPOINTS = (FULL, DCP)


@dataclass(frozen=True)
class Options:
    """What a program is checked for, and how it is to be fixed.

    Attributes:
        target: the torch that the program has to run on; None where that is not known.
        checkpoint: how sharded states are to be saved: "full" (gathered and written by rank 0) or
            "dcp" (each rank writes its part, by torch.distributed.checkpoint).
    """

    target: Target | None = None
    checkpoint: str = FULL


DEFAULT = Options()
