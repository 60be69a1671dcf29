"""The running simulation, and how to leave it temporarily."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from fsdplint.runtime.recorder import patching


class Simulation:
    """The simulated rank and the number of ranks.

    It belongs to the process, not to a recording: the functions of torch that `install` replaces
    stay replaced.
    """

    def __init__(self) -> None:
        self.rank = 0
        self.world = 1

    @contextlib.contextmanager
    def real_tensors(self) -> Iterator[None]:
        """Create tensors with values in the block."""
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        with unset_fake_temporarily():
            yield


SIMULATION = Simulation()


def substitute(original: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """Call `replacement(original, *args, **kwargs)` instead of a function of torch."""

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    patching.replace(original, function)


def with_real_tensors(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function outside of the simulation."""
    with SIMULATION.real_tensors():
        return original(*args, **kwargs)


def real_method(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs outside of the simulation."""

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        return with_real_tensors(original, *args, **kwargs)

    return method
