"""What a comparison says: checks and their tolerances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdplint.runtime.launch.records import RankRecord
from fsdplint.trace import Trace


@dataclass(frozen=True)
class Tolerance:
    """How far two numbers may be apart: |a - b| <= absolute + relative * max(|a|, |b|).

    rounding: the error that rounding makes in a gradient, as a part of a typical gradient.
    """

    relative: float
    absolute: float
    why: str
    rounding: float = 0.0

    def holds(self, a: float, b: float) -> bool:
        if math.isnan(a) and math.isnan(b) or a == b:
            return True
        if math.isinf(a) or math.isinf(b):
            return False
        return abs(a - b) <= self.absolute + self.relative * max(abs(a), abs(b))

    def __str__(self) -> str:
        return f"{self.relative:g} relative + {self.absolute:g} absolute ({self.why})"


# FSDP2 adds the same numbers as FSDP1, in another order in places: some units in the last place a
# step. Optimizers that divide by a gradient's size (Adam) make more of it where it is near zero.
FLOAT32 = Tolerance(1e-5, 1e-5, "float32: rounding in another order", 1e-6)
FLOAT64 = Tolerance(1e-9, 1e-9, "float64: rounding in another order", 1e-14)
FLOAT16 = Tolerance(1e-3, 2e-4, "float16: 11 bits of precision", 1e-3)
BFLOAT16 = Tolerance(4e-3, 5e-4, "bfloat16: 8 bits of precision", 8e-3)


@dataclass
class Check:
    """One thing that was compared.

    holds: None where it could not be compared.
    binding: whether the verdict hangs on it; else it is only told.
    layout: whether a difference changes what the ranks hold and send, and not what is trained.
    """

    name: str
    holds: bool | None
    detail: str
    tolerance: str = ""
    binding: bool = True
    layout: bool = False
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def fails(self) -> bool:
        """Whether the two differ in something that the verdict hangs on."""
        return self.binding and not self.holds


@dataclass
class Comparison:
    """All that was compared of two runs."""

    checks: list[Check]

    @property
    def holds(self) -> bool:
        return not self.failed

    @property
    def trains_alike(self) -> bool:
        """Whether nothing differs but what the ranks hold and send."""
        return all(check.layout for check in self.failed)

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if check.fails]


@dataclass
class Side:
    """What one run left to compare.

    parameters: the file of the full parameters; `optimizer.pt` lies next to it.
    files: the checkpoints that it wrote, by their names.
    copies: the folders that runs are made in, and that of the user which each stands for.
    """

    records: Sequence[RankRecord]
    trace: Trace
    parameters: Path
    files: Mapping[str, Path] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
