"""Saving to and loading from disk."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching, values
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recorder import of_this_rank
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.sites import is_result_dropped, names_read_later
from fsdplint.trace import Layout, Loaded, Saved


def install() -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    patching.watch_function(
        torch, "save", functools.partial(_record_saving, "torch.save", 0, "obj", False)
    )
    patching.watch_function(
        torch, "load", functools.partial(_record_loading, "torch.load"), _remember_state
    )
    for name in ("save", "async_save", "save_state_dict"):
        api = f"torch.distributed.checkpoint.{name}"
        patching.watch_function(
            dcp, name, functools.partial(_record_saving, api, 0, "state_dict", True)
        )
    for name in ("load", "load_state_dict"):
        api = f"torch.distributed.checkpoint.{name}"
        patching.watch_function(dcp, name, functools.partial(_record_loading, api))
    try:
        import safetensors.torch as safetensors
    except ImportError:
        return
    for name, key in (("save_file", "tensors"), ("save_model", "model")):
        api = f"safetensors.torch.{name}"
        patching.watch_function(
            safetensors, name, functools.partial(_record_saving, api, 0, key, False)
        )
    patching.watch_function(
        safetensors,
        "load_file",
        functools.partial(_record_loading, "safetensors.torch.load_file"),
        _remember_state,
    )
    # Both packages at once: each call forgets the replacements for other packages.
    patching.apply_replacements(("torch", "safetensors"))


def _record_saving(
    api: str,
    position: int,
    key: str,
    collective: bool,
    frame: FrameType,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    recording = current()
    value = argument(args, kwargs, position, key)
    states, modules = recording.objects.states_in(value)
    layouts = [state.layout for state in states]
    if not states:
        layout = values.layout_of(value)
        if layout is not None:
            layouts = [Layout.PLAIN if layout is Layout.FULL else layout]
        if layout is Layout.FULL and recording.objects.are_local_parts(values.tensors(value)):
            layouts = [Layout.LOCAL]
    path = _checkpoint_path(args, kwargs) if collective else _path(args, kwargs, 1)
    if path is not None and not collective:
        recording.outside_files.note(path)  # torch opens it without Python
    recording.recorder.event(
        Saved,
        frame,
        api=api,
        states=tuple(state.name for state in states),
        modules=tuple(recording.objects.module(module) for module in modules),
        helper_states=tuple(recording.objects.helper_states_in(value)),
        layouts=tuple(layouts),
        path=path or "",
        collective=collective,
        dropped=api.endswith("async_save") and is_result_dropped(frame),
        own_group=collective and kwargs.get("process_group") is not None,
        one_rank=of_this_rank(any(True for _ in values.tensors(value))),
    )


def _path(args: tuple[Any, ...], kwargs: dict[str, Any], position: int) -> str | None:
    """The file that a call writes or reads, so that the ranks' files can be compared."""
    file = argument(args, kwargs, position, "f", kwargs.get("filename"))
    file = getattr(file, "name", file)
    if isinstance(file, (str, os.PathLike)):
        return os.path.abspath(os.fspath(file))
    return None


def _checkpoint_path(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The folder of a distributed checkpoint, if it is one of the file system."""
    place = kwargs.get("storage_writer") or kwargs.get("storage_reader")
    place = place or argument(args, kwargs, 1, "storage")
    path = kwargs.get("checkpoint_id") or getattr(place, "path", None)
    return os.path.abspath(os.fspath(path)) if isinstance(path, (str, os.PathLike)) else None


def _record_loading(
    api: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str:
    recording = current()
    collective = api.startswith("torch.distributed")
    value = argument(args, kwargs, 0, "state_dict")
    known = recording.objects.states_in(value)[0] if collective else []
    state = known[0].name if known else recording.objects.new_state()
    path = _checkpoint_path(args, kwargs) if collective else _path(args, kwargs, 0)
    entry = recording.recorder.event(
        Loaded,
        frame,
        api=api,
        state=state,
        path=path or "",
        collective=collective,
        states=tuple(one.name for one in known),
        optimizers=tuple(map(recording.objects.optimizer, _optimizers_in(value))),
        helper_states=tuple(recording.objects.helper_states_in(value)) if collective else (),
        read_later=tuple(_read_later(frame, {one.name for one in known})),
        empty=collective and value == {} and "planner" not in kwargs,
    )
    if collective and not is_result_dropped(frame):
        recording.unreturned.append(entry)
    return state


def _read_later(frame: FrameType, states: set[str]) -> set[str]:
    """Those of some states in objects, or in variables that the program may read after a call."""
    found: set[str] = set()
    here: FrameType | None = frame
    while here is not None and found != states:
        read = names_read_later(here)
        for name, value in here.f_locals.items():
            kept = getattr(value, "__dict__", {}).values() if name == "self" else ()
            found |= states & _states_in([value] if name in read else kept)
        here = here.f_back
    return found


def _states_in(values: Iterable[Any]) -> set[str]:
    held = [value for value in values if isinstance(value, dict | list | tuple)]
    return {one.name for one in current().objects.states_in(held)[0]}


def _optimizers_in(value: Any) -> list[Any]:
    """The optimizers in the dict of a distributed checkpoint."""
    import torch

    items = value.values() if isinstance(value, dict) else ()
    return [item for item in items if isinstance(item, torch.optim.Optimizer)]


_OF_NONE = re.compile(r"'NoneType' object (is not|has no)|got <class 'NoneType'>")


def note_use_of_result(error: BaseException) -> None:
    """Record that the program ended because it uses the result of a load, which is None."""
    if isinstance(error, TypeError | AttributeError) and _OF_NONE.search(str(error)):
        for entry in current().unreturned[-1:]:
            entry.event.result_used = True
            entry.write()


def _remember_state(state: str, result: Any) -> None:
    """Remember the dict of a file, so that loading it is recognized."""
    layout = values.layout_of(result) if isinstance(result, dict) else None
    if layout is not None:
        if layout is Layout.FULL:
            layout = Layout.PLAIN
        current().objects.remember_state(state, "", layout, result)
    current().objects.remember_file(state, result)
