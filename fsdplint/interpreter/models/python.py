"""Python's own functions: builtins, functools, copy, os."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any

import libcst as cst

from fsdplint.discovery.module_resolver import absolute
from fsdplint.interpreter import meta_device
from fsdplint.interpreter.assignment import assign_attribute
from fsdplint.interpreter.attributes import LOADER_PARTS, read_attribute
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.imports import import_module
from fsdplint.interpreter.iteration import iterate
from fsdplint.interpreter.models import tensors
from fsdplint.interpreter.models.nn_classes import SUBCLASSES
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.module_attributes import element_of
from fsdplint.interpreter.module_tree import child_values
from fsdplint.interpreter.modules import new_module, set_element
from fsdplint.interpreter.optimizers import take_parameters
from fsdplint.interpreter.parameter_filters import (
    doubt_filter,
    tested_in_loop,
    with_current_filters,
)
from fsdplint.interpreter.parameter_marks import read_mark
from fsdplint.interpreter.ranks import depends_on_process, depends_on_rank, environment
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Class,
    Const,
    Context,
    Dict,
    Instance,
    LoaderValue,
    Method,
    ModuleValue,
    OptimizerValue,
    ParametersOf,
    Partial,
    RankValue,
    SamplerValue,
    Sequence,
    ShardTensor,
    StateValue,
    Super,
    Symbol,
    TensorValue,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace import ModuleCopied


def derived(call: Call, origin: str = "") -> Unknown:
    """An unknown value made from the arguments: it varies, or differs by rank, as they do."""
    return Unknown(
        origin=origin,
        varying=any(varies(v) for v in call.values),
        by_rank=any(depends_on_rank(v) for v in call.values),
        by_process=any(depends_on_process(v) for v in call.values),
    )


def varies(value: Value) -> bool:
    """Whether a value, or an element of it, differs within a run."""
    if isinstance(value, Sequence):
        return any(varies(item) for item in value.items)
    return isinstance(value, Unknown) and value.varying


@function("builtins.", "logging.", "time.", "math.", "random.", "warnings.", "re.", "json.", "sys.",
          "datetime.", "collections.", "typing.", "pathlib.", "shutil.", "numpy.", "argparse.",
          "tempfile.", "glob.", "gc.", "wandb.", "string.", "uuid.", "socket.", "subprocess.",
          "torch.utils.tensorboard.", "tqdm.write", "rich.", "loguru.", "os.", "inspect.", "dis.",
          "types.", "pprint.")  # fmt: skip
def quiet(run: Run, name: str, call: Call) -> Value:
    """Functions that leave modules alone and whose result is nothing in particular."""
    if name.startswith(("time.", "random.", "datetime.")):
        return Unknown(varying=True)
    origin = f"{name}()" if not call.values else ""
    if name.startswith("argparse."):
        origin = name
    return derived(call, origin)


@function("os.getpid")
def process_id(run: Run, name: str, call: Call) -> Value:
    return Unknown(origin=f"{name}()", by_process=True)


@function("builtins.int", "builtins.str", "builtins.float", "builtins.bool", "builtins.abs")
def convert(run: Run, name: str, call: Call) -> Value:
    value = call.args[0] if call.args else Const(None)
    if isinstance(value, ShardTensor):
        tensors.read(run, value, name.rpartition(".")[2], call.node)
        return Unknown(varying=True)
    if isinstance(value, RankValue | TensorValue):
        return value
    if isinstance(value, Unknown):
        return value
    if isinstance(value, Const):
        try:
            kind: dict[str, Callable[[Any], Any]] = {
                "int": int,
                "str": str,
                "float": float,
                "bool": bool,
                "abs": abs,
            }
            return Const(kind[name.rpartition(".")[2]](value.value))
        except (TypeError, ValueError):
            return Unknown()
    return derived(call)


@function("builtins.len")
def length(run: Run, name: str, call: Call) -> Value:
    value = call.args[0] if call.args else None
    if isinstance(value, Sequence | Dict) and not value.open:
        return Const(len(value.items))
    return Unknown(origin=run.text(call.node))


@function("builtins.isinstance", "builtins.issubclass")
def is_instance(run: Run, name: str, call: Call) -> Value:
    if len(call.args) < 2:
        return Unknown()
    value, kinds = run.settle(call.args[0]), call.args[1]
    wanted = kinds.items if isinstance(kinds, Sequence) else [kinds]
    wanted = [run.settle(kind) for kind in wanted]
    if isinstance(value, ModuleValue):
        answers = [module_is(run, value, kind) for kind in wanted]
        if any(a is True for a in answers):
            return Const(True)
        if all(a is False for a in answers) or _visits_modules(run, call.node):
            return Const(False)
    if isinstance(value, Instance):
        classes = value.cls.mro()
        if any(kind in classes for kind in wanted):
            return Const(True)
        if all(isinstance(kind, Class) for kind in wanted) and not value.cls.has_unknown_base():
            return Const(False)
    if isinstance(value, SamplerValue | LoaderValue):
        name = "DistributedSampler" if isinstance(value, SamplerValue) else "DataLoader"
        return Const(any(isinstance(k, Symbol) and k.name.endswith(name) for k in wanted))
    if _is_dtensor(run, value) and any(getattr(kind, "name", "") in DTENSOR for kind in wanted):
        return Const(True)
    if isinstance(value, StateValue | TensorValue) or (
        isinstance(value, ParametersOf) and value.element
    ):
        return Unknown(varying=True)  # differs from tensor to tensor
    if isinstance(value, Unknown) and value.within is not None:
        if wanted and "__class__" not in value.parts:
            value.parts["__class__"] = wanted[0]
        return Unknown(varying=True)
    return derived(call, run.text(call.node))


DTENSOR = {"torch.distributed.tensor.DTensor", "torch.distributed._tensor.DTensor"}


def _is_dtensor(run: Run, value: Value) -> bool:
    """Whether a value is certainly a DTensor: a parameter or gradient of a sharded module."""
    tensor = tensors.as_shard(run, value)
    return tensor is not None and tensor.certain


def _visits_modules(run: Run, node: cst.CSTNode) -> bool:
    """Whether a test asks for the class of what a loop over `x.modules()` visits.

    Of a module of unknown class it is then false: the class that such a loop looks for is that of
    a part, and the parts that can't be seen have a module of their own that stands for them.
    """
    loop: cst.CSTNode | None = node
    while loop is not None and not isinstance(loop, cst.For | cst.BaseComp | cst.FunctionDef):
        loop = run.source.parent(loop)
    if isinstance(loop, cst.BaseComp):
        loop = loop.for_in
    if not isinstance(loop, cst.For | cst.CompFor):
        return False
    return re.search(r"\.(named_)?modules\(", run.text(loop.iter)) is not None


def module_is(run: Run, value: ModuleValue, kind: Value) -> bool | None:
    if isinstance(kind, Class):
        if value.cls is None:
            same = run.trace.modules[value.id].class_name == kind.name
            return True if same else (None if value.library_class is None else False)
        return kind in value.cls.mro()
    if not isinstance(kind, Symbol):
        return None
    name = kind.name
    if name == "torch.nn.Module":
        return True
    if name == "torch.distributed.fsdp.FullyShardedDataParallel":
        return value.wrapper == "fsdp1"
    if name == "torch.distributed.fsdp.FSDPModule":
        return value.sharded
    if name.endswith("DistributedDataParallel"):
        return value.wrapper == "ddp"
    if value.library_class is not None:
        return name in {value.library_class, SUBCLASSES.get(value.library_class)}
    if value.cls is not None:
        if name in value.cls.library_bases():
            return True
        return None if value.cls.has_unknown_base() else False
    return None


@function("builtins.getattr")
def get_attribute(run: Run, name: str, call: Call) -> Value:
    if len(call.args) >= 2 and isinstance(call.args[1], Const):
        attribute, module = str(call.args[1].value), run.settle(call.args[0])
        if (
            len(call.args) == 3
            and isinstance(module, ModuleValue)
            and attribute in ONLY_WRAPPERS_HAVE
        ):
            has = _wrapper_has(module, attribute)
            if not has:
                return run.settle(call.args[2]) if has is False else derived(call)
            if attribute == "no_sync" and _wrapped_by_fsdp1(module):
                return Method(module, OPTIONAL_NO_SYNC)
        value = read_attribute(run, call.args[0], attribute, call.node)
        return run.settle(value)
    value = run.settle(call.args[0]) if call.args else Unknown()
    if isinstance(value, ModuleValue):
        return element_of(run, value, Unknown())
    return derived(call)


@function("builtins.setattr")
def set_attribute(run: Run, name: str, call: Call) -> Value:
    if len(call.args) == 3:
        target, key, value = call.args
        target = run.settle(target)
        if isinstance(key, Const):
            assign_attribute(run, target, str(key.value), value)
        elif isinstance(target, ModuleValue):
            meta_device.attribute_set(target, value)
            set_element(run, target, key, value)
        elif isinstance(target, Instance):
            target.attributes_unknown = True
            for attribute, old in list(target.attributes.items()):
                if isinstance(old, Const):
                    target.attributes[attribute] = Unknown(
                        origin=f"{target.cls.name}.{attribute}", default=old
                    )
    return Const(None)


OPTIONAL_NO_SYNC = "no_sync, or a default"  # what `getattr` with a default finds
ONLY_WRAPPERS_HAVE = {"no_sync": {"fsdp1", "ddp"}, "clip_grad_norm_": {"fsdp1"}}


def _wrapped_by_fsdp1(module: ModuleValue) -> bool:
    """Whether FSDP1 is around a module, compiled or not."""
    if module.wrapper == "compile" and module.inner is not None:
        return _wrapped_by_fsdp1(module.inner)
    return module.wrapper == "fsdp1"


def _wrapper_has(module: ModuleValue, attribute: str) -> bool | None:
    """Whether a module has a method that DDP's and FSDP1's wrappers bring; None if not known."""
    if module.wrapper == "compile" and module.inner is not None:
        return _wrapper_has(module.inner, attribute)
    if module.wrapper:
        return module.wrapper in ONLY_WRAPPERS_HAVE[attribute]
    if module.cls is None:
        return False if (module.library_class or "").startswith("torch.nn.") else None
    if module.cls.lookup(attribute) is not None:
        return True
    return None if module.cls.has_unknown_base() else False


@function("builtins.hasattr", "builtins.callable")
def has_attribute(run: Run, name: str, call: Call) -> Value:
    if call.args and isinstance(run.settle(call.args[0]), Unknown):
        return Unknown(origin=run.text(call.node), varying=derived(call).varying)
    if call.args and isinstance(run.settle(call.args[0]), StateValue | ParametersOf | ShardTensor):
        value, attribute = run.settle(call.args[0]), constant(call.arg(1, "name"))
        read_mark(run, value, str(attribute), call.node)
        if attribute in tensors.OF_DTENSORS and _is_dtensor(run, value):
            return Const(True)
        return Unknown(varying=True)  # differs from tensor to tensor
    if len(call.args) == 2 and isinstance(call.args[1], Const):
        value, attribute = run.settle(call.args[0]), str(call.args[1].value)
        if isinstance(value, SamplerValue) and attribute == "set_epoch":
            return Const(True)
        if isinstance(value, LoaderValue) and attribute in LOADER_PARTS:
            return Const(True)
        if isinstance(value, ModuleValue) and value.wrapper and attribute == "module":
            return Const(value.wrapper in {"fsdp1", "ddp"})
        if isinstance(value, ModuleValue) and attribute in ONLY_WRAPPERS_HAVE:
            known = _wrapper_has(value, attribute)
            return Const(known) if known is not None else Unknown(origin=run.text(call.node))
        if isinstance(value, Instance) and (
            attribute in value.attributes or value.cls.lookup(attribute) is not None
        ):
            return Const(True)
    return Unknown(origin=run.text(call.node))


@function("builtins.dict", "collections.OrderedDict", "collections.defaultdict")
def make_dict(run: Run, name: str, call: Call) -> Value:
    result = Dict({}, call.open, created_at=run.site(call.node))
    for value in call.args:
        value = run.settle(value)
        if isinstance(value, StateValue):
            return value
        if isinstance(value, Dict):
            result.items.update(value.items)
            result.tensors.update(value.tensors)
            result.open = result.open or value.open
        elif isinstance(value, ParametersOf):
            result.tensors["*"] = take_parameters(run, value, element=True)
            result.open = True
        elif isinstance(value, Sequence) and all(
            isinstance(i, Sequence) and len(i.items) == 2 for i in value.items
        ):
            for pair in value.items:
                key = pair.items[0] if isinstance(pair, Sequence) else Unknown()
                if isinstance(key, Const) and isinstance(pair, Sequence):
                    result.items[key.value] = pair.items[1]
                elif isinstance(pair, Sequence):
                    result.tensors["*"] = pair.items[1]
                    result.open = True
        else:
            result.open = True
    result.items.update(call.kwargs)
    return result


@function("builtins.vars")
def attributes_of(run: Run, name: str, call: Call) -> Value:
    value = run.settle(call.args[0]) if call.args else Unknown()
    if isinstance(value, OptimizerValue):
        return read_attribute(run, value, "__dict__", call.node)
    return derived(call)


@function("builtins.super")
def super_of(run: Run, name: str, call: Call) -> Value:
    for frame in reversed(run.frames):
        if frame.owner is not None and frame.function is not None:
            receiver = frame.receiver
            if receiver is not None:
                return Super(frame.owner, receiver)
    return Unknown()


@function("builtins.type")
def type_of(run: Run, name: str, call: Call) -> Value:
    value = run.settle(call.args[0]) if call.args else Unknown()
    cls = getattr(value, "cls", None)
    if isinstance(cls, Class):
        return cls
    if isinstance(value, ModuleValue) and value.library_class is not None:
        return Symbol(value.library_class)
    hidden = isinstance(value, Unknown) and value.within is not None
    return Unknown(origin="" if hidden else run.text(call.node), varying=hidden)


@function("functools.partial")
def partial(run: Run, name: str, call: Call) -> Value:
    if not call.args:
        return Unknown()
    return Partial(call.args[0], call.args[1:], dict(call.kwargs), call.open)


@function("functools.update_wrapper")
def update_wrapper(run: Run, name: str, call: Call) -> Value:
    return call.arg(0, "wrapper") or Unknown()


@function("functools.wraps")
def wraps(run: Run, name: str, call: Call) -> Value:
    """What it is called with, then, it gives back: nothing is called here."""
    return Partial(Symbol("functools.update_wrapper"))


@function("functools.lru_cache", "functools.cache")
def decorator(run: Run, name: str, call: Call) -> Value:
    return call.args[0] if call.args else Unknown()


@function("copy.deepcopy", "copy.copy")
def copy(run: Run, name: str, call: Call) -> Value:
    value = run.settle(call.args[0]) if call.args else Unknown()
    if not isinstance(value, ModuleValue):
        if isinstance(value, Unknown):
            return Unknown(origin=value.origin, varying=value.varying)
        return value
    duplicate = duplicate_module(run, value, call)
    run.emit(ModuleCopied, call.node, module=value.id, copy=duplicate.id, api=name)
    return duplicate


def duplicate_module(run: Run, value: ModuleValue, call: Call) -> ModuleValue:
    """A copy of a module and of everything in it."""
    info = run.trace.modules[value.id]
    made = new_module(
        run,
        call.node,
        info.class_name,
        cls=value.cls,
        library_class=value.library_class,
        children_known=info.children_known,
        own_parameters=info.own_parameters,
        container=info.container,
    )
    made.sharded = value.sharded
    made.stands_for_parts = value.stands_for_parts
    if value.elements is not None:
        made.elements = Sequence([], "list")
    copies: dict[ModuleValue, ModuleValue] = {value: made}
    for name, child in zip(info.children, child_values(run, value), strict=False):
        duplicate = duplicate_module(run, child, call)
        copies[child] = duplicate
        run.trace.modules[duplicate.id].repeated = run.trace.modules[child.id].repeated
        if made.elements is not None:
            made.elements.items.append(duplicate)
        made.attributes[name] = duplicate
        run.trace.modules[made.id].children[name] = duplicate.id
    owner = Unknown(refined=made)
    for name, part in value.attributes.items():
        made.attributes.setdefault(name, _copied_part(run, part, copies, owner))
    return made


def _copied_part(
    run: Run, part: Value, copies: dict[ModuleValue, ModuleValue], owner: Unknown
) -> Value:
    """What the copy of a module holds where the original holds this.

    A part of unknown class becomes a child of the module that it was read off, once the program
    uses it as a module, and an unknown method is called on its owner. A copy needs its own of both.
    """
    part = run.settle(part)
    if isinstance(part, ModuleValue):
        return copies.get(part, part)
    if not isinstance(part, Unknown) or part.within not in copies and not _read_off(part, copies):
        return part
    within = None if part.within is None else copies.get(part.within)
    copied = replace(part, within=within, owner=owner, parts={})
    copied.parts = {
        name: _copied_part(run, inner, copies, copied) for name, inner in part.parts.items()
    }
    return copied


def _read_off(part: Unknown, modules: Container[ModuleValue | None]) -> bool:
    """Whether an unknown value was read off one of these modules, however indirectly."""
    owner: Unknown | None = part.owner
    while owner is not None and owner.refined is None:
        owner = owner.owner
    return owner is not None and owner.refined in modules


@function("importlib.import_module")
def import_named(run: Run, name: str, call: Call) -> Value:
    """A module by its name; a relative one is looked for in the package that is named."""
    wanted, package = constant(call.arg(0, "name")), constant(call.arg(1, "package"))
    full = None
    if isinstance(wanted, str):
        full = absolute(wanted, package if isinstance(package, str) else None)
    return call_unknown(run, Symbol(name), call) if full is None else import_module(run, full)


@function("contextlib.nullcontext")
def null_context(run: Run, name: str, call: Call) -> Value:
    return Context("null")


@function("os.getenv", "os.environ.get")
def getenv(run: Run, name: str, call: Call) -> Value:
    return environment(call.arg(0, "key") or Unknown())


@function("os.path.")
def path(run: Run, name: str, call: Call) -> Value:
    known = all(isinstance(v, Const) or isinstance(v, Unknown) and v.origin for v in call.values)
    asks = name.endswith(("exists", "isfile", "isdir"))
    return derived(call, run.text(call.node) if known or asks else "")


@function("builtins.open")
def open_file(run: Run, name: str, call: Call) -> Value:
    path = call.arg(0, "file")
    known = isinstance(path, Const) or isinstance(path, Unknown) and path.origin
    return derived(call, f"open({run.text(call.node)})" if known else "")


@function("dataclasses.dataclass", "dataclasses.field", "torch.no_grad_decorator")
def dataclass_field(run: Run, name: str, call: Call) -> Value:
    default = call.kwargs.get("default")
    if default is not None:
        return default
    factory = call.kwargs.get("default_factory")
    if isinstance(factory, Class):
        return run.call(factory, Call(call.node))
    return Unknown()


@method("Sequence", "append", "add")
def append(run: Run, receiver: Sequence, name: str, call: Call) -> Value:
    if call.args:
        receiver.items.append(with_current_filters(run, call.args[0]))
        if tested_in_loop(run):
            doubt_filter(run, call.args[0])
        if run.loop_depth:
            receiver.open = True
    return Const(None)


@method("Sequence", "extend", "update")
def extend(run: Run, receiver: Sequence, name: str, call: Call) -> Value:
    if call.args:
        items, exact = iterate(run, call.args[0])
        receiver.extend(items)
        receiver.open = receiver.open or not exact
    return Const(None)


@method("Dict", "items", "values", "keys")
def dict_view(run: Run, receiver: Dict, name: str, call: Call) -> Value:
    if name == "keys":
        return Sequence([Const(k) for k in receiver.items], "list", receiver.open)
    if name == "values":
        values = [*receiver.items.values(), *receiver.tensors.values()]
        return Sequence(values, "list", receiver.open)
    pairs: list[Value] = [Sequence([Const(k), v], "tuple") for k, v in receiver.items.items()]
    pairs += [Sequence([Unknown(varying=True), v], "tuple") for v in receiver.tensors.values()]
    return Sequence(pairs, "list", receiver.open)


@method("Dict", "get", "pop", "setdefault")
def dict_get(run: Run, receiver: Dict, name: str, call: Call) -> Value:
    key = call.args[0] if call.args else Unknown()
    if isinstance(key, Const) and key.value in receiver.items:
        value = receiver.items[key.value]
        if name == "pop":
            del receiver.items[key.value]
        return value
    if len(call.args) > 1 and not receiver.open:
        if name == "setdefault" and isinstance(key, Const):
            receiver.items[key.value] = call.args[1]
        return call.args[1]
    return Unknown(origin=run.text(call.node))


@method("Dict", "update")
def dict_update(run: Run, receiver: Dict, name: str, call: Call) -> Value:
    for value in call.args:
        if isinstance(value, Dict):
            receiver.items.update(value.items)
            receiver.tensors.update(value.tensors)
            receiver.open = receiver.open or value.open
        else:
            receiver.open = True
            if isinstance(value, StateValue):
                receiver.tensors[f"**{value.id}"] = value
    receiver.items.update(call.kwargs)
    receiver.open = receiver.open or call.open
    return Const(None)


@method("Dict", "copy")
def dict_copy(run: Run, receiver: Dict, name: str, call: Call) -> Value:
    return Dict(dict(receiver.items), receiver.open, dict(receiver.tensors))


@method("Const", "format", "join")
def text_of(run: Run, receiver: Const, name: str, call: Call) -> Value:
    return derived(call)


@method("Const", "split", "lower", "upper", "strip", "startswith", "endswith", "replace")
def fold_text(run: Run, receiver: Const, name: str, call: Call) -> Value:
    if isinstance(receiver.value, str) and all(isinstance(a, Const) for a in call.args):
        try:
            result = getattr(receiver.value, name)(
                *(a.value for a in call.args if isinstance(a, Const))
            )
        except (TypeError, ValueError):
            return Unknown()
        if isinstance(result, list):
            return Sequence([Const(item) for item in result], "list")
        return Const(result)
    return derived(call)
