"""Numbers, and tensors without dimensions that are computed from numbers alone."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.torch_values import (
    ParametersOf,
    RankChoice,
    RankValue,
    ShardTensor,
    TensorValue,
)
from fsdplint.interpreter.values import (
    Condition,
    Const,
    Lazy,
    Method,
    Sequence,
    Symbol,
    Unknown,
    Value,
)

# Functions that return a number, or raise.
_NUMBERS = frozenset({"builtins.float", "builtins.int", "builtins.len"})
_CLOCKS = frozenset(f"time.{name}" for name in "monotonic perf_counter process_time time".split())
_OF_NUMBERS = frozenset(f"builtins.{name}" for name in "abs max min pow round sum".split())
# Functions that return a number or a tensor without dimensions if they get only these.
_KEEPS = frozenset(
    "abs acos add asin atan ceil clamp cos deg2rad div divide erf exp exp2 expm1 float16 float32 "
    "float64 floor log log10 log1p log2 logit max maximum min minimum mul multiply neg negative "
    "pow power reciprocal round rsqrt sigmoid sin softplus sqrt square sub subtract tan tanh "
    "true_divide".split()
)
# Functions that make one tensor of a list of them.
_JOINS = frozenset(f"torch.{name}" for name in "stack hstack vstack".split())
FEW = 16  # elements of a tensor that is no gradient
# Methods of tensors that keep the number of dimensions, beside those.
_METHODS = _KEEPS | frozenset(
    "bfloat16 clone contiguous cpu cuda detach double float half item requires_grad_ to "
    "type".split()
)
# Methods that count elements, dimensions or bytes.
_COUNTS = frozenset(("dim", "element_size", "ndimension", "nelement", "numel"))
# Methods that reduce all elements of a tensor, if they get no arguments.
_REDUCES = frozenset(("amax", "amin", "max", "mean", "min", "norm", "std", "sum", "var"))
# Functions of torch whose first argument is the size, and those that copy a number.
_OF_SIZE = frozenset(f"torch.{name}" for name in "empty full ones rand randn zeros".split())
_OF_NUMBER = frozenset({"torch.as_tensor", "torch.scalar_tensor", "torch.tensor"})


def is_dimensionless(value: Value | None) -> bool:
    """Whether a value is certainly a number, or a tensor without dimensions."""
    if isinstance(value, Const):
        return type(value.value) in (int, float)
    if not isinstance(value, Unknown | TensorValue):
        return False
    return value.dimensionless or value.number


def is_one(value: Value | None) -> bool:
    """Whether a value is certainly a number or a flag, also if another one on some rank."""
    if isinstance(value, RankChoice) and value.test is not None:
        return is_one(value.one) and is_one(value.two)
    flag = isinstance(value, Const) and isinstance(value.value, bool)
    return flag or is_dimensionless(value)


def is_number(value: Value | None) -> bool:
    """Whether a value is certainly a number of Python, and no tensor."""
    if isinstance(value, Const):
        return isinstance(value.value, int | float)
    if isinstance(value, RankValue):
        return True
    return isinstance(value, Unknown | TensorValue) and value.number


def note_number(function: Value, call: Call, result: Value) -> None:
    """Note that a call has returned a number of Python."""
    if result.created_at is not None or call.open:
        return
    if isinstance(result, Unknown | TensorValue):
        result.number = _returns_number(function, call)


def _returns_number(function: Value, call: Call) -> bool:
    if isinstance(function, Symbol):
        library = function.name.rpartition(".")[0]
        if library == "math" or function.name in _NUMBERS | _CLOCKS:
            return True
        return function.name in _OF_NUMBERS and all(map(is_number, call.values))
    if isinstance(function, Method):
        tensor = isinstance(function.receiver, TensorValue | ParametersOf | ShardTensor)
        return tensor and function.name in ("item", *_COUNTS)
    if isinstance(function, Unknown) and function.owner is not None and not call.values:
        parts = function.owner.parts
        return any(parts.get(name) is function for name in ("item", "nelement", "numel"))
    return False


def note_call(function: Value, call: Call, result: Value) -> None:
    """Note that a call has returned a number or a tensor without dimensions, or a small tensor."""
    if result.created_at is not None or call.open:
        return
    if not isinstance(result, Unknown | TensorValue):
        return
    if _joins_few(function, call):
        result.few_elements = True
    elif isinstance(function, Method) and _may_reduce(function, result):
        result.dimensionless = function.name in _REDUCES and not call.args and not call.kwargs
    elif not isinstance(result, Unknown):
        return
    elif isinstance(function, Symbol):
        result.dimensionless = _returns_one(function.name, call)
    elif isinstance(function, Unknown) and function.owner is not None:
        parts = function.owner.parts
        name = next((name for name, part in parts.items() if part is function), "")
        if name in _REDUCES:
            result.dimensionless = not call.args and not call.kwargs
        elif is_dimensionless(function.owner):
            of_numbers = name in ("to", "type") or _gets_numbers(call)
            result.dimensionless = name in _METHODS and of_numbers


def _may_reduce(method: Method, result: Unknown | TensorValue) -> bool:
    """Whether a method may reduce a tensor, also one of booleans that a comparison gave."""
    return type(result) is TensorValue or isinstance(method.receiver, Condition)


def _joins_few(function: Value, call: Call) -> bool:
    """Whether a call makes a small tensor of numbers: `torch.stack([loss, count])`."""
    if not isinstance(function, Symbol) or function.name not in _JOINS:
        return False
    parts = _elements(call.arg(0, "tensors"))
    return parts is not None and not parts.open and _all_dimensionless(parts)


def _elements(value: Value | None) -> Sequence | None:
    """A list, or what an iterator has given."""
    value = value.elements if isinstance(value, Lazy) else value
    return value if isinstance(value, Sequence) else None


def _all_dimensionless(parts: Sequence) -> bool:
    return 0 < len(parts.items) <= FEW and all(map(is_dimensionless, parts.items))


def _is_sum(call: Call) -> bool:
    """Whether Python's `sum` adds numbers and tensors without dimensions alone."""
    parts = _elements(call.args[0] if call.args else None)
    others = [*call.args[1:], *call.kwargs.values()]
    return parts is not None and _all_dimensionless(parts) and all(map(is_dimensionless, others))


def _returns_one(name: str, call: Call) -> bool:
    library, _, last = name.rpartition(".")
    if library == "math" or name in _NUMBERS:
        return True
    if name in _OF_SIZE:
        return _is_empty(call.arg(0, "size"))
    if name in _OF_NUMBER:
        return is_one(call.arg(0, "data"))
    if name == "builtins.sum":
        return _is_sum(call)
    known = library in ("builtins", "numpy", "torch") and last in _KEEPS
    return known and bool(call.args) and _gets_numbers(call)


def _gets_numbers(call: Call) -> bool:
    """Whether all operands of a call are certainly numbers or tensors without dimensions."""
    operands = [value for name, value in call.kwargs.items() if name not in ("device", "dtype")]
    return all(map(is_dimensionless, [*call.args, *operands]))


def _is_empty(size: Value | None) -> bool:
    return isinstance(size, Sequence) and not size.items and not size.open
