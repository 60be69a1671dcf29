"""Modules of libraries: their classes, and the functions that build them.

Their code is not followed, so their structure is unknown: a part that the program reads is a module
that the structure holds.
"""

from __future__ import annotations

from dataclasses import replace

from fsdplint.interpreter import meta_device
from fsdplint.interpreter.escape import escape
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.library_classes import builds_model, is_layer, is_module_class
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.modules import new_module
from fsdplint.interpreter.precisions import dtype_of_loaded, set_dtype
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import Class, ModuleValue, Symbol, Unknown, Value, constant
from fsdplint.trace import ModuleBuilt

# Class methods that build a model.
_LOADERS = {"from_pretrained", "from_single_file"}
_CONSTRUCTORS = {"from_config", "_from_config"}


@function(
    "apex.normalization.", "bitsandbytes.nn.", "diffusers.", "fairscale.nn.model_parallel.layers.",
    "peft.", "timm.", "torchvision.models.", "transformers.", "trl.",
)  # fmt: skip
def library_call(run: Run, name: str, call: Call) -> Value:
    """A call of a library that has classes of modules."""
    owner, _, last = name.rpartition(".")
    if builds_model(name):
        return _opaque_module(run, None, call, random=_is_random(name, call))
    if is_module_class(name):
        return _opaque_module(run, name, call, random=name.startswith("transformers."))
    if last in _LOADERS | _CONSTRUCTORS and is_module_class(owner) and not _returns_more(call):
        module = _opaque_module(run, owner, call, loaded=last in _LOADERS, random=True)
        module.dtype = dtype_of_loaded(run, call)
        return module
    return call_unknown(run, Symbol(name), call)


def _returns_more(call: Call) -> bool:
    """Whether the call returns a tuple: the model, and how it was loaded."""
    given = call.kwargs.get("output_loading_info")
    return given is not None and constant(given) is not False


def _opaque_module(
    run: Run, name: str | None, call: Call, *, loaded: bool = False, random: bool = False
) -> ModuleValue:
    """A module of a library class, or of an unknown one.

    loaded: whether it has weights from a file, so that it is not on the meta device.
    random: whether the library initialises its weights at random.
    """
    escape(run, call)
    layer = name is not None and is_layer(name)
    affine = "elementwise_affine" not in call.kwargs
    module = new_module(
        run,
        call.node,
        name.rpartition(".")[2] if name is not None else "model",
        library_class=name,
        children_known=layer,
        own_parameters=True if layer and affine else None,
    )
    if loaded:
        module.on_meta = module.must_be_meta = False
    run.emit(
        ModuleBuilt,
        call.node,
        module=module.id,
        on_meta=module.on_meta,
        random_weights=False if loaded else (random and not call.open) or None,
    )
    return module


def _is_random(name: str, call: Call) -> bool:
    """Whether a call of a library function certainly builds a model with random weights."""
    if name.startswith("timm."):
        given = [call.arg(1, "pretrained"), call.kwargs.get("checkpoint_path")]
    elif name.startswith("torchvision.models.") and name.count(".") == 2:
        given = [*call.args, *(call.kwargs.get(key) for key in ("weights", "pretrained"))]
    else:
        return False
    return all(value is None or constant(value) in (None, False, "") for value in given)


@method("Class", "from_pretrained", "_from_config")
def load_own_class(run: Run, receiver: Class, name: str, call: Call) -> Value:
    """`Net.from_pretrained(path)`: a class of the project that inherits the method."""
    if not any(is_module_class(base) for base in receiver.library_bases()):
        return call_unknown(run, Unknown(origin=f"{receiver.name}.{name}"), call)
    if _returns_more(call):
        return call_unknown(run, Unknown(origin=f"{receiver.name}.{name}"), call)
    config = call.kwargs.get("config", Unknown(origin=f"{receiver.name}.config"))
    module = run.call(receiver, replace(call, args=[config], kwargs={}, open=True))
    if isinstance(module, ModuleValue) and name == "from_pretrained":
        meta_device.leave_meta(run, [module])
        for event in run.trace.of(ModuleBuilt):
            if event.module == module.id:
                event.random_weights = False
    dtype = dtype_of_loaded(run, call)
    if isinstance(module, ModuleValue) and dtype:
        set_dtype(run, module, dtype)
    return module
