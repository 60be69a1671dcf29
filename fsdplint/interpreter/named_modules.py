"""Modules of the project that texts name: `"trainers.flow"`, `"trainers.flow.Trainer"`, `".flow"`.

A table of such texts, read under an unknown name, chooses what a program imports.
"""

from __future__ import annotations

import re

from fsdplint.interpreter.imports import find_module
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Dict, Sequence, Value

_PATH = re.compile(r"\.*[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?::[A-Za-z_][\w.]*)?")


def names_module(run: Run, value: Value) -> bool:
    """Whether a value is the name of a module of the project or of something in one, or has it."""
    return bool(_files_named(run, value))


def leads_to_fsdp(run: Run, value: Value) -> bool:
    """Whether a value names a module of the project that may use FSDP."""
    return any(map(run.project.may_use_fsdp, _files_named(run, value)))


def _files_named(run: Run, value: Value) -> list[str]:
    """The files of the modules that a value names."""
    value = run.settle(value)
    if isinstance(value, Sequence | Dict):
        parts = value.items if isinstance(value, Sequence) else list(value.items.values())
        return [] if value.open else [file for one in parts for file in _files_named(run, one)]
    text = value.value if isinstance(value, Const) else None
    if not isinstance(text, str) or not ("." in text or ":" in text) or not _PATH.fullmatch(text):
        return []
    module = text.partition(":")[0]
    names = [module, module.rpartition(".")[0]] if ":" not in text else [module]
    found = (find_module(run, name) for name in names if name.strip("."))
    return [one[0] for one in found if one is not None][:1]
