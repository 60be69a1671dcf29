"""Ray Train: what a worker asks for its rank and for the number of workers."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.ranks import WORLD_SIZE
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import RankValue
from fsdplint.interpreter.values import Unknown, Value

_CONTEXT = "ray.train.get_context"
_SESSIONS = ("ray.air.session", "ray.train.session")  # of older versions


@function(*(f"{session}.get_world_rank" for session in _SESSIONS), "ray.train.world_rank")
def world_rank(run: Run, name: str, call: Call) -> Value:
    return RankValue("global")


@function(*(f"{session}.get_local_rank" for session in _SESSIONS), "ray.train.local_rank")
def local_rank(run: Run, name: str, call: Call) -> Value:
    return RankValue("local")


@function(*(f"{session}.get_world_size" for session in _SESSIONS), "ray.train.world_size")
def world_size(run: Run, name: str, call: Call) -> Value:
    return Unknown(origin=WORLD_SIZE)


@method(_CONTEXT, "get_world_rank")
def world_rank_of_context(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    return RankValue("global")


@method(_CONTEXT, "get_local_rank")
def local_rank_of_context(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    return RankValue("local")


@method(_CONTEXT, "get_world_size")
def world_size_of_context(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    return Unknown(origin=WORLD_SIZE)


@function("ray.train.torch.get_device")
def device_of_worker(run: Run, name: str, call: Call) -> Value:
    return Unknown(origin=f"{name}()", by_process=True)
