"""Samplers, loaders and passes over them."""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching
from fsdplint.runtime.recorder.recorder import Entry, of_this_rank
from fsdplint.runtime.recorder.recording import current
from fsdplint.trace import EpochSet, LoaderBuilt, LoaderIterated, LoaderLeft, SamplerBuilt

MAX_SAMPLES = 10_000  # of a part of a dataset that is recorded


def install() -> None:
    import torch.utils.data as data
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    patching.watch_method(data.DistributedSampler, "__init__", _record_sampler)
    patching.watch_method(data.DistributedSampler, "set_epoch", _record_epoch)
    patching.watch_method(data.DataLoader, "__init__", _record_loader)
    _watch_passes(data.DataLoader, _BaseDataLoaderIter)


def _record_sampler(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    import torch.utils.data as data

    recording = current()
    sampler = args[0]
    if type(sampler) is not data.DistributedSampler:
        return  # a class of the user may do anything in an epoch
    bound = inspect.signature(data.DistributedSampler.__init__).bind(*args, **kwargs)
    name = recording.objects.new_name("sampler")
    recording.objects.names.set(sampler, name)
    recording.loader_pass.samplers.append(sampler)
    shuffle = bool(bound.arguments.get("shuffle", True))
    recording.recorder.event(
        SamplerBuilt,
        frame,
        sampler=name,
        shuffle=shuffle,
        seed_per_rank=of_this_rank(bound.arguments.get("seed", 0)),
        of_part=of_this_rank(_samples(bound.arguments["dataset"])),
        over_all=_is_over_all(bound.arguments),
    )


def _is_over_all(arguments: dict[str, Any]) -> bool:
    """Whether the arguments of a sampler split over all ranks."""
    import torch.distributed as dist

    if not dist.is_initialized():
        return False
    ranks, world = dist.get_rank(), dist.get_world_size()
    rank, number = arguments.get("rank"), arguments.get("num_replicas")
    return rank in (None, ranks) and number in (None, world) and world > 1


def _samples(dataset: Any) -> list[int]:
    """The numbers of the samples in a part of a dataset; none for another dataset, or too many."""
    import torch.utils.data as data

    if type(dataset) is not data.Subset or len(dataset.indices) > MAX_SAMPLES:
        return []
    return [int(number) for number in dataset.indices]


def _record_epoch(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    epoch = kwargs.get("epoch", args[1] if len(args) > 1 else None)
    recording.recorder.event(
        EpochSet,
        frame,
        sampler=recording.objects.names.get(args[0]),
        epoch=epoch if isinstance(epoch, int) else None,
    )


def _record_loader(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    bound = inspect.signature(type(args[0]).__init__).bind_partial(*args, **kwargs).arguments
    batches = bound.get("batch_sampler")
    sampler = getattr(batches, "sampler", None) or bound.get("sampler")
    name = recording.objects.new_name("loader")
    recording.objects.names.set(args[0], name)
    known = recording.objects.names.get(sampler) if sampler is not None else None
    recording.recorder.event(
        LoaderBuilt,
        frame,
        loader=name,
        sampler=known,
        passed_over=_passed_over(bound) if batches is None and sampler is None else None,
    )


def _passed_over(arguments: dict[str, Any]) -> str | None:
    """The DistributedSampler over the dataset of a loader that gets no sampler; None if none."""
    recording = current()
    for sampler in recording.loader_pass.samplers:
        if sampler.dataset is arguments.get("dataset"):
            return recording.objects.names.get(sampler)
    return None


def _watch_passes(loader_class: Any, iterator_class: Any) -> None:
    original_iter, original_next = loader_class.__iter__, iterator_class.__next__

    def record_end(number: int, frame: FrameType | None) -> None:
        recording = current()
        name = recording.loader_pass.open.pop(number, None)
        if name is not None and recording.recorder.listening():
            recording.recorder.event(LoaderLeft, frame, loader=name)

    @functools.wraps(original_iter)
    def begin(self: Any) -> Any:
        recording = current()
        iterator = original_iter(self)
        if recording.recorder.listening():
            try:
                name = recording.objects.names.get(self) or "loader"
                recording.loader_pass.begin(_record_pass(self, name, sys._getframe(1)))
                recording.loader_pass.open[id(iterator)] = name
                weakref.finalize(iterator, record_end, id(iterator), None).atexit = False
            except Exception:
                recording.recorder.record_error()
        return iterator

    @functools.wraps(original_next)
    def next_batch(self: Any) -> Any:
        try:
            return original_next(self)
        except StopIteration:
            record_end(id(self), sys._getframe(1))
            raise

    loader_class.__iter__ = begin
    iterator_class.__next__ = next_batch


def _record_pass(loader: Any, name: str, frame: FrameType) -> Entry[LoaderIterated]:
    recording = current()
    sampler = getattr(loader.batch_sampler, "sampler", None) or loader.sampler
    known = recording.objects.names.get(sampler) if sampler is not None else None
    if known is not None:
        if recording.loader_pass.is_new_order(known, (sampler.epoch, sampler.seed)):
            recording.recorder.event(EpochSet, frame, sampler=known)
    return recording.recorder.event(LoaderIterated, frame, loader=name, sampler=known)
