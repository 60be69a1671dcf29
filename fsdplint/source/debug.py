"""The environment variable with which a defect of fsdplint shows its traceback."""

from __future__ import annotations

import os

VARIABLE = "FSDPLINT_DEBUG"


def debugging() -> bool:
    """Whether a defect ends the run with its traceback, rather than being reported as a problem."""
    return bool(os.environ.get(VARIABLE))
