"""Subclasses of `torch.autograd.Function`, which have a backward of their own."""

from __future__ import annotations

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Class

_BASES = frozenset({"torch.autograd.Function", "torch.autograd.function.Function"})


def is_autograd_function(cls: Class) -> bool:
    return not _BASES.isdisjoint(cls.library_bases())


def in_autograd_function(run: Run) -> bool:
    """Whether a method of such a class is executed."""
    owners = (frame.owner for frame in run.frames)
    return any(isinstance(one, Class) and is_autograd_function(one) for one in owners)
