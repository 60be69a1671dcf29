"""The program's modules, optimizers and state dicts: their names, and who owns what."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import values
from fsdplint.runtime.recorder.identity import IdentityMap, Owners
from fsdplint.runtime.recorder.recorder import Entry, Recorder
from fsdplint.trace import Layout, ModuleBuilt

_WRAPPERS = {
    "FullyShardedDataParallel": ("fsdp1", "_fsdp_wrapped_module"),
    "DistributedDataParallel": ("ddp", "module"),
    "OptimizedModule": ("compile", "_orig_mod"),
    "CheckpointWrapper": ("checkpoint", "_checkpoint_wrapped_module"),
    "OffloadWrapper": ("checkpoint", "_checkpoint_wrapped_module"),
}


def _wrapper(cls: type) -> tuple[str, str]:
    """What a class of torch, or a class of the program that derives from one, wraps and where."""
    of_torch = (base for base in cls.__mro__ if base.__module__.startswith("torch."))
    return next((_WRAPPERS[b.__name__] for b in of_torch if b.__name__ in _WRAPPERS), ("", ""))


class State:
    """A known state dict, recognized by its id and the id of its first tensor."""

    __slots__ = ("layout", "name", "of", "size", "tensor")

    def __init__(self, name: str, of: str, layout: Layout, value: Any) -> None:
        self.name, self.of, self.layout = name, of, layout
        self.size = len(value)
        first = next(values.tensors(value), None)
        self.tensor = id(first) if first is not None else None

    def is_in(self, value: Any) -> bool:
        if len(value) != self.size:
            return False
        first = next(values.tensors(value), None)
        return self.tensor == (id(first) if first is not None else None)


class Objects:
    """Names for objects, and the current tree of modules."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.counts: dict[str, int] = {}
        self.names: IdentityMap[str] = IdentityMap()
        # Where modules were built; written only for modules that occur in another event.
        self.built: IdentityMap[Entry[ModuleBuilt]] = IdentityMap()
        self.owners = Owners()
        self.written: dict[str, dict[str, Any]] = {}
        self.states: dict[int, State] = {}
        self.helper_states: dict[int, tuple[str, Any]] = {}
        self.parts_of_files: dict[int, State] = {}
        self.fsdp1_of: IdentityMap[weakref.ref[Any]] = IdentityMap()
        self.sharded: IdentityMap[str] = IdentityMap()
        self.tied: IdentityMap[set[str]] = IdentityMap()
        self.generation = 0
        self._described: IdentityMap[int] = IdentityMap()
        self._sites: dict[tuple[Any, ...], int] = {}
        self._sharded_within: dict[int, tuple[int, bool]] = {}
        self._materialized: dict[int, int] = {}

    def new_name(self, prefix: str) -> str:
        self.counts[prefix] = self.counts.get(prefix, 0) + 1
        return f"{prefix}{self.counts[prefix]}"

    # Modules --------------------------------------------------------------------------------

    def note_built(self, module: Any, frame: FrameType | None) -> None:
        """Store where a module is built, without writing it yet."""
        if self.built.get(module) is not None:
            return
        while (
            frame is not None
            and frame.f_code.co_name == "__init__"
            and frame.f_code.co_varnames
            and frame.f_locals.get(frame.f_code.co_varnames[0]) is module
        ):
            frame = frame.f_back
        self.built.set(module, self._recorder.prepare(ModuleBuilt, frame, module=""))

    def module(self, module: Any) -> str:
        """The name of a module; describes the module and its submodules in the record."""
        name = self.names.get(module)
        if name is None or self._described.get(module) != self.generation:
            self.describe(module)
            name = self.names.get(module)
        assert name is not None
        return name

    def describe(self, root: Any) -> None:
        """Write all modules under `root` that are new or have changed."""
        todo, seen = [root], set()
        order: list[Any] = []
        while todo:
            module = todo.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            order.append(module)
            children = [child for child in module._modules.values() if child is not None]
            todo.extend(reversed(children))
        for module in order:
            if self.names.get(module) is None:
                self._name(module)
        for module in order:
            self._write(module)
            for parameter in module._parameters.values():
                if parameter is not None:
                    self.owners.register(parameter, module)
            self._described.set(module, self.generation)

    def _name(self, module: Any) -> None:
        name = self.new_name("m")
        self.names.set(module, name)
        built = self.built.get(module)
        if built is not None:
            built.event.module = name
            built.event.on_meta = any(parameter.is_meta for parameter in module.parameters())
            built.write()

    def _write(self, module: Any) -> None:
        name = self.names.get(module)
        assert name is not None
        cls = original_class(module)
        wrapper, attribute = _wrapper(cls)
        inner = module._modules.get(attribute) if attribute else None
        children = {
            key: self.names.get(child)
            for key, child in module._modules.items()
            if child is not None and child is not inner
        }
        line: dict[str, Any] = {
            "t": "module",
            "id": name,
            "class_name": cls.__name__,
            "qualified_class": values.dotted_name(cls)
            if cls.__module__.startswith("torch.")
            else None,
            "children": children,
            "parameters": sum(1 for p in module._parameters.values() if p is not None),
            "trainable": sum(
                1 for p in module._parameters.values() if p is not None and p.requires_grad
            ),
            "container": cls.__name__ in ("ModuleList", "ModuleDict"),
            "wrapper": wrapper if inner is not None else "",
            "inner": self.names.get(inner) if inner is not None else None,
            "flat": "_flat_param" in module._parameters,
        }
        previous = self.written.get(name)
        if previous is None:
            line["key"] = self._key(module, cls)
        if previous is None or any(previous.get(k) != v for k, v in line.items() if k != "key"):
            self.written[name] = line
            self._recorder.write(line)

    def _key(self, module: Any, cls: type) -> list[Any]:
        """A key that is equal on all ranks: the class, the place of building, and a count."""
        built = self.built.get(module)
        where = built.place.span if built is not None else None
        key = (cls.__name__, tuple(where) if where else None)
        self._sites[key] = self._sites.get(key, 0) + 1
        return [cls.__name__, where, self._sites[key]]

    def invalidate(self) -> None:
        """The module tree has changed: describe modules again when they occur next."""
        self.generation += 1

    def fsdp1_wrapper(self, module: Any) -> Any | None:
        """The FSDP1 wrapper directly around a module, if there is one."""
        ref = self.fsdp1_of.get(module)
        return ref() if ref is not None else None

    def summons(self) -> bool:
        """Whether `summon_full_params` is active for an FSDP1 wrapper."""
        wrappers = (ref() for _, ref in self.fsdp1_of.items())
        states = (getattr(wrapper, "training_state", None) for wrapper in wrappers)
        return any(getattr(state, "name", "") == "SUMMON_FULL_PARAMS" for state in states)

    def sharded_within(self, module: Any) -> bool:
        """Whether a module, or a part of it, is sharded."""
        known = self._sharded_within.get(id(module))
        if known is None or known[0] != self.generation:
            found = any(self.sharded.get(part) is not None for part in module.modules())
            known = self._sharded_within[id(module)] = (self.generation, found)
        return known[1]

    def on_meta(self, module: Any) -> bool:
        """Whether a parameter that `fully_shard` has sharded is on the meta device."""
        if self._materialized.get(id(module)) == self.generation:
            return False  # a materialized module is not examined in every step
        if not any(p.is_meta and hasattr(p, "placements") for p in module.parameters()):
            self._materialized[id(module)] = self.generation
            return False
        return any(self.sharded.get(part) == "fsdp2" for part in module.modules())

    # Parameters and optimizers ----------------------------------------------------------------

    def owner_names(self, parameters: Iterable[Any]) -> tuple[list[str], int]:
        """The modules that own these parameters, and the number of parameters without owner."""
        names: dict[str, None] = {}
        unknown = 0
        for parameter in parameters:
            module = self.owners.get(parameter)
            if module is None:
                unknown += 1
                continue
            name = self.names.get(module)
            if name is None:
                self.describe(module)
                name = self.names.get(module)
            if name is not None:
                names[name] = None
        return list(names), unknown

    def stale_modules(self, parameters: Iterable[Any]) -> list[str]:
        """The sharded modules whose parameters from before the sharding are among these."""
        owners: list[Any] = []
        for parameter in parameters:
            owner = None if hasattr(parameter, "placements") else self.owners.get(parameter)
            if owner is not None:
                if not any(own is parameter for own in owner._parameters.values()):
                    owners.append(owner)
        if not owners:
            return []
        sharded = {id(part) for root, _ in self.sharded.items() for part in root.modules()}
        names = [self.module(owner) for owner in owners if id(owner) in sharded]
        return list(dict.fromkeys(names))

    def is_local_gradient(self, tensor: Any) -> bool:
        """Whether a plain tensor is this rank's part of the gradient of a sharded parameter."""
        return self.holder_of_gradient(tensor) is not None

    def holder_of_gradient(self, tensor: Any) -> Any:
        """The sharded module of whose gradient a plain tensor is this rank's part, or None."""
        address = tensor.data_ptr() if type(tensor).__name__ == "Tensor" else 0
        if not address:
            return None
        for root, kind in self.sharded.items():
            strategy = getattr(getattr(root, "sharding_strategy", None), "name", "")
            for parameter in root.parameters() if strategy != "NO_SHARD" else ():
                held = parameter.grad
                held = held if kind == "fsdp1" else getattr(held, "_local_tensor", None)
                if held is not None and held.data_ptr() == address and held.shape == tensor.shape:
                    return root
        return None

    def are_local_parts(self, tensors: Iterable[Any]) -> bool:
        """Whether plain tensors are all this rank's parts of parameters that FSDP2 shards."""
        parts = {
            parameter._local_tensor.data_ptr()
            for root, kind in self.sharded.items()
            for parameter in (root.parameters() if kind == "fsdp2" else ())
            if values.is_sharded(parameter) and hasattr(parameter, "_local_tensor")
        }
        addresses = [one.data_ptr() for one in tensors if one.numel() > 0]
        return bool(addresses) and parts.issuperset(addresses)

    def notice_parameters(self) -> None:
        """Register the current parameters of the known modules, for example gathered ones."""
        for module, _ in self.names.items():
            for parameter in getattr(module, "_parameters", {}).values():
                if parameter is not None:
                    self.owners.register(parameter, module)

    def optimizer(self, optimizer: Any) -> str:
        return self._name_of(optimizer, "o")

    def scaler(self, scaler: Any) -> str:
        return self._name_of(scaler, "g")

    def scheduler(self, scheduler: Any) -> str:
        return self._name_of(scheduler, "l")

    def _name_of(self, thing: Any, prefix: str) -> str:
        name = self.names.get(thing)
        if name is None:
            name = self.new_name(prefix)
            self.names.set(thing, name)
        return name

    # State dicts --------------------------------------------------------------------------------

    def new_state(self) -> str:
        return self.new_name("s")

    def remember_state(self, name: str, of: str, layout: Layout, value: Any) -> None:
        if isinstance(value, dict):
            self.states[id(value)] = State(name, of, layout, value)

    def state(self, value: Any) -> State | None:
        found = self.states.get(id(value))
        return found if found is not None and found.is_in(value) else None

    def remember_helper_state(self, name: str, value: Any) -> None:
        """Remember the state of a scheduler or scaler; it is kept so that its id stays."""
        if isinstance(value, dict):
            self.helper_states[id(value)] = (name, value)

    def helper_states_in(self, value: Any, depth: int = 0) -> list[str]:
        """The names of the known states of schedulers and scalers in a nested dict."""
        if not isinstance(value, dict):
            return []
        if id(value) in self.helper_states:
            return [self.helper_states[id(value)][0]]
        parts = value.values() if depth < 4 else ()
        return [name for part in parts for name in self.helper_states_in(part, depth + 1)]

    def remember_file(self, name: str, value: Any, depth: int = 0) -> None:
        """Remember the dicts in a file that was read, by the name of its state."""
        if isinstance(value, dict) and depth < 3:
            self.parts_of_files[id(value)] = State(name, "", Layout.UNKNOWN, value)
            for part in value.values():
                self.remember_file(name, part, depth + 1)

    def file_of(self, value: Any) -> str | None:
        """The name of the file that a dict comes from, if it is known."""
        found = self.parts_of_files.get(id(value)) if isinstance(value, dict) else None
        return found.name if found is not None and found.is_in(value) else None

    def states_in(self, value: Any) -> tuple[list[State], list[Any]]:
        """The known state dicts and the modules in a nested value."""
        import torch

        states: list[State] = []
        modules: list[Any] = []
        todo, steps = [(value, 0)], 0
        while todo and steps < 1000:
            item, depth = todo.pop()
            steps += 1
            if isinstance(item, torch.nn.Module):
                modules.append(item)
            elif isinstance(item, dict):
                known = self.state(item)
                if known is not None:
                    states.append(known)
                elif depth < 4:
                    todo.extend((part, depth + 1) for part in item.values())
            elif isinstance(item, (list, tuple)) and depth < 4:
                todo.extend((part, depth + 1) for part in item)
        return states, modules


def original_class(module: Any) -> type:
    """The class that the user wrote: fully_shard replaces it by a subclass FSDP<Name>."""
    cls = type(module)
    fsdp = sys.modules.get("torch.distributed.fsdp")
    base = getattr(fsdp, "FSDPModule", None)
    if base is not None and isinstance(module, base):
        for parent in cls.__mro__:
            if parent is not cls and not issubclass(parent, base) and parent is not base:
                return parent
    return cls
