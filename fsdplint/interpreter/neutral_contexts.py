"""Context managers that certainly keep the autograd mode and the dtype of new tensors."""

from __future__ import annotations

import re
import sys

from fsdplint.interpreter.library_classes import only_reads
from fsdplint.interpreter.values import (
    Class,
    Function,
    Instance,
    LibraryObject,
    Symbol,
    Unknown,
    Value,
)

_BASES = frozenset({"object", "builtins.object", "abc.ABC"})
_BASE_MODULES = ("contextlib.", "typing.", "typing_extensions.")
# Contexts of torch that change them, and private or experimental ones, of which nothing is known.
_CHANGING = re.compile(
    r"torch\.(.*\.)?(no_grad|enable_grad|set_grad_enabled|inference_mode|skip_init)"
    r"|torch\.(.*\.)?_.*|torch\.(overrides|testing|fx|export|func|autograd\.(grad_mode|forward_ad))\..*"
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
    return not isinstance(context, Symbol)


def _is_plain(klass: Class) -> bool:
    """Whether no library class gives a class of the project its behaviour as a context."""
    return not klass.has_unknown_base() and all(
        base in _BASES or base.startswith(_BASE_MODULES) for base in klass.library_bases()
    )


def _is_neutral_library(name: str) -> bool:
    """Whether no context that a library function or class gives changes them."""
    package = name.partition(".")[0]
    if package == "torch":
        return _CHANGING.fullmatch(name) is None
    return package in sys.stdlib_module_names or only_reads(name)
