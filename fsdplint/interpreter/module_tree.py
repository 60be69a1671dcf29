"""The tree of modules, and how its parts are sharded at this point."""

from __future__ import annotations

from collections.abc import Mapping

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, ModuleValue, Unknown, Value, constant, gathers
from fsdplint.trace import Checkpointed, Sharding, Wrapped
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.wrappers import has_unknown_units, shards

# A part of an unknown class: the class of the modules whose class name passes a test.
NAMED = "*named"


def add_child(run: Run, parent: ModuleValue, name: str, child: ModuleValue) -> None:
    if child is parent:
        return
    for part in run.trace.submodules(child.id):
        # drop a reference back to the parent, so that the tree has no circle
        below = run.trace.modules[part].children
        for back in [key for key, held in below.items() if held == parent.id]:
            del below[back]
    children = run.trace.modules[parent.id].children
    key = name
    number = 0
    while name == "*" and key in children and children[key] != child.id:
        number += 1
        key = f"*{number}"
    children[key] = child.id


def take_parts(run: Run, module: ModuleValue, value: Unknown, holder: ModuleValue) -> None:
    """What was read from a part before it became a module is below this module."""
    children = run.trace.modules[holder.id].children
    for part in value.parts.values():
        if not isinstance(part, Unknown) or part.part_of is not holder:
            continue
        part.part_of = module
        below = part.refined
        if not isinstance(below, ModuleValue):
            take_parts(run, module, part, holder)
            continue
        for key in [key for key, child in children.items() if child == below.id]:
            del children[key]
            add_child(run, module, "*" if key.startswith("*") else key, below)


def note_keys(run: Run, held: Mapping[object, Value]) -> None:
    """Note the keys of modules that a dict of the program holds: they name its models."""
    for key, value in held.items():
        if isinstance(value, ModuleValue) and isinstance(key, str | int):
            module = run.trace.modules[run.trace.unwrap(value.id)]
            module.key = module.key or repr(key)


def child_values(run: Run, module: ModuleValue) -> list[ModuleValue]:
    """The known direct children, in order of registration."""
    if module.wrapper and module.inner is not None:
        return [module.inner]
    values = [run.objects.get(c) for c in run.trace.modules[module.id].children.values()]
    return [v for v in values if isinstance(v, ModuleValue)]


def root_path(run: Run, module: ModuleValue) -> str | None:
    """The path of a module in its own tree; None if the names in it may have changed since."""
    changed = run.trace.family_escaped(module.id) or any(run.trace.of(Checkpointed))
    return None if changed else ""


def named_children(
    run: Run, module: ModuleValue, path: str | None
) -> list[tuple[str | None, ModuleValue]]:
    """The known direct children, each with its path, of a module with a path (None: unknown).

    An element that stands for several has no path, and so have the elements behind it.
    """
    if module.wrapper and module.inner is not None:
        return [(None, module.inner)]
    found: list[tuple[str | None, ModuleValue]] = []
    several = False
    for name, child_id in run.trace.modules[module.id].children.items():
        child = run.objects.get(child_id)
        if not isinstance(child, ModuleValue):
            continue
        one = not run.trace.modules[child_id].repeated and not child.stands_for_parts
        several = several or (not one and name.isdigit())
        known = path is not None and one and "*" not in name and not (several and name.isdigit())
        found.append((f"{path}.{name}".lstrip(".") if known else None, child))
    return found


def sharding_of_state(run: Run, module: ModuleValue) -> Sharding | None:
    """How the state of a module is sharded: by its parts, or by the FSDP2 unit that it belongs to.

    In a forward the unit may be gathered, so that only the parts count.
    """
    inside = sharding_inside(run, module)
    if inside is None and not run.calling and Groups(run.trace).shards_parameters(module.id):
        return Sharding.FSDP2
    return inside


def sharding_inside(run: Run, module: ModuleValue) -> Sharding | None:
    """How the module or a submodule is sharded at this point."""
    seen: set[str] = set()
    stack = [module]
    while stack:
        current = stack.pop()
        if current.id in seen:
            continue
        seen.add(current.id)
        if current.wrapper == "fsdp1":
            return Sharding.FSDP1
        if current.sharded:
            return Sharding.FSDP2
        stack.extend(child_values(run, current))
    return None


_WHOLE = "*whole parameters"  # an attribute of the module that a sharding call got


def note_whole_parameters(run: Run, owner: str, *, whole: bool) -> None:
    """Note that the program put whole parameters in place of the sharded ones, or these back."""
    module = run.objects.get(owner)
    if isinstance(module, ModuleValue):
        module.attributes[_WHOLE] = Const(whole)


def has_whole_parameters(run: Run, module: ModuleValue) -> bool:
    """Whether the program put whole parameters in place of the sharded ones of a module.

    A module whose parameters all are those of units inside has none of its own.
    """
    groups = Groups(run.trace)
    if _is_whole(run, groups.owner(module.id)):
        return True
    holding = (
        one
        for one in run.trace.submodules(module.id)
        if one in run.trace.modules and run.trace.modules[one].own_parameters is not False
    )
    owners = {groups.owner(one) for one in holding}
    return bool(owners) and all(_is_whole(run, owner) for owner in owners)


def _is_whole(run: Run, owner: str | None) -> bool:
    value = run.objects.get(owner or "")
    return isinstance(value, ModuleValue) and constant(value.attributes.get(_WHOLE)) is True


def communicates(run: Run, module: ModuleValue) -> bool:
    """Whether a forward of the module gathers parameters, so that it needs all ranks."""
    if module.framework or sharding_inside(run, module) is not None:
        return True
    return _holds_unit_of_policy(run, module)


def _holds_unit_of_policy(run: Run, module: ModuleValue) -> bool:
    """Whether a policy of FSDP1 has wrapped the module or a part of it.

    Without such units, the forward of the module inside of a wrapper would have shards alone, so
    that it fails. A policy whose units are not known has some in it. In a block of
    `summon_full_params`, the units are gathered already.
    """
    if gathers(run.contexts):
        return False
    wrappers = [one for one in run.trace.of(Wrapped) if shards(one)]
    if any(one.inner == module.id and has_unknown_units(one) for one in wrappers):
        return True
    units = {unit for one in wrappers for unit in one.units or ()}
    return bool(units) and not units.isdisjoint(run.trace.submodules(module.id))


def sharding_of_parameters(run: Run, parameters: Value) -> Sharding | None:
    """How some of the parameters, or their gradients, are sharded at this point."""
    modules: tuple[ModuleValue, ...] = getattr(parameters, "modules", ())
    groups = Groups(run.trace)
    for module in modules:
        of_framework = module.framework == "fsdp2"
        if of_framework or groups.owner(module.id) is not None:  # by what it is part of, perhaps
            return Sharding.FSDP2
        inside = sharding_inside(run, module)
        if inside is not None:
            return inside
    return None
