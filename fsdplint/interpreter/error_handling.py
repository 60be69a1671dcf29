"""Whether the program catches the errors of what is executed."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.signals import is_in_try
from fsdplint.interpreter.values import Context

SUPPRESS = "suppress"  # the kind of the context `contextlib.suppress(...)`


def catches_errors(run: Run, node: cst.CSTNode) -> bool:
    """Whether errors of a node may be caught, as far as that is seen, by a `try` of its function or
    by a context that is open now."""
    suppressed = any(isinstance(one, Context) and one.kind == SUPPRESS for one in run.contexts)
    return suppressed or is_in_try(run.source, node)
