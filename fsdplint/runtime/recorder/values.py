"""Describes torch's values as text: options of constructors, layouts of state dicts."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fsdplint.trace import GradMode, Layout


def describe(value: Any) -> Any:
    """A constructor's argument as a constant, a dotted name, or text."""
    import torch

    if (
        value is None
        or isinstance(value, (bool, int, float, str))
        and not isinstance(value, enum.Enum)
    ):
        return value
    if isinstance(value, enum.Enum):
        return f"{dotted_name(type(value))}.{value.name}"
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    if isinstance(value, functools.partial):
        return f"functools.partial({dotted_name(value.func)})"
    if isinstance(value, type) or callable(value) and hasattr(value, "__qualname__"):
        return dotted_name(value)
    if isinstance(value, (tuple, list)) and len(value) < 10:
        return [describe(item) for item in value]
    fields = getattr(value, "__dataclass_fields__", None)
    if fields:
        parts = ", ".join(f"{name}={describe(getattr(value, name))}" for name in fields)
        return f"{dotted_name(type(value))}({parts})"
    return dotted_name(type(value)) + "(...)"


def dotted_name(value: Any) -> str:
    """The public dotted name of a class or function."""
    module = getattr(value, "__module__", "") or ""
    name = getattr(value, "__qualname__", type(value).__name__)
    return f"{public_module(module)}.{name}" if module else str(name)


def public_module(module: str) -> str:
    """The public module of a class or function that a private module of torch defines."""
    if module.startswith("torch.distributed.fsdp."):
        return (
            "torch.distributed.fsdp.wrap"
            if module.endswith(".wrap")
            else ("torch.distributed.fsdp")
        )
    if module.startswith("torch.nn.modules."):
        return "torch.nn"
    if module.startswith("torch.nn.parallel."):
        return "torch.nn.parallel"
    if module.startswith("torch.optim."):
        return "torch.optim"
    return module


def options(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The passed arguments by name, described as text."""
    import inspect

    try:
        bound = inspect.signature(function).bind_partial(*args, **kwargs).arguments
    except TypeError:
        bound = dict(kwargs)
    found: dict[str, Any] = {}
    for name, value in bound.items():
        if isinstance(value, dict) and name == "kwargs":
            found.update({key: describe(item) for key, item in value.items()})
        elif name not in ("self", "module"):
            found[name] = describe(value)
    return found


def tensors(value: Any, limit: int = 4000) -> Iterator[Any]:
    """The tensors in nested dicts, lists and tuples."""
    import torch

    stack = [value]
    seen = 0
    while stack and seen < limit:
        item = stack.pop()
        seen += 1
        if isinstance(item, torch.Tensor) or type(item).__name__ == "ShardedTensor":
            yield item
        elif isinstance(item, Mapping):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)


def is_sharded(tensor: Any) -> bool:
    """Whether a tensor object holds only this rank's part of the data."""
    if type(tensor).__name__ == "ShardedTensor":
        return True
    placements = getattr(tensor, "placements", None)
    if placements is None or not hasattr(tensor, "_local_tensor"):
        return False
    return any(not placement.is_replicate() for placement in placements)


def layout_of(value: Any) -> Layout | None:
    """SHARDED or FULL by the tensors in a state dict; None if it holds no tensor."""
    found = None
    for tensor in tensors(value):
        if is_sharded(tensor):
            return Layout.SHARDED
        if tensor.dim() > 0:  # an optimizer's step counter is never sharded
            found = Layout.FULL
    return found


def grad_mode() -> GradMode:
    """The current mode of autograd."""
    import torch

    if torch.is_inference_mode_enabled():
        return GradMode.INFERENCE
    return GradMode.ON if torch.is_grad_enabled() else GradMode.OFF


def sample(modules: Iterable[Any], parameters: int = 32, numbers: int = 8) -> str | None:
    """Some values of unsharded parameters, to compare ranks; None if there are none."""
    found: list[float] = []
    count = 0
    for module in modules:
        for parameter in module.parameters():
            if parameter.is_meta or hasattr(parameter, "placements") or count == parameters:
                continue
            count += 1
            found += parameter.detach().flatten()[:numbers].tolist()
    return repr(found) if found else None


def sums(module: Any) -> list[tuple[float, float]]:
    """Sums over each parameter, to see whether it changes."""
    parameters = [parameter.detach().double() for parameter in module.parameters()]
    return [(float(one.sum()), float(one.square().sum())) for one in parameters]


def is_mixed(tensors: Iterable[Any]) -> bool:
    """Whether DTensors and plain tensors are mixed."""
    return len({hasattr(tensor, "placements") for tensor in tensors}) > 1


def local_address(tensor: Any) -> int:
    """The memory of this rank's part of a DTensor; 0 for any other tensor."""
    local = getattr(tensor, "_local_tensor", None)
    return int(local.data_ptr()) if local is not None else 0
