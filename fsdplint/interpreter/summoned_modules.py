"""Modules that run while FSDP1's `summon_full_params` holds their parameters."""

from __future__ import annotations

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Context, ModuleValue, Value, gathers

Details = dict[str, bool | int | None]  # of a `Called` event, by the names of its fields


def summoned_details(run: Run, module: ModuleValue) -> Details:
    """What a `Called` event says of the blocks of `summon_full_params` around it."""
    if not gathers(run.contexts):
        return {}
    block = next(c for c in reversed(run.contexts) if gathers([c]))
    assert isinstance(block, Context)
    if not _has_gathered(run, block, module):
        return {"summoned": True}
    written_back = _constant(block, "writeback", True)
    return {"summoned": True, "summoned_by": block.use, "written_back": written_back}


def _has_gathered(run: Run, block: Context, module: ModuleValue) -> bool:
    """Whether a block has certainly gathered a module, on the device."""
    root = block.module
    if root is None or not block.certain or "**" in block.details:
        return False
    if _constant(block, "offload_to_cpu", False) is not False:
        return False
    recurse = _constant(block, "recurse", True)
    if recurse is True:
        return run.trace.contains(root.id, module.id)
    return recurse is False and root.id == module.id


def _constant(block: Context, name: str, default: bool) -> bool | None:
    """The value of an argument; None if it is not known."""
    given: Value | None = block.details.get(name)
    if given is None:
        return default
    return given.value if isinstance(given, Const) and isinstance(given.value, bool) else None
