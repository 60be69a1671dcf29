"""Samplers and loaders, which need real numbers: they run outside of the simulation.

Their batches are small, real tensors; a module that is called with one takes it as any other.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from fsdplint.runtime.simulation.switch import SIMULATION, substitute


def install() -> None:
    import torch
    import torch.utils.data as data

    substitute(torch.randperm, _with_real_tensors)
    loader: Any = data.DataLoader
    loader.__init__ = _without_workers(loader.__init__)
    loader.__iter__ = _real(loader.__iter__)
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    iterator: Any = _BaseDataLoaderIter
    iterator.__next__ = _real(iterator.__next__)


def _with_real_tensors(original: Any, *args: Any, **kwargs: Any) -> Any:
    with SIMULATION.real_tensors():
        return original(*args, **kwargs)


def _real(original: Any) -> Any:
    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        with SIMULATION.real_tensors():
            return original(*args, **kwargs)

    return method


def _without_workers(original: Any) -> Any:
    """Without processes of its own, to which fake tensors cannot be sent."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        arguments = signature.bind(self, *args, **kwargs).arguments
        for name in ("multiprocessing_context", "persistent_workers", "prefetch_factor", "timeout"):
            arguments.pop(name, None)
        arguments.update(num_workers=0, pin_memory=False)
        original(**arguments)

    return __init__
