"""Context managers that certainly keep the autograd mode and the dtype of new tensors."""

from __future__ import annotations

import re

from fsdplint.interpreter.library_classes import only_reads
from fsdplint.interpreter.torch_values import Batches
from fsdplint.interpreter.values import (
    Class,
    Context,
    Function,
    Instance,
    Lazy,
    LibraryObject,
    Sequence,
    Unknown,
    Value,
)

_BASES = frozenset({"object", "builtins.object", "abc.ABC"})
_BASE_MODULES = ("contextlib.", "typing.", "typing_extensions.")
# Contexts of torch that change them, private ones, and functions that give objects of any kind.
_OTHERS_OF_TORCH = re.compile(
    r"torch\.(.*\.)?(no_grad|enable_grad|set_grad_enabled|inference_mode|skip_init)"
    r"|torch\.(.*\.)?_.*|torch\.(.*\.)?load|torch\.compile"
    r"|torch\.(overrides|testing|fx|export|func|hub|jit|package|autograd\.(grad_mode|forward_ad))\..*"
)
# What the standard library has as contexts; other functions of it may give objects of any kind.
_OF_PYTHON = re.compile(
    r"(asyncio|bz2|cProfile|concurrent\.futures|decimal|gzip|io|logging|lzma|mmap|multiprocessing"
    r"|os|pathlib|selectors|shelve|socket|sqlite3|subprocess|tarfile|tempfile|threading|time|timeit"
    r"|tracemalloc|urllib|warnings|zipfile)\..*"
    r"|builtins\.open|contextlib\.(chdir|closing|redirect_stderr|redirect_stdout|suppress)"
)


def is_neutral(context: Value) -> bool:
    """Whether a context keeps the autograd mode, and the default device and dtype of new tensors.

    It keeps the device unless it is a `torch.device`.
    The effects of `__enter__` of a class of the project are those of its statements, which were
    executed. Contexts of kinds that the interpreter knows are left to the caller.
    """
    if isinstance(context, Instance):
        return isinstance(context.cls.lookup("__enter__"), Function) and _is_plain(context.cls)
    if isinstance(context, Unknown):
        return _is_neutral_library(context.library)
    if isinstance(context, LibraryObject):
        return _is_neutral_library(context.name)
    return isinstance(context, Context | Batches | Lazy | Sequence)  # or a progress bar


def _is_plain(klass: Class) -> bool:
    """Whether no library class gives a class of the project its behaviour as a context."""
    return not klass.has_unknown_base() and all(
        base in _BASES or base.startswith(_BASE_MODULES) for base in klass.library_bases()
    )


def _is_neutral_library(name: str) -> bool:
    """Whether no context that a library function or class gives changes them."""
    if name.startswith("torch."):
        return _OTHERS_OF_TORCH.fullmatch(name) is None
    return bool(_OF_PYTHON.fullmatch(name)) or (
        only_reads(name) and not name.startswith(("builtins.", "inspect."))
    )
