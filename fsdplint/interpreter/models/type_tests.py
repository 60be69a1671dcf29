"""Classes of values: `isinstance`, `issubclass` and `type`."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from fsdplint.interpreter.builtin_types import is_of_builtin_type, is_plain_class
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.library_classes import is_bare_base, is_module_class
from fsdplint.interpreter.models import tensors
from fsdplint.interpreter.models.model_parallel import is_strategy
from fsdplint.interpreter.models.nn_classes import SUBCLASSES
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.module_attributes import (
    class_of_module,
    searched_class,
    visits_modules,
)
from fsdplint.interpreter.modules import name_part
from fsdplint.interpreter.own_dicts import CONFIG_LISTS, entries_of
from fsdplint.interpreter.rank_tests import test_choice
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.sharded_parameters import (
    appears_sharded,
    is_never_sharded,
    some_rest_sharded,
)
from fsdplint.interpreter.torch_values import (
    HeldAtTimes,
    LoaderValue,
    ParametersOf,
    PartlyHeld,
    SamplerValue,
    ShardTensor,
    StateValue,
    TensorValue,
)
from fsdplint.interpreter.turn_tests import presence_at_times
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import (
    Class,
    Const,
    Instance,
    ModuleValue,
    Sequence,
    Symbol,
    Unknown,
    Value,
)


@function("builtins.isinstance", "builtins.issubclass")
def is_instance(run: Run, name: str, call: Call) -> Value:
    if len(call.args) < 2:
        return Unknown()
    choice, kinds = call.args[:2]
    value = run.settle(choice)
    if value is not choice and isinstance(choice, PartlyHeld):
        answer = is_instance(run, name, Call(call.node, [value, kinds]))
        if not isinstance(answer, Const) or not answer.value:
            return answer
        if isinstance(choice, HeldAtTimes):
            return presence_at_times(choice, choice.test, holds=True)
        return test_choice(choice, lambda one: None if one is not value else True) or answer
    wanted = kinds.items if isinstance(kinds, Sequence) else [kinds]
    wanted = [run.settle(kind) for kind in wanted]
    known = is_of_builtin_type(value, wanted) if name == "builtins.isinstance" else None
    if known is not None:
        return Const(known)
    known = is_strategy(value, wanted) if wanted and name == "builtins.isinstance" else None
    if known is not None:
        return Const(known)
    if isinstance(value, Const) and wanted and all(map(is_plain_class, wanted)):
        return Const(False)
    if isinstance(value, ModuleValue):
        answers = [module_is(run, value, kind) for kind in wanted]
        if any(a is True for a in answers):
            return Const(True)
        if any(isinstance(kind, Unknown) for kind in wanted):
            return unknown_result(call, run.text(call.node))  # of a class that is not known
        if wanted and _is_unnamed_part(value) and not _excludes(run, call.node):
            name_part(run, value, wanted[0])
            return Unknown(varying=True)
        if all(a is False for a in answers) or visits_modules(run, call.node):
            return Const(False)
    if isinstance(value, Instance):
        libraries = value.cls.library_bases()
        if any(isinstance(kind, Symbol) and kind.name in libraries for kind in wanted):
            return Const(True)
        if entries_of(value) is not None and wanted and all(map(_is_list, wanted)):
            return Const(False)
        classes = value.cls.mro()
        if any(kind in classes for kind in wanted):
            return Const(True)
        if all(isinstance(kind, Class) for kind in wanted) and not value.cls.has_unknown_base():
            return Const(False)
    if isinstance(value, Class) and name == "builtins.issubclass":
        known = _derives(value, wanted)
        return unknown_result(call, run.text(call.node)) if known is None else Const(known)
    if isinstance(value, SamplerValue | LoaderValue):
        name = "DistributedSampler" if isinstance(value, SamplerValue) else "DataLoader"
        return Const(any(isinstance(k, Symbol) and k.name.endswith(name) for k in wanted))
    kinds_of_dtensor = [getattr(kind, "name", "") in DTENSOR for kind in wanted]
    if is_dtensor(run, value) and any(kinds_of_dtensor):
        return Const(True)
    if any(kinds_of_dtensor) and _is_some_dtensor(run, value, call.node):
        return Const(True)
    if kinds_of_dtensor and all(kinds_of_dtensor) and _is_no_dtensor(run, value):
        return Const(False)
    if _is_collection(value) and wanted and all(map(_is_tensor, wanted)):
        return Const(False)
    if isinstance(value, StateValue | TensorValue) or (
        isinstance(value, ParametersOf) and value.element
    ):
        return Unknown(varying=True)  # differs from tensor to tensor
    if isinstance(value, Unknown) and value.part_of is not None:
        if wanted and "__class__" not in value.parts and not _excludes(run, call.node):
            value.parts["__class__"] = wanted[0]
        return Unknown(varying=True)
    return unknown_result(call, run.text(call.node))


def _is_unnamed_part(value: ModuleValue) -> bool:
    """Whether it stands for any part of a model of a library, and nothing has named its class."""
    named = value.cls is not None or value.library_class is not None
    return value.stands_for_parts and not (
        named or "__class__" in value.attributes or value.sharded or value.wrapper
    )


def _is_collection(value: Value) -> bool:
    """Whether a value is a list or iterator, and no tensor: `[...]`, `model.parameters()`."""
    return isinstance(value, Sequence) or (isinstance(value, ParametersOf) and not value.element)


def _is_tensor(kind: Value) -> bool:
    return isinstance(kind, Symbol) and kind.name in _TENSORS


def _is_list(kind: Value) -> bool:
    """Whether a class has lists as objects, and no dicts."""
    return isinstance(kind, Symbol) and kind.name in ("builtins.list", *CONFIG_LISTS)


def _derives(value: Class, wanted: Iterable[Value]) -> bool | None:
    """Whether a class derives from one of some classes; None if unknown."""
    libraries = value.library_bases()
    if any(kind in value.mro() or getattr(kind, "name", "") in libraries for kind in wanted):
        return True
    known = not value.has_unknown_base() and all(isinstance(kind, Class) for kind in wanted)
    return False if known else None


_TENSORS = {"torch.Tensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter"}
DTENSOR = {"torch.distributed.tensor.DTensor", "torch.distributed._tensor.DTensor"}


def is_dtensor(run: Run, value: Value) -> bool:
    """Whether a test of its class finds a DTensor: a parameter or gradient of a sharded module."""
    if isinstance(value, ShardTensor):
        return value.must_be_dtensor or (value.appears_sharded and not value.reduction)
    return isinstance(value, ParametersOf) and value.element and appears_sharded(run, value)


def _is_some_dtensor(run: Run, value: Value, test: cst.CSTNode) -> bool:
    """Whether `any(isinstance(p, DTensor) for p in model.parameters())` holds."""
    loop = run.source.parent(test)
    if not isinstance(loop, cst.GeneratorExp | cst.ListComp) or loop.elt is not test:
        return False
    argument = run.source.parent(loop)
    call = run.source.parent(argument) if isinstance(argument, cst.Arg) else None
    function = call.func if isinstance(call, cst.Call) else None
    if not isinstance(function, cst.Name) or function.value != "any" or loop.for_in.ifs:
        return False
    return isinstance(value, ParametersOf) and some_rest_sharded(run, value)


def _is_no_dtensor(run: Run, value: Value) -> bool:
    """Whether a tensor is certainly plain, or a parameter of a model that is not sharded yet."""
    if isinstance(value, ParametersOf) and value.element and is_never_sharded(run, value):
        return True
    return tensors.is_plain(value)


def _excludes(run: Run, test: cst.CSTNode) -> bool:
    """Whether the code after a test of a class is for the other classes.

    This is the code behind `if isinstance(x, A): return`, and that of `if not isinstance(x, A):`.
    """
    node, outer, is_negated = test, run.source.parent(test), False
    while isinstance(outer, cst.UnaryOperation | cst.BooleanOperation):
        is_negated = is_negated != isinstance(getattr(outer, "operator", None), cst.Not)
        node, outer = outer, run.source.parent(outer)
    if not isinstance(outer, cst.If) or outer.test is not node:
        return is_negated
    last = outer.body.body[-1] if outer.body.body else None
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, cst.Return | cst.Continue | cst.Break | cst.Raise) != is_negated


def module_is(run: Run, value: ModuleValue, kind: Value) -> bool | None:
    if isinstance(kind, Class):
        if value.cls is None:
            same = run.trace.modules[value.id].class_name == kind.name
            return True if same else (False if _is_of_torch(value) else None)
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
        if name in {value.library_class, SUBCLASSES.get(value.library_class)}:
            return True
        return False if _is_of_torch(value) else None
    if value.cls is not None:
        if name in value.cls.library_bases():
            return True
        return None if _may_derive(value.cls, name) else False
    return None


def _is_of_torch(value: ModuleValue) -> bool:
    """Whether a module is of a class of torch.nn, so that its bases are known."""
    return (value.library_class or "").startswith("torch.nn.")


def _may_derive(klass: Class, name: str) -> bool:
    """Whether a class may derive from a library class that is none of its known bases.

    The bases of a library class are not seen. A model or layer is never among those of a class that
    is only a base of models, such as `PreTrainedModel`.
    """
    wants_part = is_module_class(name) and not is_bare_base(name)
    return klass.has_unknown_base() or any(
        is_module_class(base)
        and not base.startswith("torch.nn.")
        and not (wants_part and is_bare_base(base))
        for base in klass.library_bases()
    )


@function("builtins.type")
def type_of(run: Run, name: str, call: Call) -> Value:
    value = run.settle(call.args[0]) if call.args else Unknown()
    cls = getattr(value, "cls", None)
    if isinstance(value, ModuleValue):
        cls = class_of_module(value) or searched_class(run, value, call.node)
    if isinstance(cls, Class | Symbol):
        return cls
    if isinstance(value, Const) and type(value.value) in (int, float):
        return Symbol(f"builtins.{type(value.value).__name__}")
    if isinstance(value, Unknown) and value.part_of is not None:
        known = value.parts.get("__class__")
        if not isinstance(known, Class | Symbol):
            known = value.parts.setdefault("__class__", Unknown(varying=True, owner=value))
        return known if isinstance(known, Unknown) else Unknown(varying=True, owner=value)
    return Unknown(origin=run.text(call.node))
