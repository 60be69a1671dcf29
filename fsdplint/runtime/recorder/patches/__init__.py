"""Watches functions of torch, with one module for each area."""

from __future__ import annotations

import importlib

_AREAS = (
    "imports",
    "launcher_arguments",
    "spawning",
    "groups",
    "randomness",
    "modules",
    "sharding",
    "tensor_parallel",
    "calls",
    "gradients",
    "gradient_scaling",
    "optimizers",
    "schedulers",
    "state_dicts",
    "files",
    "collectives",
    "parameter_edits",
    "parameter_marks",
    "data",
    "tensors",
    "loader_batches",
    "outside_files",
)
_installed = False


def install() -> None:
    """Install all watchers, once a process, before the program imports anything from torch."""
    global _installed
    if _installed:
        return
    _installed = True
    from fsdplint.runtime.recorder.patching import apply_replacements

    for area in _AREAS:
        importlib.import_module(f"fsdplint.runtime.recorder.patches.{area}").install()
    apply_replacements()
