"""Which ranks hold which part of each parameter, as a line of this rank's record.

FSDP1's flat parameters and FSDP2's DTensors are described in the same form, so that a program can
be compared with its migration. A unit is a set of parameters that are gathered together:

    name        of the sharded module, "" for a root; None for parameters that are not sharded
    over        the ranks that share one copy: each holds a part; one rank holds all of it
    copies      the ranks that hold the same part and average its gradients
    flat        whether the parameters are sharded as one flat tensor (FSDP1), not each by its rows
    dims        the dimensions along which the parameters are sharded, if they are not flat
    offload     whether the parts stay in the memory of the CPU
    divide      the divisor of the sum of the ranks' gradients, if it is known
    bytes       bytes of this rank's part, including padding
    backward, step   how the unit is held when the backward begins and when the optimizer steps:
                "whole", "sharded", or "over N" ranks
    inputs, outputs   the types of the floating-point tensors that its modules get and give
    parameters  name: [shape, type, whether it is trained]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fsdplint.runtime.recorder import values
from fsdplint.runtime.recorder.final_state import FinalState, named_tensors, plain_name
from fsdplint.runtime.recorder.identity import IdentityMap
from fsdplint.runtime.recorder.objects import Objects
from fsdplint.runtime.recorder.recorder import Recorder

Unit = dict[str, Any]
WHOLE, SHARDED = "whole", "sharded"


class Layouts:
    """The layout of the units in the current step."""

    def __init__(self, recorder: Recorder, objects: Objects, final_state: FinalState) -> None:
        self._recorder = recorder
        self._objects = objects
        self._final_state = final_state
        self._written: dict[str, Any] | None = None
        self._unit_of: dict[int, str | None] = {}
        self._held: dict[str, list[list[Any]]] = {}
        self._roots: tuple[tuple[int, int], list[Any]] | None = None
        self._at_backward: IdentityMap[str] = IdentityMap()
        self._inputs: IdentityMap[set[str]] = IdentityMap()
        self._outputs: IdentityMap[set[str]] = IdentityMap()
        self._offloaded: IdentityMap[bool] = IdentityMap()
        self._wrapping: list[bool] = []

    # Emulated devices offload nothing: record what the program asks for.

    def enter_wrapper(self, wrapper: Any, offload: bool) -> None:
        """An FSDP1 wrapper is being built; wrappers that its policy adds inherit `offload`."""
        self._wrapping.append(offload or any(self._wrapping))
        self.note_offload(wrapper, self._wrapping[-1])

    def exit_wrapper(self) -> None:
        """The wrapper has been built."""
        self._wrapping.pop()

    def note_offload(self, module: Any, offload: bool) -> None:
        """A module is sharded, with or without offload of its parameters to the CPU."""
        if offload:
            self._offloaded.set(module, True)

    def note_inputs(self, module: Any, value: Any) -> None:
        """The forward of a sharded module gets this value, after any cast of its inputs."""
        _add_types(self._inputs, module, value)

    def note_outputs(self, module: Any, value: Any) -> None:
        """A sharded module has returned this value, after any cast of its outputs."""
        _add_types(self._outputs, module, value)

    def before_backward(self) -> None:
        """A backward is about to begin."""
        for module, kind in self._objects.sharded.items():
            for group in groups_of(module) if kind == "fsdp2" else _handles(module):
                # One of several backward passes of a step is sufficient.
                if self._at_backward.get(group) != WHOLE:
                    self._at_backward.set(group, _state(group))

    def before_step(self, step: int, optimizer: Any, name: str) -> None:
        """Before an optimizer's step, write the layout if it has changed."""
        units, names = [], {}
        self._unit_of = {}
        models = self._models()
        for index, model in enumerate(models):
            for unit, ids in self._units(model, f"{index}:" if len(models) > 1 else ""):
                units.append(unit)
                names.update(ids)
                self._unit_of.update(dict.fromkeys(ids, unit["name"]))
        groups = [
            sorted({name for p in group["params"] for name in names.get(id(p), ())})
            for group in optimizer.param_groups
        ]
        layout = {
            "units": units,
            "groups": {**(self._written or {}).get("groups", {}), name: groups},
        }
        if layout != self._written:
            self._written = layout
            self._recorder.write({"t": "layout", "step": step, **layout})

    def unit_of(self, parameter: Any) -> str | None:
        """The name of the unit of a parameter in this step; None if it is in none."""
        return self._unit_of.get(id(parameter))

    def note_held(self, step: int, optimizer: str, units: list[list[Any]]) -> None:
        """After an optimizer's step, write what the units hold for it, if that has changed.

        units: for each unit its name, and the bytes of its gradients and of its optimizer state.
        """
        if units != self._held.get(optimizer):
            self._held[optimizer] = units
            self._recorder.write(
                {"t": "held", "step": step, "optimizer": optimizer, "units": units}
            )

    def after_step(self) -> None:
        """The step has ended, and the next one begins."""
        for by_module in (self._at_backward, self._inputs, self._outputs):
            by_module.clear()

    def _models(self) -> list[Any]:
        now = self._objects.generation, len(self._objects.written)
        if self._roots is None or self._roots[0] != now:
            self._roots = None  # it would keep dropped models
            self._roots = now, self._final_state.models()
        return self._roots[1]

    def _units(self, model: Any, prefix: str) -> Iterator[tuple[Unit, dict[int, list[str]]]]:
        """The units of a model, each with its parameters' names by their identity."""
        paths = {id(module): path for path, module in model.named_modules()}
        taken: set[int] = set()
        for path, module in model.named_modules():
            kind = self._objects.sharded.get(module)
            for handle in _handles(module) if kind == "fsdp1" else ():
                inner = f"{path}." if path else ""
                ids = {
                    parameter: [prefix + plain_name(f"{inner}{name}") for name in found]
                    for parameter, found in _flat_names(handle).items()
                }
                taken.update(ids)
                unit = _flat_unit(handle, ids[id(handle.flat_param)], module)
                name = prefix + plain_name(path)
                yield self._describe_unit(unit, name, handle, module), ids
            for group in groups_of(module) if kind == "fsdp2" else ():
                if group.modules[0] is not module:
                    continue  # written with the first of its modules
                ids = {}
                for part in group.fsdp_params:
                    info = part._module_info
                    at = paths.get(id(info.module), "")
                    name = plain_name(f"{at}.{info.param_name}" if at else info.param_name)
                    ids[id(part.sharded_param)] = [prefix + name]
                    current = info.module._parameters.get(info.param_name)
                    taken.update((id(part.sharded_param), id(current)))
                unit = _group_unit(group, [name for (name,) in ids.values()])
                yield (
                    self._describe_unit(unit, prefix + plain_name(path), group, module),
                    ids,
                )
        yield from _other_units(model, prefix, taken)

    def _describe_unit(self, unit: Unit, name: str, group: Any, module: Any) -> Unit:
        modules = getattr(group, "modules", None) or (group._fully_sharded_module,)
        cut = len(unit["over"]) > 1
        return {
            **unit,
            "name": name,
            "offload": unit["offload"] or self._offloaded.get(module) is True,
            "backward": (self._at_backward.get(group) or "") if cut else WHOLE,
            "step": _state(group) if cut else WHOLE,
            "inputs": _types_of(self._inputs, modules),
            "outputs": _types_of(self._outputs, modules),
        }


