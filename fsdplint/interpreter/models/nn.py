"""torch.nn: the creation of modules."""

from __future__ import annotations

from fsdplint.interpreter import meta_device
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.copies import duplicate_module
from fsdplint.interpreter.models.nn_classes import (
    COMPOSITE,
    CONTAINERS,
    PARAMETERIZED,
    PARTS,
    SIZES,
)
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.models.tensor_creation import tensor_result
from fsdplint.interpreter.modules import (
    as_module,
    container_items,
    make_container,
    new_module,
    set_module_attribute,
)
from fsdplint.interpreter.parameter_sizes import note_data, note_layer
from fsdplint.interpreter.plain_tensors import is_new_tensor
from fsdplint.interpreter.precisions import dtype_of_new
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.scalars import is_dimensionless
from fsdplint.interpreter.training_modes import computed_by_mode
from fsdplint.interpreter.values import (
    Const,
    LibraryObject,
    ModuleValue,
    Sequence,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import GuardKind, ModuleBuilt


@function("torch.nn.")
def torch_class(run: Run, name: str, call: Call) -> Value:
    """`torch.nn.Linear(...)` and the like; functions (functional, init, utils) are quiet."""
    last = name.rpartition(".")[2]
    if name.count(".") != 2 or not last[:1].isupper():
        return tensor_result(run, name, call)
    if last in CONTAINERS:
        return _container(run, name, call)
    if last.endswith("Loss"):
        return LibraryObject(name, dict(call.kwargs))
    if last in {"Parameter", "Buffer", "UninitializedParameter"}:
        flag = call.arg(1, "requires_grad") if last == "Parameter" else None
        given = {"requires_grad": flag} if flag is not None else {}
        data = call.arg(0, "data")
        if data is not None and is_new_tensor(run, run.settle(data)):
            given["plain"] = Const(True)
        made = LibraryObject(name, _scalar_data(run, call) | given | call.kwargs)
        note_data(run, made, data)
        return made
    return _library_module(run, last, call)


def _scalar_data(run: Run, call: Call) -> dict[str, Value]:
    """What a parameter is made of, if it is certainly a tensor without dimensions."""
    data = call.arg(0, "data")
    surely = all(entry.guard.kind is GuardKind.CONFIG for entry in run.guards)
    return {"data": data} if data is not None and surely and is_dimensionless(data) else {}


def _library_module(run: Run, name: str, call: Call) -> ModuleValue:
    """A module of a class of torch.nn, with its submodules."""
    module = new_module(
        run,
        call.node,
        name,
        library_class=f"torch.nn.{name}",
        children_known=name not in COMPOSITE,
        own_parameters=_registers_parameters(name, call),
    )
    for number, attribute in enumerate(SIZES.get(name, ())):
        size = call.arg(number, attribute)
        if isinstance(size, Const) and isinstance(size.value, int):
            module.attributes[attribute] = size
    note_layer(run, module, name, call)
    device = constant(call.kwargs.get("device"))
    module.on_meta = module.on_meta or str(device).startswith("meta")
    module.must_be_meta = meta_device.torch_class_on_meta(run, call, module.must_be_meta)
    for part, kind in PARTS.get(name, {}).items():
        set_module_attribute(run, module, part, _library_module(run, kind, call))
    if name in {"TransformerEncoder", "TransformerDecoder"} and call.args:
        _stack(run, module, name, call)
    module.by_mode = computed_by_mode(name, call)
    module.dtype = dtype_of_new(run, call)
    run.emit(ModuleBuilt, call.node, module=module.id, on_meta=module.on_meta)
    return module


def _registers_parameters(name: str, call: Call) -> bool | None:
    """Whether a module of torch.nn has own parameters; None if unknown."""
    if PARAMETERIZED.search(name) is None:
        return False
    if "Norm" not in name:
        return True
    affine = call.kwargs.get("affine") or call.kwargs.get("elementwise_affine")
    if affine is None and name.startswith(
        "Instance"
    ):  # (num_features, eps, momentum, affine=False)
        return None if len(call.args) > 3 or call.open else False
    known = constant(affine) if affine is not None else True
    return known if isinstance(known, bool) else None


def _stack(run: Run, module: ModuleValue, name: str, call: Call) -> None:
    """`TransformerEncoder(layer, num_layers)` holds copies of the layer."""
    layer = as_module(run, call.args[0])
    norm = call.arg(2, "norm")
    if layer is None or not (norm is None or is_none(norm) or isinstance(norm, ModuleValue)):
        return
    copies = Sequence([duplicate_module(run, layer, call)], open=True)
    layers = make_container(run, call.node, "torch.nn.ModuleList", copies)
    set_module_attribute(run, module, "layers", layers)
    if isinstance(norm, ModuleValue):
        set_module_attribute(run, module, "norm", norm)
    info = run.trace.modules[module.id]
    info.children_known, info.own_parameters = True, False


def _container(run: Run, name: str, call: Call) -> Value:
    made = make_container(run, call.node, name, container_items(name, call))
    if call.open:  # arguments that are not known may be modules
        run.trace.modules[made.id].children_known = False
    return made
