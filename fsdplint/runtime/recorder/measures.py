"""The measures of one optimizer step: losses, gradient norms, collectives, updated parameters.

Measuring runs no collective, so it cannot make a program hang: a rank writes its own part of a
norm, and the comparison of the records adds up the parts.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import Counter
from collections.abc import Iterable
from typing import Any

from fsdplint.runtime.recorder.heartbeat import Heartbeat
from fsdplint.runtime.recorder.layouts import Layouts
from fsdplint.runtime.recorder.objects import Objects
from fsdplint.runtime.recorder.peak_memory import Peak
from fsdplint.runtime.recorder.recorder import Recorder

_PIECE = 2**16  # elements

# The arguments of clipping: "by" ("norm" or "value"), "bound", "norm_type"; None if unknown.
Clip = dict[str, Any]


class StopTraining(SystemExit):
    """Ends the program after the given number of steps; `except Exception` does not catch it."""


class FlatHandles:
    """FSDP1's handles by the parameters that they manage, flat or original."""

    def __init__(self, recorder: Recorder, objects: Objects) -> None:
        self._recorder = recorder
        self._objects = objects
        self._generation = -1
        self._by_parameter: dict[int, weakref.ref[Any]] = {}

    @property
    def world(self) -> int:
        return self._recorder.world

    def of(self, parameter: Any) -> Any | None:
        if self._generation != self._objects.generation:
            self._generation = self._objects.generation
            self._by_parameter = self._find()
        handle = self._by_parameter.get(id(parameter))
        return handle() if handle is not None else None

    def _find(self) -> dict[int, weakref.ref[Any]]:
        found: dict[int, weakref.ref[Any]] = {}  # a handle refers to its model
        for wrapper, kind in self._objects.sharded.items():
            handle = getattr(wrapper, "_handle", None) if kind == "fsdp1" else None
            if handle is not None:
                flat = handle.flat_param
                for parameter in (flat, *(getattr(flat, "_params", None) or ())):
                    found[id(parameter)] = weakref.ref(handle)
        return found


class Measures:
    """The measures of the current step."""

    def __init__(
        self, recorder: Recorder, objects: Objects, layouts: Layouts, heartbeat: Heartbeat
    ) -> None:
        self._recorder = recorder
        self._layouts = layouts
        self._heartbeat = heartbeat
        self._handles = FlatHandles(recorder, objects)
        self.limit: int | None = None
        self.peak = Peak()
        self.step = 0
        self.per_optimizer: Counter[str] = Counter()
        self.losses: list[Any] = []
        self.clipped: list[dict[str, float]] = []
        self.clips: list[Clip] = []
        self.scaler: dict[str, Any] | None = None
        self.autocast: set[str] = set()
        self.collectives: Counter[str] = Counter()
        self.bytes = 0
        self.exchanged = False  # whether there was an all-to-all: experts live on single ranks
        self.started = time.perf_counter()
        self._versions: dict[int, int] = {}
        self._before: dict[str, float] | None = None
        self._gradients: Counter[str | None] = Counter()

    def collective(self, name: str, size: int) -> None:
        self.collectives[name] += 1
        self.exchanged = self.exchanged or name == "all_to_all"
        self.bytes += size
        self._heartbeat.collective(name)

    def note_autocast(self) -> None:
        import torch

        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                self.autocast.add(str(torch.get_autocast_dtype(device)))

    def loss(self, tensor: Any) -> None:
        """The tensor that backward is called on."""
        if tensor is None or not hasattr(tensor, "numel") or tensor.numel() != 1:
            self.losses.append(None)
            return
        local = getattr(tensor, "_local_tensor", tensor)
        self.losses.append(float(local.detach()))

    def note_clipping(self, parameters: list[Any], clip: Clip) -> None:
        """Before gradients are clipped, store their norm and the arguments."""
        self.clipped.append(squares(parameters, self._handles))
        self.clips.append(clip)

    def note_scale(self, scaler: Any) -> None:
        """An optimizer steps through this gradient scaler."""
        if not scaler.is_enabled():
            return
        self.scaler = {
            "enabled": True,
            "scale": scaler.get_scale(),
            "growth_factor": scaler.get_growth_factor(),
            "backoff_factor": scaler.get_backoff_factor(),
            "growth_interval": scaler.get_growth_interval(),
        }

    def before_step(self, optimizer: Any, name: str) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._before = squares(parameters, self._handles)
        self._layouts.before_step(self.step + 1, optimizer, name)
        self._gradients = self._by_unit((p, (p.grad,)) for p in parameters)
        self._versions = {id(p): _version(p) for p in parameters}

    def after_step(self, optimizer: Any, name: str) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        updated = sum(1 for p in parameters if _version(p) != self._versions.get(id(p)))
        self.step += 1
        self.per_optimizer[name] += 1
        self._heartbeat.set_step(self.step)
        now = time.perf_counter()
        before = self._before or {}
        states = self._by_unit((p, state.values()) for p, state in optimizer.state.items())
        self._recorder.write(
            {
                "t": "measure",
                "step": self.step,
                "optimizer": name,
                "class": type(optimizer).__name__,
                "dtypes": sorted({str(p.dtype) for p in parameters} | self.autocast),
                "losses": self.losses,
                "gradients": self.clipped[0] if self.clipped else before,
                "stepped": before,
                "clips": self.clips,
                "scaler": self.scaler,
                "collectives": dict(self.collectives),
                "bytes": self.bytes,
                "parameters": len(parameters),
                "updated": updated,
                "rates": [float(group.get("lr", 0.0)) for group in optimizer.param_groups],
                "settings": [_settings(group) for group in optimizer.param_groups],
                "local_bytes": {
                    "gradients": self._gradients.total(),
                    "optimizer state": states.total(),
                },
                "seconds": now - self.started,
                "peak": self.peak.take(),
            }
        )
        units = dict.fromkeys([*self._gradients, *states])
        held = [[unit, self._gradients[unit], states[unit]] for unit in units]
        self._layouts.note_held(self.step, name, held)
        self._layouts.after_step()
        self.losses, self.clipped, self.clips = [], [], []
        self.scaler = None
        self.collectives, self.bytes = Counter(), 0
        self.peak.restart()
        self.started = time.perf_counter()

    def _by_unit(self, tensors: Iterable[tuple[Any, Iterable[Any]]]) -> Counter[str | None]:
        """The bytes that this rank holds of tensors that belong to parameters, by unit."""
        found: Counter[str | None] = Counter()
        for parameter, of_parameter in tensors:
            found[self._layouts.unit_of(parameter)] += local_bytes(of_parameter)
        return found

    def stop_if_enough(self) -> None:
        if self.limit is not None and max(self.per_optimizer.values(), default=0) >= self.limit:
            raise StopTraining(0)


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """The hyperparameters of a group with plain values, except those of the implementation."""
    left_out = ("params", "lr", "foreach", "fused", "capturable", "differentiable", "param_names")
    return {
        key: list(value) if isinstance(value, (tuple, list)) else value
        for key, value in group.items()
        if key not in left_out and isinstance(value, (bool, int, float, str, tuple, list))
    }