def _add_types(by_module: IdentityMap[set[str]], module: Any, value: Any) -> None:
    found = by_module.get(module)
    if found is None:
        found = set()
        by_module.set(module, found)
    for tensor in values.tensors(value, limit=100):
        if tensor.is_floating_point():
            found.add(str(tensor.dtype))


def _types_of(by_module: IdentityMap[set[str]], modules: Iterable[Any]) -> list[str]:
    return sorted({name for module in modules for name in by_module.get(module) or ()})


# FSDP1 --------------------------------------------------------------------------------------------


def _handles(module: Any) -> list[Any]:
    """The handle of an FSDP1 wrapper's flat parameter, as a list of at most one."""
    handle = getattr(module, "_handle", None)
    return [] if handle is None else [handle]


def _flat_names(handle: Any) -> dict[int, list[str]]:
    """The names below the wrapper, by the ids of the flat parameter and the original ones."""
    flat = handle.flat_param
    names = list(flat._fqns)
    originals = getattr(flat, "_params", None) or ()
    found = {id(original): [name] for original, name in zip(originals, names, strict=False)}
    found[id(flat)] = names
    return found


def _flat_unit(handle: Any, names: list[str], state: Any) -> Unit:
    flat = handle.flat_param
    originals = getattr(flat, "_params", None) or [flat] * len(names)
    own = _ranks(handle.process_group)
    between = getattr(state, "_inter_node_pg", None)
    hybrid = between is not None and "HYBRID" in handle._sharding_strategy.name
    over, copies = (
        (own, _ranks(between) if hybrid else []) if handle.uses_sharded_strategy else ([], own)
    )
    # The first forward of a root sets `_local_shard`; before it, the data are this rank's part.
    part = getattr(flat, "_local_shard", flat) if handle.uses_sharded_strategy else flat
    return {
        **_placement(over, copies),
        "flat": True,
        "dims": [],
        "offload": bool(handle._offload_params),
        "divide": state._gradient_predivide_factor * state._gradient_postdivide_factor,
        "bytes": part.numel() * part.element_size(),
        "parameters": {
            name: [list(shape), str(part.dtype), bool(original.requires_grad)]
            for name, shape, original in zip(names, flat._shapes, originals, strict=True)
        },
    }


