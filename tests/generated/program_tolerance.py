"""How far the outputs of a program before and after its migration may be apart, and why."""

from __future__ import annotations

import re
from collections.abc import Sequence

from program_features import Description

NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+e[-+]?\d+|\bnan\b|-?\binf\b")

LAST_PLACES = 2e-6
AMPLIFIED = 2e-4
ROUNDED = 2e-2


def tolerance(d: Description) -> tuple[float, str]:
    """The largest relative difference of two numbers, and its reason.

    Both forms add the same numbers in the same order, except for the norm of all gradients: FSDP1
    takes the norm of a flat parameter and FSDP2 that of each parameter. Where gradients are scaled by
    this norm, it reaches all other numbers, and where they are rounded to 16 bits after that, in the
    last place of these.
    """
    clips = d["clip"] not in ("none", "measure", "infinite")
    if clips and d["precision"] != "none":
        return ROUNDED, "the norm is summed in another order, and what it changes is rounded"
    if d["precision"] != "none" and d["accumulation"] != "none":
        return (
            ROUNDED,
            "gradients of several backwards are added in another type, as the report says",
        )
    if clips and d["optimizer"].startswith("adam"):
        return AMPLIFIED, "Adam's first step divides a gradient by its own size, also a tiny one"
    return LAST_PLACES, "the norm is summed in another order"


END = "end of a checksum"


def resumes(d: Description, output: str) -> bool:
    """Whether a program ended with the same sums after it was resumed as before.

    It makes the last step twice, the second time with all that it has saved and loaded. An average is
    not saved.
    """
    limit, _ = tolerance(d)
    lines = [line for line in output.splitlines() if not line.startswith("ema")]
    parts = [part.strip().splitlines() for part in "\n".join(lines).split(END)]
    if len(parts) < 3:
        return False
    size = len(parts[1])
    first, second = parts[0][-size:], parts[1]
    return all(
        one == other or _near(one, other, limit) for one, other in zip(first, second, strict=False)
    )


def compare(d: Description, first: Sequence[str], second: Sequence[str]) -> str | None:
    """The first difference of two outputs, or None."""
    limit, _ = tolerance(d)
    for rank, (ours, theirs) in enumerate(zip(first, second, strict=True)):
        before, after = _lines(d, ours), _lines(d, theirs)
        for one, other in zip(before, after, strict=False):
            if one != other and not _near(one, other, limit):
                return f"rank {rank}: {one!r} became {other!r}"
        if len(before) != len(after):
            return f"rank {rank}: {len(before)} lines became {len(after)}"
    return None


def _lines(d: Description, output: str) -> list[str]:
    """The lines of an output, without what the migration does not keep.

    - The types of buffers that are saved in low precision: FSDP1 saves the same rounded values in the
      original type; the report has a note on it.
    - The prefix in the names of the parameters of a compiled wrapper.
    - The zeros that Adagrad has for frozen parameters from the start: torch's functions for states
      load no state of a parameter without `requires_grad`.
    """
    output = output.replace("_fsdp_wrapped_module.", "")
    if d["optimizer"] == "adagrad":
        output = re.sub(r"(?m)^state side\.\w+ \w+ 0\.0 0\.0\n", "", output)
    if d["precision"] in ("all", "fp16", "wider_reduce"):
        output = re.sub(r"(?m)^(parameter \S*scale) torch\.\w+", r"\1", output)
    return output.splitlines()


def _near(one: str, other: str, limit: float) -> bool:
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    ours, theirs = ([float(x) for x in NUMBER.findall(text)] for text in (one, other))
    # The second sum of a parameter or state is that of its absolute values: errors of the first one
    # are as large as the values that are added.
    has_sizes = one.startswith(("parameter", "state")) and len(ours) == 2
    size = max(map(abs, [*ours, *theirs])) if has_sizes else 0.1
    return all(_close(a, b, limit, size) for a, b in zip(ours, theirs, strict=True))


def _close(a: float, b: float, limit: float, size: float) -> bool:
    if a == b or (a != a and b != b):
        return True
    # A sum of numbers of both signs may be near zero: an absolute difference counts then.
    return abs(a - b) <= limit * max(abs(a), abs(b), size, 0.1)
