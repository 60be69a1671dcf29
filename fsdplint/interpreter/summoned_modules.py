"""Modules that run while FSDP1's `summon_full_params` holds their parameters."""

from __future__ import annotations

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Context, ModuleValue, Value, gathers
from fsdplint.trace import Fsdp1Used, PartialRead, WeightsSet

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


def note_lost_edits(run: Run, block: Context) -> None:
    """Record that a block without `writeback` ends, and has only changed gathered parameters."""
    if block.kind != "summon_full_params" or block.use is None:
        return
    if _constant(block, "writeback", True) is not False or not block.certain:
        return
    use, *events = run.trace.events[block.use :]
    events = [one for one in events if not isinstance(one, PartialRead)]
    edits = [one for one in events if isinstance(one, WeightsSet)]
    if not edits or len(edits) < len(events) or not isinstance(use, Fsdp1Used):
        return
    if run.gradients_used_at > edits[0].index:
        return  # code out of sight may use the parameters
    modules = [run.objects.get(name) for edit in edits for name in edit.modules]
    use.edits_lost = all(edit.in_place and not edit.same_values for edit in edits) and all(
        isinstance(one, ModuleValue) and _has_gathered(run, block, one) for one in modules
    )


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