def local_bytes(tensors: Iterable[Any]) -> int:
    """The bytes that this rank holds of these tensors, without scalars."""
    count = 0
    for tensor in tensors:
        local = getattr(tensor, "_local_tensor", tensor)
        if hasattr(local, "numel") and tensor.dim() and not local.is_sparse:
            count += local.numel() * local.element_size()
    return count


def _version(parameter: Any) -> int:
    """A number that grows with every write to the tensor or to its local part."""
    local = getattr(parameter, "_local_tensor", parameter)
    return int(parameter._version) + int(local._version)


def squares(parameters: list[Any], handles: FlatHandles) -> dict[str, float]:
    """The sums of the squares of this rank's gradients.

    Returns:
        "sharded": the sum for sharded gradients, divided by the number of ranks that hold the same
        part, so that the sum over all ranks is the total. "whole": the sum for gradients that every
        rank holds, so that the mean over all ranks is the total.
    """
    parts: dict[tuple[Any, Any], tuple[list[Any], list[int]]] = {}
    seen: set[int] = set()
    for parameter in parameters:
        grad = getattr(parameter, "grad", None)
        if grad is None or id(grad) in seen:
            continue
        seen.add(id(grad))
        local = getattr(grad, "_local_tensor", grad).detach()
        if local.is_sparse:
            local = local.coalesce().values()
        tensors, holders = parts.setdefault((local.device, local.dtype), ([], []))
        tensors.append(local)
        holders.append(_holders(parameter, grad, handles) or 0)
    totals = {"sharded": 0.0, "whole": 0.0}
    for tensors, holders in parts.values():
        for norm, count in zip(_norms(tensors), holders, strict=True):
            if count:
                totals["sharded"] += norm**2 / count
            else:
                totals["whole"] += norm**2
    return totals


def _norms(tensors: list[Any]) -> list[float]:
    """The norm of each tensor, in one transfer from the device.

    Large tensors are summed in pieces: a sum of millions of squares in float32 loses digits, and
    how many depends on the sizes of the tensors, which differ between FSDP1 and FSDP2.
    """
    import torch

    pieces = [tensor.reshape(-1).split(_PIECE) for tensor in tensors]
    norms = torch._foreach_norm(
        [piece for of_one in pieces for piece in of_one],
        2,
        dtype=torch.promote_types(tensors[0].dtype, torch.float32),
    )
    found = iter(torch.stack(norms).tolist())
    return [math.hypot(*(next(found) for _ in of_one)) for of_one in pieces]


def _holders(parameter: Any, grad: Any, handles: FlatHandles) -> int | None:
    """The number of ranks with the same part of a sharded gradient; None if all hold all of it."""
    placements = getattr(grad, "placements", None)
    if placements is not None:
        mesh = grad.device_mesh
        if all(placement.is_replicate() for placement in placements):
            return None
        holders = 1
        for index, placement in enumerate(placements):
            if placement.is_replicate():
                holders *= mesh.size(index)
        return holders
    handle = handles.of(parameter)
    if handle is None or not handle.uses_sharded_strategy:
        return None
    return max(1, handles.world // handle.world_size)
