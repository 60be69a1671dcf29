"""Replaces the values that a program reads and fake tensors do not have.

A number is 1. Tests have their result in a normal run: everything is finite, nothing is NaN,
comparisons are false, and `all` is true. An address is that of the storage. Nothing is saved.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fsdplint.runtime.simulation.switch import SIMULATION, substitute

_TRUE = "_fsdplint_true"


_Mode: Any = TorchDispatchMode


class Scalars(_Mode):
    """Gives a value for a fake tensor with one element."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch._subclasses.fake_tensor import FakeTensor

        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return self._value(args[0])
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket is torch.ops.aten.all and isinstance(result, FakeTensor):
            setattr(result, _TRUE, True)
        return result

    def _value(self, tensor: Any) -> Any:
        if tensor.constant is not None:
            with SIMULATION.real_tensors():
                return tensor.constant.item()
        if tensor.dtype == torch.bool:
            return hasattr(tensor, _TRUE)
        return 1.0 if tensor.is_floating_point() else 1


def install() -> None:
    """Replace functions that need values, before the program imports them."""
    import torch.distributed.checkpoint as dcp
    import torch.distributed.checkpoint.state_dict_saver as saver

    for name, value in (("isfinite", True), ("isnan", False), ("isinf", False)):
        function = _constant(value)
        substitute(getattr(torch, name), function)
        setattr(torch.Tensor, name, lambda self, function=function: function(None, self))
    tensor: Any = torch.Tensor
    tensor.__format__ = _format(tensor.__format__)
    tensor.numpy = _numpy(tensor.numpy)
    tensor.tolist = _tolist(tensor.tolist)
    tensor.data_ptr = _data_ptr(tensor.data_ptr)
    storage: Any = torch.UntypedStorage
    storage.data_ptr = _storage_ptr(storage.data_ptr)
    substitute(torch.save, _do_not_save)
    for name in ("save", "async_save", "save_state_dict"):
        original = getattr(dcp, name, None) or getattr(saver, name, None)
        if original is not None:
            substitute(original, _do_not_save)
    scaler: Any = torch.amp.GradScaler
    scaler._maybe_opt_step = _step
    # The module itself runs instead of compiled code.
    import torch._dynamo as dynamo

    dynamo.config.disable = True


def _constant(value: bool) -> Any:
    def function(original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        with SIMULATION.real_tensors():
            return torch.tensor(value).expand(tensor.shape)

    return function


def _is_fake(tensor: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(getattr(tensor, "_local_tensor", tensor), FakeTensor)


def _format(original: Any) -> Any:
    def __format__(self: Any, spec: str) -> str:
        if _is_fake(self) and self.dim() == 0:
            return str(format(self.item(), spec))
        return str(original(self, spec))

    return __format__


def _array_of_ones(tensor: Any) -> Any:
    import numpy

    names = {torch.bfloat16: "float32", torch.bool: "bool"}
    name = names.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
    return numpy.ones(tuple(tensor.shape), dtype=name)


def _numpy(original: Any) -> Any:
    def numpy(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _array_of_ones(self) if _is_fake(self) else original(self, *args, **kwargs)

    return numpy


def _tolist(original: Any) -> Any:
    def tolist(self: Any) -> Any:
        return _array_of_ones(self).tolist() if _is_fake(self) else original(self)

    return tolist


def _storage_ptr(original: Any) -> Any:
    """FSDP1 reads whether a storage is allocated, and whether two tensors share one."""

    def data_ptr(self: Any) -> int:
        if self.device.type != "meta":
            return int(original(self))
        return int(self._cdata) if self.nbytes() else 0

    return data_ptr


def _data_ptr(original: Any) -> Any:
    def data_ptr(self: Any) -> int:
        if not _is_fake(self):
            return int(original(self))
        start = self.untyped_storage().data_ptr()
        return int(start + self.storage_offset() * self.element_size()) if start else 0

    return data_ptr


def _do_not_save(original: Any, *args: Any, **kwargs: Any) -> None:
    return None


def _step(self: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
    return optimizer.step(*args, **kwargs)
