"""Parameter groups: the sharded module whose group holds the own parameters of a module.

FSDP2 makes one parameter group per `fully_shard` call: the parameters of the module that no earlier
call has sharded. They are unsharded only while `__call__` (or a registered method) of that module
runs, or between `unshard()` and the next `reshard()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from fsdplint.trace import (
    Called,
    Event,
    Gathered,
    MethodRegistered,
    ModuleAttached,
    ModuleBuilt,
    Sharded,
    Sharding,
    Trace,
    Wrapped,
)

Shard = Sharded | Wrapped


def shard_events(
    trace: Trace, *, after: Event | None = None, before: Event | None = None
) -> list[Shard]:
    """The events that shard modules with FSDP2 or FSDP1, optionally after or before an event."""
    start = 0 if after is None else after.index + 1
    end = len(trace.events) if before is None else before.index
    return [event for event in trace.events[start:end] if isinstance(event, Shard)]


def sharded_by(event: Shard) -> tuple[str, ...]:
    """The modules that an event shards (FSDP1: the wrapper)."""
    return (event.group or (event.module,)) if isinstance(event, Sharded) else (event.module,)


def shards_unknown_part(trace: Trace) -> bool:
    """Whether a sharding may be of a part of any model.

    Its module is unknown, is never called by itself, and belongs to no known module.
    """
    known = {event.module for event in trace.of(ModuleBuilt)}
    known |= {trace.unwrap(event.module) for event in trace.of(Called)}
    return any(
        not trace.module(module).children_known and module not in known
        for event in shard_events(trace)
        for module in map(trace.unwrap, sharded_by(event))
        if not trace.ancestors(module)
    )


class Groups:
    """The groups of one trace. Build it once per check; it indexes the trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def _parents(self) -> dict[str, list[str]]:
        parents: dict[str, list[str]] = {}
        for name, info in self.trace.modules.items():
            below = list(info.children.values())
            if info.inner is not None:
                below.append(info.inner)
            for child in below:
                parents.setdefault(child, []).append(name)
        return parents

    @cached_property
    def _nested_calls(self) -> dict[int, list[Called]]:
        nested: dict[int, list[Called]] = {}
        for event in self.trace.of(Called):
            if event.inside is not None:
                nested.setdefault(event.inside, []).append(event)
        return nested

    def ancestors(self, module: str) -> Iterator[str]:
        """The modules that contain `module`, nearest first, without the module."""
        seen = {module}
        level = [module]
        while level:
            level = [p for m in level for p in self._parents.get(m, ()) if p not in seen]
            for parent in level:
                if parent not in seen:
                    seen.add(parent)
                    yield parent

    def owner(self, module: str, before: Event | None = None) -> str | None:
        """The FSDP2 module whose group holds the module's own parameters, or None."""
        sharded = self.trace.shardings(before)
        for candidate in (module, *self.ancestors(module)):
            if candidate in sharded:
                return candidate if sharded[candidate] is Sharding.FSDP2 else None
        return None

    def shards_parameters(self, module: str, before: Event | None = None) -> bool:
        """Whether the group of a module, or of one around it, certainly shards its parameters.

        A sharding leaves out those that it ignores, and those of modules that come later.
        """
        owner = self.owner(module, before)
        if owner is None or self.without_parameters(module, before):
            return False
        path = {module, *self.ancestors(module)}
        family = path | set(self.trace.submodules(module))
        last = self.trace.events[-1] if before is None else before
        for shard in self.shards(owner):
            if "**" in shard.options or family & set(shard.ignored):
                return False
            if not shard.ignored and any(name.startswith("ignored_") for name in shard.options):
                return False
            added = self.trace.after(shard, ModuleAttached)
            if any(path & set(event.new) for event in added if event.index <= last.index):
                return False
        return True

    def members(self, module: str, before: Event | None = None) -> list[str]:
        """The module and its submodules that belong to no nested group."""
        sharded = self.trace.shardings(before)
        found: dict[str, None] = {}
        stack = [module]
        while stack:
            current = stack.pop()
            info = self.trace.modules.get(current)
            if info is None or current in found or (current != module and current in sharded):
                continue
            found[current] = None
            below = list(info.children.values())
            if info.inner is not None:
                below.append(info.inner)
            stack.extend(reversed(below))
        return list(found)

    def without_parameters(self, module: str, before: Event | None = None) -> bool:
        """Whether the own group of the module is certainly empty."""
        members = [self.trace.modules[m] for m in self.members(module, before)]
        return all(m.own_parameters is False and m.children_known for m in members)

    def holds_parameters(self, module: str, before: Event | None = None) -> bool:
        """Whether the own group of a module certainly has parameters."""
        return any(self.parts_with_parameters(module, before))

    def parts_with_parameters(self, module: str, before: Event | None = None) -> Iterator[str]:
        """The members of the own group of a module that certainly have parameters.

        A member whose parts are not known may stand for them.
        """
        for member in self.members(module, before):
            if self.trace.modules[member].own_parameters:
                yield member
            elif member == module and self._has_unknown_parameters(module, before):
                yield member

    def _has_unknown_parameters(self, module: str, before: Event | None) -> bool:
        """Whether a group has parameters of parts that are not known.

        A model of Transformers has an embedding beside its blocks. Any other module is sharded
        itself, and has those of all parts where no part is sharded.
        """
        info = self.trace.modules[module]
        sharded = self.trace.shardings(before)
        if info.children_known or info.own_parameters is False:
            return False
        below = [one for one in self.trace.submodules(module) if one != module and one in sharded]
        if (info.qualified_class or "").startswith("transformers."):
            return all(self.trace.modules[one].block for one in below)
        return module in sharded and not below

    def hold_all_parameters(self, module: str) -> bool:
        """Whether FSDP2's groups certainly hold all parameters of a module: its own, and those of
        its parts, unless they are parameters that a sharding ignores."""
        if self.owner(module) is not None:
            return True
        sharded = self.trace.shardings()
        kinds = {sharded[one] for one in self.trace.submodules(module) if one in sharded}
        return kinds == {Sharding.FSDP2} and self.without_parameters(module)

    # Calls ------------------------------------------------------------------------------------

    def enclosing_calls(self, event: Called) -> Iterator[Called]:
        """The calls around this one, innermost first, without this one."""
        current: Called | None = event
        while current is not None and current.inside is not None:
            outer = self.trace.events[current.inside]
            current = outer if isinstance(outer, Called) else None
            if current is not None:
                yield current

    def nested_calls(self, event: Called) -> Iterator[Called]:
        """The calls inside this one, in order, without this one."""
        for inner in self._nested_calls.get(event.index, ()):
            yield inner
            yield from self.nested_calls(inner)

    def is_registered(self, module: str, method: str, before: Event) -> bool:
        """Whether `register_fsdp_forward_method` was called for the method before the event.

        It does nothing to a module that is not sharded yet.
        """
        return any(
            event.module == module
            and event.method == method
            and self.trace.shardings(event).get(module) is Sharding.FSDP2
            for event in self.trace.before(before, MethodRegistered)
        )

    def enters(self, event: Called, module: str) -> bool:
        """Whether a call enters `module`, directly or by a wrapper (torch.compile, DDP)."""
        return event.module == module or self._through_wrapper(event, module)

    def _through_wrapper(self, event: Called, module: str) -> bool:
        info = self.trace.modules.get(event.module)
        inner = info.inner if info is not None else None
        if inner is None or event.via not in ("call", "forward"):
            return False
        return self.trace.unwrapped_to(inner, (module,)) is not None

    def gathers(self, event: Called, module: str | None = None) -> bool:
        """Whether this call runs the hooks that gather the group of `module`.

        module: the called module by default.
        """
        if module is not None and event.module != module:
            return self._through_wrapper(event, module)
        return event.via == "call" or self.is_registered(event.module, event.via, event)

    def is_gathered(self, module: str, at: Called) -> bool:
        """Whether an enclosing call or `unshard()` has gathered the group of `module` at a call."""
        if any(self.gathers(outer, module) for outer in self.enclosing_calls(at)):
            return True
        explicit = [e for e in self.trace.before(at, Gathered) if e.module == module]
        return bool(explicit) and explicit[-1].gathered

    # Shard calls ------------------------------------------------------------------------------

    def name(self, module: str) -> str:
        """The module for messages: its class, if that is known, or its name in the module above."""
        info = self.trace.modules[module]
        if info.qualified_class is not None or info.class_name[:1].isupper():
            return f"`{info.class_name}`"
        above = self._parents.get(module, ())
        names = (
            name
            for one in above
            for name, part in self.trace.modules[one].children.items()
            if part == module and name.isidentifier()
        )
        name = next(names, "")
        return f"`{name}`" if name else "the module" if above else "the model"

    def shards(self, module: str) -> list[Shard]:
        """The events that sharded this module itself, in order."""
        return [event for event in shard_events(self.trace) if module in sharded_by(event)]

    def replaces(self, event: Shard, modules: Iterable[str]) -> bool:
        """Whether a sharding replaces parameters in these modules."""
        if isinstance(event, Sharded):
            targets = sharded_by(event)
        elif event.options.get("use_orig_params", "**" in event.options) in (False, None):
            targets = (event.inner,)
        else:
            return False
        held = {part for module in modules for part in self.trace.submodules(module)}
        held.difference_update(self.trace.submodules(*event.ignored))
        ignores = any(name.startswith("ignored_") for name in event.options)
        if ignores and not held & set(targets):
            return False
        return any(
            member in held and self.trace.module(member).own_parameters is not False
            for target in targets
            for member in self.members(target, before=event)
        )

    def taken_parts(self, event: Sharded) -> set[str]:
        """The modules whose own parameters this `fully_shard` call shards (and replaces)."""
        return {m for target in sharded_by(event) for m in self.members(target, before=event)}
