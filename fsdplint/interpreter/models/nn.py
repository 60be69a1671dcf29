"""torch.nn: the creation of modules, and the methods of every module."""

from __future__ import annotations

import re
from typing import Any

import libcst as cst

from fsdplint.interpreter import grad_mode as gradmode
from fsdplint.interpreter import hooks, meta_device, uninitialized
from fsdplint.interpreter.assignment import assign_attribute
from fsdplint.interpreter.attributes import parameter_by_name, read_attribute
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.freezing import doubt_frozen, freeze_parameters, set_frozen
from fsdplint.interpreter.iteration import iterate
from fsdplint.interpreter.models.copies import duplicate_module
from fsdplint.interpreter.models.nn_classes import (
    COMPOSITE,
    CONTAINERS,
    PARAMETERIZED,
    PARTS,
    SIZES,
)
from fsdplint.interpreter.models.randomness import note_weights_set
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.module_attributes import element_of
from fsdplint.interpreter.module_tree import add_child, child_values, communicates
from fsdplint.interpreter.modules import (
    append_element,
    as_module,
    attach_module,
    container_items,
    make_container,
    new_module,
    set_element,
    set_module_attribute,
    submodule_values,
)
from fsdplint.interpreter.optimizers import take_parameters
from fsdplint.interpreter.own_lengths import own_length
from fsdplint.interpreter.ranks import depends_on_rank, note_rank_use
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ModulesOf, ParametersOf, TensorValue
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import (
    Const,
    Context,
    LibraryObject,
    ModuleValue,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import (
    BackwardRun,
    Checkpointed,
    Compiled,
    ModuleBuilt,
    ModuleCopied,
    ModuleMoved,
    Replicated,
    RequiresGradSet,
)
from fsdplint.trace.predicates import Predicate

_FIXED = re.compile(r"\.(constant|zeros|ones|eye|dirac)_$")  # not at random


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
        return LibraryObject(name, dict(call.kwargs))
    return _library_module(run, last, call)


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
    device = constant(call.kwargs.get("device"))
    module.on_meta = module.on_meta or str(device).startswith("meta")
    module.must_be_meta = meta_device.torch_class_on_meta(run, call, module.must_be_meta)
    for part, kind in PARTS.get(name, {}).items():
        set_module_attribute(run, module, part, _library_module(run, kind, call))
    if name in {"TransformerEncoder", "TransformerDecoder"} and call.args:
        _stack(run, module, name, call)
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
    return make_container(run, call.node, name, container_items(name, call))


@function("torch.")
def tensor_result(run: Run, name: str, call: Call) -> Value:
    """torch functions without a model: tensors in, tensors out."""
    if not name.startswith("torch.nn."):
        meta_device.leave_meta_in_arguments(run, call.values)
    for value in call.values:
        if isinstance(value, TensorValue):
            scaled = value.scaled or name in ("torch.mul", "torch.multiply")
            return TensorValue(value.source, value.modules, scaled=scaled)
        if isinstance(value, ParametersOf):
            if name.startswith("torch.nn.init.") and _FIXED.search(name):
                note_weights_set(run, call, [value])
            return take_parameters(run, value, element=True)
    if name.startswith("torch.cuda.") or name.startswith("torch.backends."):
        return Unknown(origin=f"{name}()")
    return unknown_result(call)


@function(*(f"torch.{name}" for name in ("tensor", "zeros", "ones", "full", "empty", "arange")))
def new_tensor(run: Run, name: str, call: Call) -> Value:
    """A tensor that is not computed from others, unless `torch.tensor` copies one."""
    result = tensor_result(run, name, call)
    if isinstance(result, Unknown):
        result.on_cpu = _is_cpu(run, call.kwargs.get("device")) or _is_cpu_by_default(
            run, name, call
        )
        result.own_size = _has_own_size(run, name, call)
        result.new_tensor = name != "torch.tensor" or isinstance(call.arg(0, "data"), Const)
    return result


def _has_own_size(run: Run, name: str, call: Call) -> bool:
    """Whether the size of a new tensor differs between ranks: it, or the filled list, does."""
    if name == "torch.tensor":
        held = own_length(run.settle(call.arg(0, "data") or Unknown()))
        return held is not None and not held.counts
    sizes = call.args[:1] if name == "torch.full" else call.args
    inner = [part for size in sizes if isinstance(size, Sequence) for part in size.items]
    return any(depends_on_rank(part) for part in (*sizes, *inner))


def _is_cpu(run: Run, device: Value | None) -> bool:
    device = run.settle(device) if device is not None else None
    if isinstance(device, LibraryObject) and device.name == "torch.device":
        device = device.get("0", "type")
    return device is not None and constant(device) == "cpu"


def _is_cpu_by_default(run: Run, name: str, call: Call) -> bool:
    """Whether a new tensor is on the CPU because nothing says otherwise.

    `torch.tensor` of a tensor keeps its device, but one of a list or number has the default device.
    """
    if call.open or "device" in call.kwargs or run.other_default_device:
        return False
    if any(_is_device(context) for context in run.contexts):
        return False
    data = run.settle(call.arg(0, "data") or Unknown())
    return name != "torch.tensor" or isinstance(data, Const | Sequence)


def _is_device(context: object) -> bool:
    """Whether a `with` block may set the device of new tensors."""
    if isinstance(context, Context):
        return context.kind == "meta_device"
    return not isinstance(context, LibraryObject) or context.name == "torch.device"


@function("torch.set_default_device", "torch.set_default_tensor_type")
def set_default_device(run: Run, name: str, call: Call) -> Value:
    run.other_default_device = True
    return Const(None)


@function("torch.device")
def device(run: Run, name: str, call: Call) -> Value:
    kind = constant(call.arg(0, "type"))
    note_rank_use(run, call.node, *call.values)
    args = {str(n): v for n, v in enumerate(call.args)} | call.kwargs
    if isinstance(kind, str) and kind.startswith("meta"):
        return Context("meta_device", details=args)
    return LibraryObject(name, args)


@function("accelerate.init_empty_weights", "torch.nn.utils.init.skip_init")
def empty_weights(run: Run, name: str, call: Call) -> Value:
    return Context("meta_device")


@function("torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.set_grad_enabled")
def grad_mode(run: Run, name: str, call: Call) -> Value:
    """As a context or decorator it holds for a block, else from here on."""
    kind = name.rpartition(".")[2]
    mode = call.arg(0, "mode")
    if mode is None and not call.open and kind == "inference_mode":
        mode = Const(True)
    context = Context(kind, details={"mode": mode} if mode is not None else {})
    parent = run.source.parent(call.node)
    if kind == "set_grad_enabled" and isinstance(parent, cst.Expr):
        run.grad_default = gradmode.current([context], run.grad_default)
    return context


@function("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast",
          "torch.backends.cuda.sdp_kernel", "torch.profiler.profile",
          "torch.nn.attention.sdpa_kernel", "torch.distributed.tensor.parallel.loss_parallel",
          "torch.distributed.tensor.experimental.context_parallel")  # fmt: skip
def harmless_context(run: Run, name: str, call: Call) -> Value:
    return Context("harmless")


@function("torch.compile")
def compile_module(run: Run, name: str, call: Call) -> Value:
    module = as_module(run, call.arg(0, "model"))
    if module is None:
        return call.args[0] if call.args else Unknown()
    wrapper = wrap(run, module, "OptimizedModule", "compile", call)
    run.emit(Compiled, call.node, module=module.id, result=wrapper.id)
    return wrapper


def wrap(run: Run, inner: ModuleValue, class_name: str, kind: str, call: Call) -> ModuleValue:
    """A module that wraps another one."""
    wrapper = new_module(run, call.node, class_name, own_parameters=False)
    wrapper.inner, wrapper.wrapper = inner, kind
    info = run.trace.modules[wrapper.id]
    info.inner, info.wrapper = inner.id, kind
    return wrapper


@function("torch.nn.parallel.DistributedDataParallel", "torch.nn.DataParallel")
def data_parallel(run: Run, name: str, call: Call) -> Value:
    module = as_module(run, call.arg(0, "module"))
    if module is None:
        return Unknown()
    if name.endswith("DistributedDataParallel"):
        options = {key: constant(value) for key, value in call.kwargs.items() if key != "module"}
        run.emit(
            Replicated,
            call.node,
            inner=module.id,
            options=options | ({"**": "?"} if call.open else {}),
            collective=True,
        )
    return wrap(run, module, name.rpartition(".")[2], "ddp", call)


CHECKPOINTING = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"


@function(f"{CHECKPOINTING}.checkpoint_wrapper", f"{CHECKPOINTING}.offload_wrapper")
def checkpoint_wrapper(run: Run, name: str, call: Call) -> Value:
    """The wrapper is treated as the module itself, so that submodules keep their names."""
    module = as_module(run, call.arg(0, "module"))
    if module is None:
        return Unknown()
    run.emit(Checkpointed, call.node, module=module.id)
    return module


@function(f"{CHECKPOINTING}.apply_activation_checkpointing")
def apply_checkpointing(run: Run, name: str, call: Call) -> Value:
    module = as_module(run, call.arg(0, "model"))
    if module is not None:
        run.emit(Checkpointed, call.node, module=module.id)
    return Const(None)


@function(
    "torch.distributed.tensor.parallel.parallelize_module",
    "torch.distributed.tensor.parallel.api.parallelize_module",
    "torch.distributed._composable.replicate.replicate", "torch.distributed._composable.replicate",
    "torch.distributed._composable.checkpoint", "torchao.float8.convert_to_float8_training",
)  # fmt: skip
def convert_in_place(run: Run, name: str, call: Call) -> Value:
    """Functions that change the layers of a module and return the module, in the same structure."""
    module = as_module(run, call.arg(0, "module"))
    return module if module is not None else unknown_result(call)


@function("torch.optim.swa_utils.AveragedModel")
def averaged_model(run: Run, name: str, call: Call) -> Value:
    module = as_module(run, call.arg(0, "model"))
    if module is None:
        return Unknown()
    copy = duplicate_module(run, module, call)
    run.emit(ModuleCopied, call.node, module=module.id, copy=copy.id, api="AveragedModel")
    return copy


# Methods of modules -----------------------------------------------------------------------------


@method("ModuleValue", "parameters", "named_parameters")
@method("Unknown", "parameters", "named_parameters")
def parameters(run: Run, receiver: Value, name: str, call: Call) -> Value:
    module = as_module(run, receiver)
    if module is None:
        return unknown_result(call)
    return ParametersOf((module,), named=name.startswith("named"), every=not call.values)


@method("ModuleValue", "modules", "named_modules", "children", "named_children")
@method("Unknown", "modules", "named_modules", "named_children")
def submodules(run: Run, receiver: Value, name: str, call: Call) -> Value:
    module = as_module(run, receiver)
    return ModulesOf(module, name) if module is not None else unknown_result(call)


@method("ModuleValue", "to", "cuda", "cpu", "to_empty", "half", "bfloat16", "float", "type")
def move(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    dtype = {"half": "float16", "bfloat16": "bfloat16", "float": "float32"}.get(name)
    target = None
    for value in call.values:
        if isinstance(value, Symbol) and value.name.startswith("torch."):
            dtype = value.name.rpartition(".")[2]
        else:
            target = meta_device.device_name(run, value) or target
    if name in {"cuda", "cpu"}:
        target = name
    if name == "to_empty":
        receiver.on_meta = False
    from_meta = meta_device.fails_to_move(run, receiver, name, call)
    if name == "to_empty":
        uninitialized.begin(run, receiver)
    meta_device.note_move(run, receiver, name, call)
    run.emit(
        ModuleMoved,
        call.node,
        module=receiver.id,
        method=name,
        device=target,
        dtype=dtype,
        from_meta=from_meta,
    )
    return receiver


@method("ModuleValue", "train", "eval")
def mode(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    return receiver


@method("ModuleValue", "requires_grad_")
def requires_grad(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    value = call.arg(0, "requires_grad")
    set_frozen(run, [receiver], not (value is None or constant(value) is True))
    if value is not None and constant(value) is not False:
        doubt_frozen(run, [receiver])
    run.emit(RequiresGradSet, call.node, modules=(receiver.id,))
    return receiver


@method("ParametersOf", "requires_grad_")
def parameter_requires_grad(run: Run, receiver: ParametersOf, name: str, call: Call) -> Value:
    value = call.arg(0, "requires_grad")
    freeze_parameters(run, receiver, Const(True) if value is None else value)
    run.emit(RequiresGradSet, call.node, modules=tuple(m.id for m in receiver.modules))
    return receiver


@method("ModuleValue", "apply")
def apply(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """`m.apply(fn)` calls the function for every submodule, children before their parents."""
    if call.args:
        for child in reversed(submodule_values(run, ModulesOf(receiver, "modules"))):
            run.call(call.args[0], Call(call.node, [child]))
    return receiver


@method("ModuleValue", "append", "add_module", "register_module", "insert")
def add(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    if not call.args:
        return Unknown()
    value = run.settle(call.args[-1])
    if name == "append":
        append_element(run, receiver, value)
    elif isinstance(value, ModuleValue):
        key = constant(call.args[0])
        if value.inner is not None and value.inner in child_values(run, receiver):
            # a part goes into its own wrapper: `layers.register_module(name, torch.compile(layer))`
            set_element(run, receiver, Unknown(), value)
            if isinstance(key, str):
                receiver.attributes[key] = value
            return receiver
        attach_module(run, receiver, value)
        add_child(run, receiver, str(key) if key is not None else "*", value)
        if isinstance(key, str):
            receiver.attributes[key] = value
        elif receiver.elements is not None:
            receiver.elements.items.append(value)
    elif not is_none(value):
        run.trace.modules[receiver.id].children_known = False
    return receiver


@method("ModuleValue", "extend")
def extend(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    for item in iterate(run, call.args[0])[0] if call.args else []:
        append_element(run, receiver, item)
    return receiver


@method("ModuleValue", "items", "values", "keys")
def mapping_view(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    children: list[Any] = submodule_values(run, receiver)
    if name == "values":
        return Sequence(children, "list")
    if name == "keys":
        return Unknown(varying=True)
    return Sequence([Sequence([Unknown(varying=True), c], "tuple") for c in children], "list")


@method("ModuleValue", "get_submodule")
def submodule(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    path = constant(call.arg(0, "target"))
    if not isinstance(path, str):
        return element_of(run, receiver, Unknown())
    return _submodule_at(run, receiver, path, call.node)


@method("ModuleValue", "set_submodule")
def replace_submodule(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    path, new = constant(call.arg(0, "target")), call.arg(1, "module")
    if new is None:
        return Const(None)
    if not isinstance(path, str):
        set_element(run, receiver, Unknown(), new)
        return Const(None)
    parent, _, last = path.rpartition(".")
    owner = _submodule_at(run, receiver, parent, call.node)
    if not isinstance(owner, ModuleValue):
        return Const(None)
    if last.isdigit() and owner.elements is not None:
        set_element(run, owner, Const(int(last)), new)
    else:
        set_module_attribute(run, owner, last, new)
    return Const(None)


def _submodule_at(run: Run, module: ModuleValue, path: str, node: cst.CSTNode) -> Value:
    """The module at a path such as "layers.0.linear"; the module itself for an empty path."""
    value: Value = module
    for part in path.split(".") if path else ():
        if part.isdigit() and isinstance(value, ModuleValue):
            value = run.settle(element_of(run, value, Const(int(part))))
        else:
            value = run.settle(read_attribute(run, value, part, node))
    return value


@method("ModuleValue", "get_parameter")
def parameter(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    path = constant(call.arg(0, "target"))
    return parameter_by_name(run, receiver, path) if isinstance(path, str) else Unknown()


@method("ModuleValue", "register_parameter")
def register_parameter(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    run.trace.modules[receiver.id].own_parameters = True
    receiver.must_be_meta = False
    return Const(None)


@method("ModuleValue", "register_buffer")
def register_buffer(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """`self.register_buffer("mask", tensor)`: an attribute that is a tensor, and no method."""
    attribute = constant(call.arg(0, "name"))
    if isinstance(attribute, str):
        origin = f"{run.trace.modules[receiver.id].class_name}.{attribute}"
        assign_attribute(run, receiver, attribute, Unknown(origin=origin, varying=True))
    return Const(None)


@method("ModuleValue", "compile")
def compile_in_place(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    run.emit(Compiled, call.node, module=receiver.id, result=receiver.id)
    return Const(None)


# Tensors ----------------------------------------------------------------------------------------


def _modules_in_no_sync(run: Run) -> tuple[str, ...]:
    """The modules whose `no_sync()` is certainly open."""
    found = _contexts_of_no_sync(run)
    return tuple(c.module.id for c in found if c.module is not None and c.certain)


def _modules_perhaps_in_no_sync(run: Run) -> tuple[tuple[str, Predicate | None], ...]:
    """The modules whose `no_sync()` may be open, and the test that decides it."""
    found = _contexts_of_no_sync(run)
    return tuple((c.module.id, c.opens) for c in found if c.module is not None and not c.certain)


def _contexts_of_no_sync(run: Run) -> list[Context]:
    return [c for c in run.contexts if isinstance(c, Context) and c.kind == "no_sync"]


@method("TensorValue", "backward")
@method("Unknown", "backward")
def backward(run: Run, receiver: Value, name: str, call: Call) -> Value:
    sharded = any(
        communicates(run, value) for value in run.objects.values() if isinstance(value, ModuleValue)
    )
    loss = receiver if isinstance(receiver, TensorValue) and not call.values else TensorValue()
    run.emit(
        BackwardRun,
        call.node,
        collective=sharded,
        averaged=loss.averaged,
        divided_by=loss.divided_by,
        multiplied=loss.scaled,
        unsynchronized=_modules_in_no_sync(run),
        perhaps_unsynchronized=_modules_perhaps_in_no_sync(run),
    )
    hooks.fire(run, hooks.Moment.BACKWARD, call.node)
    return Const(None)
