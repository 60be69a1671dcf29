"""torch.cuda as a program sees it on a machine with one device a rank."""

from __future__ import annotations

import collections
import contextlib
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from fsdplint.shim import patching
from fsdplint.shim.emulation import EMULATION, asked_by_user, missing, rerouted
from fsdplint.shim.emulation.devices import is_cuda

_MEMORY = 80 * 2**30
_NOTHING = (
    "synchronize",
    "empty_cache",
    "ipc_collect",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_accumulated_memory_stats",
    "set_per_process_memory_fraction",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
    "init",
    "set_stream",
    "set_sync_debug_mode",
)
_KINDS = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
_ZERO = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_cached",
    "max_memory_cached",
    "utilization",
    "temperature",
    "power_draw",
    "get_sync_debug_mode",
    "initial_seed",
)


def install() -> None:
    """What is watched too, or what torch itself also asks."""
    import torch

    for name, instead in (
        ("set_device", _set_device),
        ("is_available", _is_available),
        ("device_count", _device_count),
    ):
        original = getattr(torch.cuda, name)
        patching.replace(original, rerouted(original, instead))
    if hasattr(torch, "accelerator"):
        for name, other in (
            ("set_device_index", _set_device),
            ("set_device_idx", _set_device),
            ("is_available", _is_available),
            ("device_count", _device_count),
            ("current_accelerator", _current_accelerator),
        ):
            original = getattr(torch.accelerator, name, None)
            if original is not None:
                patching.replace(original, rerouted(original, other))
    original_init = torch.autocast.__init__
    torch.autocast.__init__ = rerouted(original_init, _autocast)  # type: ignore[method-assign]
    scaler = torch.amp.GradScaler
    scaler.__init__ = rerouted(scaler.__init__, _grad_scaler)  # type: ignore[method-assign]
    patching.replace(torch.load, rerouted(torch.load, _load))


def switch_on() -> None:
    """Give torch.cuda the functions that a CPU build does not have."""
    import torch

    cuda: Any = torch.cuda
    for name in _NOTHING:
        setattr(cuda, name, _giving(None))
    for name in _ZERO:
        setattr(cuda, name, _giving(0))
    cuda.current_device = lambda: EMULATION.device
    cuda.is_initialized = lambda: True
    cuda.is_bf16_supported = lambda *args, **kwargs: True
    cuda.get_device_name = lambda device=None: "CPU in place of a CUDA device"
    cuda.get_device_capability = lambda device=None: (8, 0)
    cuda.get_device_properties = _properties
    cuda.get_arch_list = lambda: []
    cuda.mem_get_info = lambda device=None: (_MEMORY, _MEMORY)
    cuda.memory_stats = lambda device=None: collections.defaultdict(int)
    cuda.memory_summary = lambda *args, **kwargs: "no memory of a CUDA device is in use\n"
    cuda.get_rng_state = lambda device=None: torch.get_rng_state()
    cuda.get_rng_state_all = lambda: [torch.get_rng_state()]
    cuda.Stream, cuda.Event = Stream, Event
    cuda.current_stream = lambda device=None: Stream()
    cuda.default_stream = lambda device=None: Stream()
    cuda.stream = lambda stream: contextlib.nullcontext(stream)
    cuda.device = lambda device: contextlib.nullcontext(device)
    cuda._lazy_init = _lazy_init
    with contextlib.suppress(ImportError):
        import torch.cuda.memory as memory

        for name in ("reset_peak_memory_stats", "empty_cache", "_record_memory_history"):
            setattr(memory, name, _giving(None))
        for name in _ZERO:
            if hasattr(memory, name):
                setattr(memory, name, _giving(0))
    cuda.nccl = SimpleNamespace(version=lambda: (2, 21, 5), is_available=lambda *args: True)
    sys.modules["torch.cuda.nccl"] = cuda.nccl
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(cuda.nvtx, name, _giving(None))
    cuda.nvtx.range = _range
    for kind in _KINDS:
        setattr(cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
    torch.cpu.device_count = lambda: EMULATION.count  # FSDP1 asks it for the ranks of a machine
    torch.Generator = _generator_class()  # type: ignore[assignment,misc]


def _giving(value: Any) -> Any:
    """A function of its own that gives this: torch.compile tells functions apart by identity."""
    return lambda *args, **kwargs: value


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


@contextlib.contextmanager
def _range(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


def _properties(device: Any = None) -> SimpleNamespace:
    return SimpleNamespace(
        name="CPU in place of a CUDA device",
        major=8,
        minor=0,
        total_memory=_MEMORY,
        multi_processor_count=1,
    )


def _lazy_init() -> None:
    """What torch.cuda runs ahead of anything that needs a device, and that we do not replace."""
    caller = sys._getframe(1).f_code.co_name
    raise missing(f"torch.cuda.{caller}")


# Devices ------------------------------------------------------------------------------------------


def _set_device(original: Any, device: Any) -> None:
    index = getattr(device, "index", device)
    if isinstance(device, str):
        index = int(device.rpartition(":")[2]) if ":" in device else 0
    if isinstance(index, int):
        if index >= EMULATION.count:
            raise RuntimeError("CUDA error: invalid device ordinal")
        EMULATION.device = index


def _is_available(original: Any) -> bool:
    """torch itself is told the truth: it would go on to call the driver."""
    return asked_by_user() or bool(original())


def _device_count(original: Any) -> int:
    return EMULATION.count if asked_by_user() else int(original())


def _current_accelerator(original: Any, *args: Any, **kwargs: Any) -> Any:
    import torch

    return torch.device("cuda") if asked_by_user() else original(*args, **kwargs)


def _generator_class() -> type:
    import torch

    original: Any = torch.Generator.__new__

    class Generator(torch.Generator):
        """torch.Generator that takes a CUDA device for the CPU."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return original(cls, device="cpu" if is_cuda(device) else device)

    return Generator


class Stream:
    """All work is done in order: a stream is nothing to wait for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device = EMULATION.device

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *args: Any) -> None:
        return None

    def record_event(self, event: Any = None) -> Any:
        event = event or Event()
        event.record()
        return event

    def query(self) -> bool:
        return True

    synchronize = wait_stream = wait_event = _nothing


class Event:
    """An event that is over as soon as it is recorded; knows the time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.time = time.perf_counter()

    def record(self, stream: Any = None) -> None:
        self.time = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        return (end.time - self.time) * 1000.0

    def query(self) -> bool:
        return True

    synchronize = wait = _nothing


# Mixed precision and loading ----------------------------------------------------------------------


def _autocast(original: Any, self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
    import torch

    if is_cuda(device_type):
        device_type = "cpu"
        if not args and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.float16  # CUDA's default; the CPU's is bfloat16
    original(self, device_type, *args, **kwargs)


def _grad_scaler(original: Any, self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
    original(self, "cpu" if is_cuda(device) else device, *args, **kwargs)


def _load(original: Any, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    if is_cuda(map_location) or isinstance(map_location, (dict, int)):
        map_location = "cpu"
    return original(f, map_location, *args, **kwargs)
