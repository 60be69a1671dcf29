"""Instances of the classes of the project."""

from __future__ import annotations

from fsdplint.interpreter.builtin_types import PLAIN_BASES
from fsdplint.interpreter.dispatch import calls
from fsdplint.interpreter.escape import escape
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.functions import call_function, call_method_if_any
from fsdplint.interpreter.library_classes import is_module_class
from fsdplint.interpreter.merging import matters
from fsdplint.interpreter.module_attributes import may_set
from fsdplint.interpreter.modules import build_module
from fsdplint.interpreter.own_dicts import ENTRIES, derives_from_dict
from fsdplint.interpreter.own_optimizers import build_own_optimizer
from fsdplint.interpreter.ranks import rank_default
from fsdplint.interpreter.records import (
    MADE_FIELD,
    UNKNOWN_MAKER,
    dataclass_fields,
    holds_no_none,
    is_named_tuple,
    named_tuple_fields,
)
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Class,
    Const,
    Dict,
    Function,
    Instance,
    LibraryObject,
    OptimizerValue,
    Symbol,
    Unknown,
    Value,
    is_none,
)
from fsdplint.trace import SchedulerBuilt

TYPED_DICTS = {"typing.TypedDict", "typing_extensions.TypedDict"}
ENUM_BASES = {"enum.Enum", "enum.StrEnum", "enum.IntEnum"}


OPTIMIZER_BASES = {"torch.optim.Optimizer"}


@calls(Class)
def instantiate(run: Run, klass: Class, call: Call) -> Value:
    """Instantiate a class of the project: a module, an optimizer or another object."""
    run.instantiated.add(klass.node)
    bases = klass.library_bases()
    init = klass.lookup("__init__")
    if any(map(is_module_class, bases)):
        return build_module(run, klass, call)
    if any(b in OPTIMIZER_BASES or b.startswith("torch.optim.") for b in bases):
        if not any(b.startswith("torch.optim.lr_scheduler.") for b in bases):
            return build_own_optimizer(run, klass, call)
        of = next((v for v in map(run.settle, call.values) if isinstance(v, OptimizerValue)), None)
        if of is not None:
            run.emit(SchedulerBuilt, call.node, optimizer=of.id)
    if not ENUM_BASES.isdisjoint(bases) and len(call.args) == 1 and not call.kwargs:
        return call.args[0]  # a member of an enum stands for its value
    if klass.has_unknown_base() or any("FullyShardedDataParallel" in b for b in bases):
        escape(run, call)
    if not TYPED_DICTS.isdisjoint(bases) and not call.args:
        return Dict(dict(call.kwargs), call.open, created_at=run.site(call.node))
    instance = Instance(klass)
    if is_named_tuple(klass):
        instance.attributes = named_tuple_fields(klass, call)
        if call.open:
            instance.attributes = {name: Unknown() for name in instance.attributes}
    if _is_made_by_decorator(klass, call):
        klass.maker = UNKNOWN_MAKER
    if klass.dataclass:
        set_fields(run, instance, klass, call)
    if derives_from_dict(klass):
        given = Call(call.node) if isinstance(init, Function) else call
        instance.attributes[ENTRIES] = run.call(Symbol("builtins.dict"), given)
    if isinstance(init, Function):
        result = call_function(run, init, instance, call.args, call.kwargs, call.node, call.open)
        instance.attributes_unknown = instance.attributes_unknown or not is_none(result)
    if isinstance(klass.lookup("__post_init__"), Function):
        call_method_if_any(run, instance, "__post_init__")
    return instance


def _is_made_by_decorator(klass: Class, call: Call) -> bool:
    """Whether an unknown decorator has given a class its constructor: that of `object` takes no
    arguments."""
    if not call.values or not klass.node.decorators or klass.dataclass:
        return False
    own = klass.lookup("__init__") or klass.lookup("__new__") or klass.node.keywords
    return not own and not klass.library_bases() and not klass.has_unknown_base()


def instance_lacks(instance: Instance, name: str) -> bool:
    """Whether an object certainly has no attribute of this name."""
    klass = instance.cls
    if instance.attributes_unknown or klass.has_unknown_base() or name.startswith("__"):
        return False
    if name in instance.attributes or not PLAIN_BASES.issuperset(klass.library_bases()):
        return False
    own = (name, "__getattr__", "__getattribute__")
    if any(klass.lookup(one) is not None for one in own):
        return False
    return not any(may_set(one, name) for one in klass.mro())


def set_fields(run: Run, instance: Instance, klass: Class, call: Call) -> None:
    """Set the fields of an object as the constructor does that a decorator has made."""
    fields = dataclass_fields(run, klass)
    for name, value in zip(fields, call.args, strict=False):
        instance.attributes[name] = value
    for name, value in call.kwargs.items():
        instance.attributes[name] = value
    for name in fields:
        if name not in instance.attributes:
            default = klass.lookup(name)
            if isinstance(default, LibraryObject) and default.name == MADE_FIELD:
                default = run.settle(run.call(default.args["default_factory"], Call(call.node)))
                default = default if matters(default) else None  # a user may override a setting
            # A default that a user may override from outside: not a constant of the program.
            origin = f"{klass.name}.{name}"
            if default is None or isinstance(default, Const | Unknown):
                if default is not None:
                    run.setting_defaults[origin] = default
                run.setting_fields.add(origin)
                default = rank_default(name, origin, default) or _setting(
                    klass, name, default, open_call=call.open
                )
            instance.attributes[name] = default


def _setting(klass: Class, name: str, default: Value | None, *, open_call: bool) -> Unknown:
    """The value of a field that a user may set, or that has its default."""
    is_default = isinstance(default, Const) and not open_call
    made = Unknown(f"{klass.name}.{name}", default=default, is_default=is_default)
    known = isinstance(default, Const) and default.value is not None
    made.present = is_default and known and holds_no_none(klass, name)
    return made
