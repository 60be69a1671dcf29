"""Lightning's strategy for FSDP2: a function of the program shards what Fabric sets up."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.modules import as_module
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Bound,
    Const,
    Function,
    ModuleValue,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
)

_HOMES = ("lightning.fabric.strategies", "lightning_fabric.strategies")
_OF_TRAINERS = ("lightning.pytorch.strategies", "pytorch_lightning.strategies")
_PACKAGES = ("lightning.", "lightning_fabric.", "pytorch_lightning.")
_NAME = "ModelParallelStrategy"
_PARAMETERS = ("parallelize_fn", "data_parallel_size", "tensor_parallel_size")
_DIMENSIONS = ("data_parallel", "tensor_parallel")


_MODULES = ("", ".model_parallel")


@function(*(f"{home}{module}.{_NAME}" for home in (*_HOMES, *_OF_TRAINERS) for module in _MODULES))
def strategy(run: Run, name: str, call: Call) -> Value:
    """The arguments are read where Fabric sets up a model, or a Trainer trains one."""
    made = Unknown(origin=f"{_NAME}()", library=name)
    names = _PARAMETERS[1:] if name.startswith(_OF_TRAINERS) else _PARAMETERS
    given = dict(zip(names, call.args, strict=False)) | call.kwargs
    made.parts |= {part: given[part] for part in _PARAMETERS if part in given}
    return made


def sharding_function(run: Run, fabric: Unknown) -> Value | None:
    """The function by which the strategy of a Fabric shards models, if it is known."""
    made = _strategy_of(run, fabric)
    found = run.settle(made.parts.get("parallelize_fn", Unknown())) if made is not None else None
    return found if isinstance(found, Function | Bound | Partial) else None


def set_up(run: Run, fabric: Unknown, function: Value, call: Call) -> ModuleValue | None:
    """Call the function of the strategy with the model and the mesh; returns the sharded model."""
    made = _strategy_of(run, fabric)
    model = as_module(run, call.arg(0, "module"))
    if made is None or model is None:
        return None
    sharded = run.call(function, Call(call.node, [model, _mesh(run, made, call)]))
    return as_module(run, run.settle(sharded)) or model


def mesh_of(run: Run, trainer: Unknown, call: Call) -> Value | None:
    """The mesh of the strategy of a Fabric or Trainer; None if it has another one."""
    made = _strategy_of(run, trainer)
    return _mesh(run, made, call) if made is not None else None


def _mesh(run: Run, made: Unknown, call: Call) -> Value:
    if "*mesh" not in made.parts:
        sizes = [made.parts.get(name, Unknown()) for name in _PARAMETERS[1:]]
        names = Sequence([Const(name) for name in _DIMENSIONS], "tuple")
        init = Symbol("torch.distributed.device_mesh.init_device_mesh")
        given = [Unknown(origin="device"), Sequence(sizes, "tuple")]
        made.parts["*mesh"] = run.call(init, Call(call.node, given, {"mesh_dim_names": names}))
    return made.parts["*mesh"]


def is_strategy(value: Value, wanted: Iterable[Value]) -> bool | None:
    """Whether a strategy of Lightning is of one of some classes of strategies; None if unknown."""
    kinds = [_class_of_strategy(getattr(kind, "name", "")) for kind in wanted]
    own = _class_of_strategy(value.library) if isinstance(value, Unknown) else ""
    return own in kinds if own and all(kinds) else None


def _class_of_strategy(name: str) -> str:
    """The name of a class of strategies; "" for other names."""
    is_known = name.startswith(_PACKAGES) and ".strategies." in name
    return name.rpartition(".")[2] if is_known else ""


def _strategy_of(run: Run, fabric: Unknown) -> Unknown | None:
    value = run.settle(fabric.parts.get("strategy", Unknown()))
    known = isinstance(value, Unknown) and value.library.endswith(f".{_NAME}")
    return value if known and isinstance(value, Unknown) else None
