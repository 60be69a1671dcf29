"""Puts watchers around functions and methods of torch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.sites import is_direct

# before(frame, args, kwargs) -> note; after(note, result), which a note of None skips.
Before = Callable[[FrameType, tuple[Any, ...], dict[str, Any]], Any]
After = Callable[[Any, Any], None]
# failed(note, error), if the original raises.
Failed = Callable[[Any, BaseException], None]


def argument(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    position: int,
    name: str,
    default: Any = None,
) -> Any:
    """The argument of a call that is passed at a position or by name."""
    return args[position] if len(args) > position else kwargs.get(name, default)


_replacements: dict[int, tuple[Any, Any]] = {}


def add_watcher(
    original: Callable[..., Any],
    before: Before,
    after: After | None = None,
    *,
    direct: bool = True,
    failed: Failed | None = None,
) -> Callable[..., Any]:
    """`original` with a call of `before` in front and of `after` (or `failed`) behind it.

    The watchers never raise and never change arguments or results.

    direct: watch only calls that torch itself does not make, so that a call of the user is recorded
        once, without the calls that it causes in torch.
    """
    import torch

    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def watcher(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not (recording := current()).recorder.listening():
            return original(*args, **kwargs)
        note = None
        frame: FrameType | None = sys._getframe()
        own = sys._getframe().f_code
        while frame is not None and frame.f_code is own:
            frame = frame.f_back  # it may be another watcher of the same method
        if frame is not None and (not direct or is_direct(frame)):
            try:
                note = before(frame, args, kwargs)
            except Exception:
                recording.recorder.record_error()
        del frame
        try:
            result = original(*args, **kwargs)
        except Exception as error:
            if note is not None and failed is not None:
                try:
                    failed(note, error)
                except Exception:
                    recording.recorder.record_error()
            raise
        if note is not None and after is not None:
            try:
                after(note, result)
            except Exception:
                recording.recorder.record_error()
        return result

    return watcher


def watch_method(
    owner: type,
    name: str,
    before: Before,
    after: After | None = None,
    *,
    direct: bool = True,
    failed: Failed | None = None,
) -> None:
    """Watch a method, static or class method if `owner` itself defines it."""
    found = owner.__dict__.get(name)
    if found is None:
        return
    wrapper: Any
    if isinstance(found, staticmethod):
        wrapper = staticmethod(
            add_watcher(found.__func__, before, after, direct=direct, failed=failed)
        )
    elif isinstance(found, classmethod):
        wrapper = classmethod(
            add_watcher(found.__func__, before, after, direct=direct, failed=failed)
        )
    else:
        wrapper = add_watcher(found, before, after, direct=direct, failed=failed)
    setattr(owner, name, wrapper)


def watch_function(
    module: Any,
    name: str,
    before: Before,
    after: After | None = None,
    *,
    direct: bool = True,
    failed: Failed | None = None,
) -> None:
    """Watch a function under every name by which a module of torch exports it."""
    original = getattr(module, name, None)
    if original is not None:
        replace(original, add_watcher(original, before, after, direct=direct, failed=failed))


def replace(original: Any, wrapper: Any) -> None:
    """Register a replacement for `apply_replacements`."""
    _replacements[id(original)] = (original, wrapper)


def apply_replacements(prefixes: Iterable[str] = ("torch",)) -> None:
    """Replace the registered functions in all loaded modules of these packages, in one pass."""
    roots = tuple(prefixes)
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in roots or module is None:
            continue
        for key, value in list(vars(module).items()):
            found = _replacements.get(id(value))
            if found is not None and found[0] is value:
                setattr(module, key, found[1])
    _replacements.clear()
