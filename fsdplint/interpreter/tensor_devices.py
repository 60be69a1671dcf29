"""What is known of devices, and which tensors are certainly on the CPU."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.meta_device import device_name
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import TensorValue
from fsdplint.interpreter.values import Const, LibraryObject, Unknown, Value, constant

# Operations whose result is on the device of their operands.
_STAY = frozenset(
    "abs add clone contiguous detach div double exp flatten float log long matmul max mean min mul "
    "neg norm other pow reshape square squeeze sqrt std sub sum unsqueeze var view".split()
)


def device_attribute(run: Run, device: LibraryObject, name: str) -> Value | None:
    """The type or the index of a `torch.device`; None if it is not known."""
    if device.name != "torch.device" or device.open:
        return None
    if name == "index":
        return device.get("1", "index")
    known = device_name(run, device) if name == "type" else None
    return Const(known.partition(":")[0]) if known is not None else None


def is_cpu(run: Run, device: Value | None) -> bool:
    """Whether a value certainly is the CPU as a device."""
    return device is not None and names_cpu(run.settle(device))


def copies_to_cpu(call: Call) -> bool:
    """Whether a call of `to` certainly copies a tensor from an accelerator to the CPU."""
    return any(map(names_cpu, call.values))


def names_cpu(device: Value) -> bool:
    """Whether a settled value is the CPU."""
    if isinstance(device, LibraryObject) and device.name == "torch.device":
        device = device.get("0", "type") or device
    return constant(device) == "cpu"


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """Note whether the result of an operation is on the CPU.

    An operation in place, and one that returns its operand, changes nothing.
    """
    if not isinstance(result, Unknown | TensorValue) or any(one is result for one in operands):
        return
    if name == "cpu" or (name == "to" and any(is_cpu(run, one) for one in operands[1:])):
        result.on_cpu = True
    elif name in _STAY:
        tensors = [one for one in operands if not isinstance(one, Const)]
        result.on_cpu = bool(tensors) and all(map(_is_on_cpu, tensors))


def _is_on_cpu(value: Value) -> bool:
    return isinstance(value, Unknown | TensorValue) and value.on_cpu