# FSDP2 --------------------------------------------------------------------------------------------


def groups_of(module: Any) -> list[Any]:
    """The groups of parameters of a module that `fully_shard` was called on."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # before torch 2.12
        groups = [state._fsdp_param_group]
    return [group for group in groups if group is not None and group.fsdp_params]


def _group_unit(group: Any, names: list[str]) -> Unit:
    first = group.fsdp_params[0].sharded_param
    over, copies = _ranks_of(first)
    data_parallel = max(1, len(over)) * max(1, len(copies))
    parameters, size, dims = {}, 0, set()
    for name, part in zip(names, group.fsdp_params, strict=True):
        parameter = part.sharded_param
        dims.update(_dims(parameter))
        size += part._sharded_param_data.numel() * part._sharded_param_data.element_size()
        parameters[name] = [
            list(parameter.shape),
            str(parameter.dtype),
            bool(parameter.requires_grad),
        ]
    return {
        **_placement(over, copies),
        "flat": False,
        "dims": sorted(dims),
        "offload": type(group.offload_policy).__name__ == "CPUOffloadPolicy",
        "divide": getattr(group, "gradient_divide_factor", None) or data_parallel,
        "bytes": size,
        "parameters": parameters,
    }


def _ranks_of(parameter: Any) -> tuple[list[int], list[int]]:
    """The ranks that share a copy of a DTensor, and those that hold the same part of it."""
    mesh, coordinate = parameter.device_mesh, parameter.device_mesh.get_coordinate()
    if coordinate is None:
        return [], []
    cut = [not placement.is_replicate() for placement in parameter.placements]
    over, copies = (
        mesh.mesh[
            tuple(slice(None) if one is which else coordinate[dim] for dim, one in enumerate(cut))
        ]
        for which in (True, False)
    )
    return over.flatten().tolist(), copies.flatten().tolist()


def _dims(parameter: Any) -> set[int]:
    return {p.dim for p in parameter.placements if not p.is_replicate() and hasattr(p, "dim")}


def _state(group: Any) -> str:
    """How a unit is held now; empty if this is unknown."""
    try:
        if hasattr(group, "flat_param"):
            return SHARDED if group.needs_unshard() else WHOLE
        name = group._sharded_state.name
        if name == "SHARDED_POST_FORWARD":
            return f"over {group.post_forward_mesh_info.shard_mesh_size}"
        return WHOLE if name == "UNSHARDED" else SHARDED
    except (AttributeError, RuntimeError):  # FSDP1 before its first forward
        return ""


# Neither ------------------------------------------------------------------------------------------


def _other_units(
    model: Any, prefix: str, taken: set[int]
) -> Iterator[tuple[Unit, dict[int, list[str]]]]:
    """The units without FSDP: plain parameters, parameters of DDP, and other DTensors."""
    from torch.nn.parallel import DistributedDataParallel

    replicas: dict[int, list[int]] = {}
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            ranks = _ranks(module.process_group)
            replicas.update((id(parameter), ranks) for parameter in module.parameters())
    found: dict[tuple[Any, ...], tuple[Unit, dict[int, list[str]]]] = {}
    for name, parameter in named_tensors(model, "_parameters"):
        if id(parameter) in taken or parameter.is_meta:
            continue
        taken.add(id(parameter))
        over: list[int] = []
        copies = replicas.get(id(parameter), [])
        local = parameter
        if hasattr(parameter, "placements"):
            (over, copies), local = _ranks_of(parameter), parameter._local_tensor
        key = (*over, None, *copies)
        if key not in found:
            empty: Unit = {"name": None, "flat": False, "dims": [], "offload": False, "bytes": 0}
            found[key] = {**_placement(over, copies), **empty, "parameters": {}}, {}
        unit, ids = found[key]
        plain = prefix + plain_name(name.removeprefix("module.") if replicas else name)
        ids[id(parameter)] = [plain]
        unit["bytes"] += local.numel() * local.element_size()
        unit["dims"] = sorted({*unit["dims"], *(_dims(parameter) if over else ())})
        unit["parameters"][plain] = [
            list(parameter.shape),
            str(parameter.dtype),
            bool(parameter.requires_grad),
        ]
    yield from found.values()


def _placement(over: list[int], copies: list[int]) -> Unit:
    """Both lists of ranks; a list of one rank is equivalent to an empty one."""
    return {
        "over": sorted(over) if len(over) > 1 else [],
        "copies": sorted(copies) if len(copies) > 1 else [],
    }


def _ranks(group: Any) -> list[int]:
    import torch.distributed as dist

    return list(dist.get_process_group_ranks(group))
