"""Alternative tests of a module, of which those of classes become one."""

from __future__ import annotations

import re
from collections.abc import Sequence


def joined(tests: Sequence[str], variable: str) -> str:
    """The alternatives of some tests: `isinstance(module, (Block, Head)) or ...`."""
    classes = re.compile(rf"isinstance\({re.escape(variable)}, (?:([\w.]+)|\(([\w., ]+)\))\)")
    found: list[str | list[str]] = []
    for test in tests:
        match = classes.fullmatch(test)
        if match is None:
            found.append(test)
            continue
        names = match[1] or match[2].rstrip(", ")
        if found and isinstance(found[-1], list):
            found[-1].append(names)
        else:
            found.append([names])
    return " or ".join(one if isinstance(one, str) else _test(one, variable) for one in found)


def _test(names: Sequence[str], variable: str) -> str:
    classes = list(dict.fromkeys(one for part in names for one in part.split(", ")))
    text = classes[0] if len(classes) == 1 else f"({', '.join(classes)})"
    return f"isinstance({variable}, {text})"
