"""Samplers, loaders and passes over them."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import weakref
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching, values
from fsdplint.runtime.recorder.objects import OBJECTS
from fsdplint.runtime.recorder.recorder import RECORDER, Entry, of_this_rank
from fsdplint.trace import EpochSet, LoaderBuilt, LoaderIterated, LoaderLeft, SamplerBuilt

MAX_INPUTS = 2  # model calls of a pass whose inputs are compared between ranks
MAX_BYTES = 1 << 20  # of a tensor that are compared


class Pass:
    """The pass over a loader that is going on: what the model got in it so far."""

    def __init__(self) -> None:
        self.entry: Entry[LoaderIterated] | None = None
        self.inputs: tuple[str, ...] = ()

    def begin(self, entry: Entry[LoaderIterated]) -> None:
        self.entry, self.inputs = entry, ()

    def note_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The sharded model is called from outside with these arguments."""
        if self.entry is None or len(self.inputs) >= MAX_INPUTS:
            return
        self.inputs = (*self.inputs, _digest((args, kwargs)))
        self.entry.event.alike = of_this_rank(self.inputs)
        self.entry.write()


PASS = Pass()
_orders: dict[str, tuple[int, int]] = {}  # of each sampler in its last pass: epoch and seed


def install() -> None:
    import torch.utils.data as data
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    patching.watch_method(data.DistributedSampler, "__init__", _sampler)
    patching.watch_method(data.DistributedSampler, "set_epoch", _set_epoch)
    patching.watch_method(data.DataLoader, "__init__", _loader)
    _watch_passes(data.DataLoader, _BaseDataLoaderIter)


def _sampler(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    import torch.utils.data as data

    sampler = args[0]
    if type(sampler) is not data.DistributedSampler:
        return  # what a class of the user's does in each epoch is its own affair
    given = inspect.signature(data.DistributedSampler.__init__).bind(*args, **kwargs)
    name = OBJECTS.fresh("sampler")
    OBJECTS.names.set(sampler, name)
    shuffle = bool(given.arguments.get("shuffle", True))
    RECORDER.event(SamplerBuilt, frame, sampler=name, shuffle=shuffle)


def _set_epoch(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    RECORDER.event(EpochSet, frame, sampler=OBJECTS.names.get(args[0]))


def _loader(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    bound = inspect.signature(type(args[0]).__init__).bind_partial(*args, **kwargs).arguments
    batches = bound.get("batch_sampler")
    sampler = getattr(batches, "sampler", None) or bound.get("sampler")
    name = OBJECTS.fresh("loader")
    OBJECTS.names.set(args[0], name)
    known = OBJECTS.names.get(sampler) if sampler is not None else None
    RECORDER.event(LoaderBuilt, frame, loader=name, sampler=known)


def _watch_passes(loader_class: Any, iterator_class: Any) -> None:
    original_iter, original_next = loader_class.__iter__, iterator_class.__next__
    open_passes: dict[int, str] = {}

    def left(number: int, frame: FrameType | None) -> None:
        name = open_passes.pop(number, None)
        if name is not None and RECORDER.listening():
            RECORDER.event(LoaderLeft, frame, loader=name)

    @functools.wraps(original_iter)
    def begin(self: Any) -> Any:
        iterator = original_iter(self)
        if RECORDER.listening():
            try:
                name = OBJECTS.names.get(self) or "loader"
                PASS.begin(_iterated(self, name, sys._getframe(1)))
                open_passes[id(iterator)] = name
                weakref.finalize(iterator, left, id(iterator), None).atexit = False
            except Exception:
                RECORDER.trouble()
        return iterator

    @functools.wraps(original_next)
    def following(self: Any) -> Any:
        try:
            return original_next(self)
        except StopIteration:
            left(id(self), sys._getframe(1))
            raise

    loader_class.__iter__ = begin
    iterator_class.__next__ = following


def _iterated(loader: Any, name: str, frame: FrameType) -> Entry[LoaderIterated]:
    sampler = getattr(loader.batch_sampler, "sampler", None) or loader.sampler
    known = OBJECTS.names.get(sampler) if sampler is not None else None
    if known is not None:
        order = (sampler.epoch, sampler.seed)
        if _orders.setdefault(known, order) != order:  # however it was set
            _orders[known] = order
            RECORDER.event(EpochSet, frame, sampler=known)
    return RECORDER.event(LoaderIterated, frame, loader=name, sampler=known)


def _digest(value: Any) -> str:
    """A short text that is the same for the same tensors."""
    import torch

    found = hashlib.sha256()
    for tensor in values.tensors(value):
        plain = tensor.detach()
        if hasattr(plain, "to_local"):
            plain = plain.to_local()
        found.update(f"{tuple(plain.shape)} {plain.dtype}".encode())
        content = plain.contiguous().view(-1).view(torch.uint8)[:MAX_BYTES].cpu()
        found.update(content.numpy().tobytes())
    return found.hexdigest()[:16]
