"""Parameters that `fully_shard` certainly refuses, or the first forward after it."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.interpreter.error_handling import catches_errors
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.scalars import is_dimensionless
from fsdplint.interpreter.torch_values import is_new_parameter
from fsdplint.interpreter.values import ModuleValue
from fsdplint.trace import Called, Event, Refused, Sharded
from fsdplint.trace.groups import Groups, sharded_by

_IGNORES = {"ignored_params", "**"}  # arguments that may leave parameters out


def note_scalars(run: Run, event: Sharded, call: Call) -> None:
    """Record that `fully_shard` raises an error because of scalar parameters."""
    if _IGNORES & set(event.options) or call.open or catches_errors(run, call.node):
        return
    found = [
        (f"{path}.{name}".lstrip("."), "a scalar")
        for path, part in _members(run, event, before=event)
        for name, held in part.attributes.items()
        if is_new_parameter(held) and is_dimensionless(held.get("data"))
        if not run.trace.family_escaped(part.id)
    ]
    if found:
        run.emit(Refused, call.node, module=event.module, reason="scalar", parameters=tuple(found))


def note_mixed_dtypes(run: Run, event: Called, call: Call) -> None:
    """Record that the first forward raises an error because a group has several dtypes."""
    if catches_errors(run, call.node) or any(run.trace.of(Refused)):
        return
    within = set(run.trace.submodules(event.module))
    for shard in run.trace.of(Sharded):
        if shard.module not in within or _IGNORES & set(shard.options):
            continue
        members = list(_members(run, shard))
        if len({part.dtype for _, part in members if part.dtype}) < 2:
            continue
        found = [
            (f"{path}.{_first_parameter(part)}".lstrip("."), f"torch.{part.dtype}")
            for path, part in members
            if part.dtype and _is_trained(run, part) and not run.trace.family_escaped(part.id)
        ]
        if len({dtype for _, dtype in found}) > 1:
            run.emit(
                Refused, call.node, module=shard.module, reason="dtypes", parameters=tuple(found)
            )
            return


def _first_parameter(layer: ModuleValue) -> str:
    """The name of a parameter of a layer of torch.nn."""
    kind = (layer.library_class or "").rpartition(".")[2]
    if kind == "MultiheadAttention":
        return "in_proj_weight"
    return "weight_ih_l0" if kind in ("RNN", "LSTM", "GRU") else "weight"


def _is_trained(run: Run, part: ModuleValue) -> bool:
    """Whether a module has own parameters that are certainly not frozen."""
    info = run.trace.modules[part.id]
    return info.own_parameters is True and not info.frozen and not part.some_frozen


def _members(
    run: Run, shard: Sharded, *, before: Event | None = None
) -> Iterator[tuple[str, ModuleValue]]:
    """The modules whose own parameters a `fully_shard` call takes, by their paths.

    That is certain for those that no code out of sight has got.
    """
    groups = Groups(run.trace)
    for target in sharded_by(shard):
        own = set(groups.members(target, before))
        for path, part in _parts(run, target, ""):
            held = run.objects.get(part)
            if part in own and isinstance(held, ModuleValue):
                yield path, held


def _parts(run: Run, module: str, path: str) -> Iterator[tuple[str, str]]:
    """A module and its submodules, with their paths."""
    stack, seen = [(path, module)], set()
    while stack:
        at, part = stack.pop()
        if part in seen:
            continue
        seen.add(part)
        yield at, part
        children = run.trace.modules[part].children
        stack += [(f"{at}.{name}".lstrip("."), child) for name, child in children.items()][::-1]
