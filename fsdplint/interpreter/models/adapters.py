"""Adapters of PEFT: trainable parts in a frozen model."""

from __future__ import annotations

from fsdplint.interpreter.escape import escape
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.freezing import TRAINED_SINCE, doubt_wholly_frozen, set_frozen
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.module_calls import call_library_method
from fsdplint.interpreter.module_tree import sharding_inside
from fsdplint.interpreter.modules import DELEGATE, as_module, new_module, set_module_attribute
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Const,
    ModuleValue,
    Symbol,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace import ModuleBuilt, RequiresGradSet, Sharding

_HOMES = ("peft", "peft.mapping", "peft.mapping_func", "peft.peft_model", "peft.utils.other")


@function(*(f"{home}.get_peft_model" for home in _HOMES))
@function(*(f"{home}.PeftModel.from_pretrained" for home in _HOMES))
def add_adapters(run: Run, name: str, call: Call) -> Value:
    """Replaces layers of the model by layers with adapters, and freezes all other parameters.

    The result is a module around the model. It gives the model's attributes as its own.
    """
    model = as_module(run, call.arg(0, "model"))
    if model is None:
        return call_unknown(run, Symbol(name), call)
    _freeze(run, model, call)
    doubt_wholly_frozen(run, model)
    _put_into_sharded(run, model, call)
    for part in run.trace.submodules(model.id):
        run.trace.modules[part].children_known = False
    tuner = _wrap_module(run, "BaseTuner", "model", model, call)
    result = _wrap_module(run, "PeftModel", "base_model", tuner, call)
    built = run.emit(ModuleBuilt, call.node, module=result.id, on_meta=result.on_meta)
    if name.endswith("get_peft_model") or constant(call.kwargs.get("is_trainable")) is True:
        result.attributes[TRAINED_SINCE] = Const(built.index)
    return result


@function(*(f"{home}.inject_adapter_in_model" for home in _HOMES))
def inject_adapters(run: Run, name: str, call: Call) -> Value:
    """Replaces layers of the model by layers with adapters, and returns it."""
    model = as_module(run, call.arg(1, "model"))
    if model is not None and _put_into_sharded(run, model, call):
        return model
    return call_unknown(run, Symbol(name), call)


@method("ModuleValue", "add_adapter", "load_adapter", "load_lora_adapter")
def add_to_library_model(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """The same for a model of Transformers or Diffusers."""
    swapped = constant(call.kwargs.get("hotswap", Const(False))) is not False
    if not swapped and _put_into_sharded(run, receiver, call):
        return Const(None)
    return call_library_method(run, receiver, name, call)


def _put_into_sharded(run: Run, model: ModuleValue, call: Call) -> bool:
    """Put adapters into a model that is sharded already; returns whether it is."""
    if sharding_inside(run, model) not in (Sharding.FSDP1, Sharding.FSDP2):
        return False
    layer = new_module(
        run, call.node, "LoraLayer", library_class="peft.LoraLayer", own_parameters=True
    )
    set_module_attribute(run, model, f"adapters of {layer.id}", layer)
    return True


def _wrap_module(
    run: Run, class_name: str, name: str, inner: ModuleValue, call: Call
) -> ModuleValue:
    """A module of PEFT that holds a module, and whose missing attributes are those of it."""
    outer = new_module(
        run, call.node, class_name, library_class=f"peft.{class_name}", children_known=False
    )
    outer.on_meta, outer.must_be_meta = inner.on_meta, False
    set_module_attribute(run, outer, name, inner)
    outer.attributes[DELEGATE] = inner
    return outer


@function(*(f"{home}.prepare_model_for_kbit_training" for home in _HOMES),
          *(f"{home}.prepare_model_for_int8_training" for home in _HOMES))  # fmt: skip
def freeze_quantized(run: Run, name: str, call: Call) -> Value:
    """Freezes all parameters; the modules stay the same."""
    model = as_module(run, call.arg(0, "model"))
    if model is None:
        return call_unknown(run, Symbol(name), call)
    _freeze(run, model, call)
    return model


def _freeze(run: Run, model: ModuleValue, call: Call) -> None:
    set_frozen(run, [model], True)
    run.emit(RequiresGradSet, call.node, modules=(model.id,))


@method("ModuleValue", "merge_and_unload", "unload", "get_base_model")
def model_inside(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """The model without its adapters, or with the adapters added to its weights."""
    inner: Value = receiver
    while isinstance(inner, ModuleValue) and isinstance(
        inner.attributes.get(DELEGATE), ModuleValue
    ):
        inner = inner.attributes[DELEGATE]
    if inner is receiver:
        escape(run, call)
        return Unknown()
    return inner
