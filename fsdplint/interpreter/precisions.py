"""The dtype of the parameters of modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.neutral_contexts import is_neutral
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ParametersOf, RankValue
from fsdplint.interpreter.values import (
    Const,
    Context,
    LibraryObject,
    ModuleValue,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.trace import GuardKind, Module

# Methods that cast a module.
CASTS = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float64"}
# Methods that keep the dtype.
_KEEP = frozenset({"cpu", "cuda", "to_empty"})
_KEEP_PARAMETERS = frozenset({"clone", "contiguous", "cpu", "cuda", "detach"})
_NAMES = frozenset({"bfloat16", "float16", "float32", "float64"})
_ALIASES = {"half": "float16", "float": "float32", "double": "float64"}


def dtype_of_new(run: Run, call: Call) -> str:
    """The dtype of the parameters of a new module of torch.nn; "" if it is not certain."""
    given = [value for name, value in call.kwargs.items() if name not in ("dtype", "device")]
    if call.open or any(isinstance(value, Symbol) for value in [*call.args, *given]):
        return ""
    dtype = call.kwargs.get("dtype")
    dtype = run.settle(dtype) if dtype is not None else Const(None)
    if isinstance(dtype, Const) and dtype.value is None:
        surely = all(map(is_neutral, run.contexts))
        return "float32" if surely and not run.other_default_dtype else ""
    return dtype_name(dtype)


def dtype_of_loaded(run: Run, call: Call) -> str:
    """The dtype of a model that `from_pretrained(..., dtype=torch.bfloat16)` makes; "" if unknown.

    Quantized models have weights of other types. With float16, Transformers keeps some weights of
    some models in float32.
    """
    if call.open or any("quant" in key or key.startswith("load_in_") for key in call.kwargs):
        return ""
    dtype = call.kwargs.get("dtype") or call.kwargs.get("torch_dtype")
    name = dtype_name(run.settle(dtype)) if dtype is not None else ""
    return name if name != "float16" else ""


def dtype_name(dtype: Value) -> str:
    """The name of a dtype of torch without "torch."; "" for other values."""
    if isinstance(dtype, Unknown) and dtype.is_default and dtype.default is not None:
        dtype = dtype.default
    if not isinstance(dtype, Symbol) or not dtype.name.startswith("torch."):
        return ""
    name = dtype.name.removeprefix("torch.")
    name = _ALIASES.get(name, name)
    return name if name in _NAMES else ""


def weights_in_param_dtype(run: Run, modules: Iterable[ModuleValue], policy: Value | None) -> str:
    """See `Sharded.weights_in`. policy: the options of the mixed precision of FSDP1 or FSDP2."""
    param_dtype = _param_dtype(run, policy)
    trained = {dtype for module in modules for dtype in _trained_dtypes(run, module)}
    return f"torch.{param_dtype}" if param_dtype and trained == {param_dtype} else ""


def casts_weights(run: Run, module: ModuleValue, policy: Value | None) -> bool:
    """See `Wrapped.casts_weights`. policy: the mixed precision of FSDP1."""
    param_dtype = _param_dtype(run, policy)
    trained = {*_trained_dtypes(run, module)}
    return bool(param_dtype and trained) and not {"", param_dtype} & trained


def _param_dtype(run: Run, policy: Value | None) -> str:
    """The `param_dtype` of a mixed precision without "torch."; "" if it is not set or unknown."""
    policy = run.settle(policy) if policy is not None else None
    if not isinstance(policy, LibraryObject) or policy.open:
        return ""
    return dtype_name(policy.get("param_dtype", "0") or Const(None))


def _trained_dtypes(run: Run, module: ModuleValue) -> Iterator[str]:
    """The dtypes of the trainable parameters in a module; "" for those that are not certain."""
    family = [run.trace.modules[one] for one in run.trace.family(module.id)]
    unknown = any(not one.children_known and not _is_of_library(run, one) for one in family)
    if unknown or not run.trace.complete or run.trace.any_escaped([one.id for one in family]):
        yield ""
    for part in run.trace.submodules(module.id):
        info, held = run.trace.modules[part], run.objects.get(part)
        if info.own_parameters is not False and not info.frozen:
            yield held.dtype if isinstance(held, ModuleValue) else ""


def dtype_of_parameters(run: Run, value: ParametersOf) -> str:
    """The dtype of parameters, or of copies of them; "" if it is not certain."""
    if value.derived or value.dtype:
        return value.dtype
    parts = {part for module in value.modules for part in run.trace.submodules(module.id)}
    if not value.complete or run.trace.any_escaped([*parts]):
        return ""
    found = {
        held.dtype if isinstance(held, ModuleValue) else ""
        for part in parts
        if run.trace.modules[part].own_parameters is not False
        for held in [run.objects.get(part)]
    }
    known = all(run.trace.modules[part].children_known for part in parts)
    return found.pop() if known and len(found) == 1 else ""


def dtype_of_copy(run: Run, value: ParametersOf, method: str, call: Call) -> str:
    """The dtype of the result of a method of parameters; "" if it is not certain."""
    if method in CASTS:
        return CASTS[method]
    names = [dtype_name(run.settle(one)) for one in call.values]
    if method == "to" and any(names):
        return next(filter(None, names))
    keeps = method in _KEEP_PARAMETERS or (method == "to" and all(map(_is_no_dtype, call.values)))
    return dtype_of_parameters(run, value) if keeps and not call.open else ""


def _is_of_library(run: Run, info: Module) -> bool:
    """Whether a module is a model of a library, or a part of one that the program only reads."""
    if _is_opaque(info):
        return True
    above = [run.trace.modules[one] for one in run.trace.ancestors(info.id)]
    return info.qualified_class is None and any(map(_is_opaque, above))


def _is_opaque(info: Module) -> bool:
    """Whether a module is a model of a library, of which one cast sets the dtype of all parts.

    A container of torch has parts that the program makes, maybe in another dtype.
    """
    of_library = info.qualified_class is not None and not info.qualified_class.startswith("torch.")
    return info.own_parameters is None and of_library


def note_cast(run: Run, module: ModuleValue, method: str, dtype: str | None, call: Call) -> None:
    """`module.to(...)` and the like may give the parameters another dtype."""
    if method in _KEEP:
        return
    surely = all(entry.guard.kind is GuardKind.CONFIG for entry in run.guards)
    others = [run.settle(value) for value in call.values]
    if dtype is None and surely and not call.open and all(map(_is_no_dtype, others)):
        return
    new = _ALIASES.get(dtype or "", dtype or "") if surely else ""
    set_dtype(run, module, new if new in _NAMES else "")


def set_dtype(run: Run, module: ModuleValue, dtype: str) -> None:
    """All parameters of a module have a dtype now; "" if it is not certain."""
    for part in run.trace.submodules(module.id):
        held = run.objects.get(part)
        if isinstance(held, ModuleValue):
            held.dtype = dtype


def _is_no_dtype(value: Value) -> bool:
    """Whether an argument of `to` is certainly a device or an option."""
    if isinstance(value, LibraryObject):
        return value.name == "torch.device"
    return isinstance(value, Const | Context | RankValue)
