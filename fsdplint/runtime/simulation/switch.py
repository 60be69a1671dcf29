"""Which simulation is under way, and how to step out of it for a moment."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from fsdplint.runtime.recorder import patching


class Simulation:
    """The rank that is simulated, and of how many.

    A switch of the process and no part of a recording: torch's functions that `install` replaces
    stay so.
    """

    def __init__(self) -> None:
        self.rank = 0
        self.world = 1

    @contextlib.contextmanager
    def real_tensors(self) -> Iterator[None]:
        """Tensors that are made in here have values."""
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        with unset_fake_temporarily():
            yield


SIMULATION = Simulation()


def substitute(original: Callable[..., Any], instead: Callable[..., Any]) -> None:
    """Have `instead(original, *args, **kwargs)` run wherever torch's function is called."""

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        return instead(original, *args, **kwargs)

    patching.replace(original, function)
