"""Records the local rank as a command-line argument, which an old launcher passed."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from dataclasses import replace
from typing import Any

from fsdplint.runtime.recorder.launcher_arguments import ArgumentRead
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.sites import span_of, user_frame
from fsdplint.trace import LauncherArgumentUsed

ARGUMENT, NAME = "--local_rank", "local_rank"


class _WatchedNamespace(argparse.Namespace):
    """Parsed arguments with a wrong local rank; records that the program reads or sets it."""

    def __getattribute__(self, name: str) -> Any:
        if name == NAME:
            _record_read(self)
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == NAME:
            _note_value(self)

    def __reduce__(self) -> Any:
        return argparse.Namespace, (), dict(self.__dict__)


_WatchedNamespace.__name__ = _WatchedNamespace.__qualname__ = "Namespace"


def install() -> None:
    original_add = argparse._ActionsContainer.add_argument
    original_parse = argparse.ArgumentParser.parse_args

    @functools.wraps(original_add)
    def add_argument(self: Any, *names: Any, **options: Any) -> Any:
        recording = current()
        action = original_add(self, *names, **options)
        frame = user_frame(sys._getframe(1))
        if names == (ARGUMENT,) and frame is not None and recording.recorder.listening():
            recording.arguments.added[id(action)] = span_of(frame)
        return action

    @functools.wraps(original_parse)
    def parse_args(self: Any, args: Any = None, namespace: Any = None) -> Any:
        result = original_parse(self, args, namespace)
        if current().recorder.listening() and type(result) is argparse.Namespace:
            _watch_default(self, result, args)
        return result

    argparse._ActionsContainer.add_argument = add_argument  # type: ignore[method-assign]
    argparse.ArgumentParser.parse_args = parse_args  # type: ignore[method-assign]


def _watch_default(parser: Any, result: Any, args: Any) -> None:
    """Watch the arguments if the default of the local rank is wrong for this process."""
    recording = current()
    texts = sys.argv[1:] if args is None else list(args)
    local = os.environ.get("LOCAL_RANK")
    if local is None or any(str(text).startswith(ARGUMENT) for text in texts):
        return
    span = next(
        (
            recording.arguments.added[id(a)]
            for a in parser._actions
            if id(a) in recording.arguments.added
        ),
        None,
    )
    value = result.__dict__.get(NAME)
    if span is None or type(value) is not int or str(value) == local:
        return
    result.__class__ = _WatchedNamespace
    recording.arguments.reads[id(result)] = ArgumentRead(span)


def _record_read(arguments: Any) -> None:
    recording = current()
    state = recording.arguments.reads.get(id(arguments))
    if state is None or state.set or state.entry is not None or not recording.recorder.listening():
        return
    entry = recording.recorder.prepare(LauncherArgumentUsed, sys._getframe(2), argument=ARGUMENT)
    entry.place = replace(entry.place, span=state.span)
    entry.write()
    state.entry = entry


def _note_value(arguments: Any) -> None:
    state = current().arguments.reads.get(id(arguments))
    if state is not None and not state.set:
        state.set = True
        if state.entry is not None:
            state.entry.event.overwritten = True
            state.entry.write()
