"""The results of a comparison: checks and their tolerances."""

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

    rounding: the rounding error of a gradient, relative to a typical gradient.
    """

    relative: float
    absolute: float
    reason: str
    rounding: float = 0.0

    def holds(self, a: float, b: float) -> bool:
        if math.isnan(a) and math.isnan(b) or a == b:
            return True
        if math.isinf(a) or math.isinf(b):
            return False
        return abs(a - b) <= self.absolute + self.relative * max(abs(a), abs(b))

    def __str__(self) -> str:
        return f"{self.relative:g} relative + {self.absolute:g} absolute ({self.reason})"


# FSDP2 adds some numbers in another order than FSDP1, which changes the last digits in each step.
# Optimizers that divide by the size of a gradient (Adam) amplify this for gradients near zero.
FLOAT32 = Tolerance(1e-5, 1e-5, "float32: rounding in another order", 1e-6)
FLOAT64 = Tolerance(1e-9, 1e-9, "float64: rounding in another order", 1e-14)
FLOAT16 = Tolerance(1e-3, 2e-4, "float16: 11 bits of precision", 1e-3)
BFLOAT16 = Tolerance(4e-3, 5e-4, "bfloat16: 8 bits of precision", 8e-3)


@dataclass
class Check:
    """The comparison of one property of two runs.

    holds: None if the property could not be compared.
    binding: whether the verdict depends on it; otherwise it is information.
    layout: whether a difference affects what the ranks hold and send, but not what they train.
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
        """Whether the runs differ and the verdict depends on it."""
        return self.binding and not self.holds


@dataclass
class Comparison:
    """All checks of two runs."""

    checks: list[Check]

    @property
    def holds(self) -> bool:
        return not self.differences

    @property
    def same_training(self) -> bool:
        """Whether the runs differ at most in what the ranks hold and send."""
        return all(check.layout for check in self.differences)

    @property
    def differences(self) -> list[Check]:
        return [check for check in self.checks if check.fails]


@dataclass
class Side:
    """The results of one run that are compared.

    parameters: the file of the full parameters; `optimizer.pt` is next to it.
    files: the checkpoints that the run wrote, by name.
    copies: maps each copy of a project to the user's folder.
    """

    records: Sequence[RankRecord]
    trace: Trace
    parameters: Path
    files: Mapping[str, Path] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
