"""The static producer: a program's files, abstractly executed, become traces.

`load` reads the files, follows imports within the project, and interprets every program and every
function that no program reaches; nothing of the user's code is run and torch is not imported.
"""

from __future__ import annotations

import fsdplint.source.quick_libcst  # noqa: F401 (before anything imports libcst)
from fsdplint.interpreter.exploration import load
from fsdplint.interpreter.program import Program

__all__ = ["Program", "load"]
