"""Runs samplers and loaders, which need real numbers, outside of the simulation.

Their batches are real tensors, which simulated modules accept.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from fsdplint.runtime.simulation.switch import real_method, substitute, with_real_tensors


def install() -> None:
    import torch
    import torch.utils.data as data

    substitute(torch.randperm, with_real_tensors)
    loader: Any = data.DataLoader
    loader.__init__ = _without_workers(loader.__init__)
    loader.__iter__ = real_method(loader.__iter__)
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    iterator: Any = _BaseDataLoaderIter
    iterator.__next__ = real_method(iterator.__next__)


def _without_workers(original: Any) -> Any:
    """A constructor without worker processes, which cannot get fake tensors."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        arguments = signature.bind(self, *args, **kwargs).arguments
        for name in ("multiprocessing_context", "persistent_workers", "prefetch_factor", "timeout"):
            arguments.pop(name, None)
        arguments.update(num_workers=0, pin_memory=False)
        original(**arguments)

    return __init__
