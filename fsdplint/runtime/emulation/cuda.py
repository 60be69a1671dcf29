"""torch.cuda as a program sees it on a machine with one device a rank."""

from __future__ import annotations

import collections
import contextlib
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from fsdplint.runtime.emulation.devices import is_cuda
from fsdplint.runtime.emulation.switch import (
    EMULATION,
    called_by_program,
    not_emulated,
    when_emulated,
)
from fsdplint.runtime.recorder import patching

_MEMORY = 80 * 2**30
_NO_OPS = (
    "synchronize",
    "empty_cache",
    "ipc_collect",
    "reset_peak_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_accumulated_memory_stats",
    "reset_accumulated_host_memory_stats",
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
    "_record_memory_history",
    "_set_allocator_settings",
    "_sleep",
)
_KINDS = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
_ZEROS = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_cached",
    "max_memory_cached",
    "memory_usage",
    "device_memory_used",
    "utilization",
    "temperature",
    "power_draw",
    "clock_rate",
    "get_sync_debug_mode",
    "initial_seed",
)
# These have no counterpart: a graph is recorded on the device, an allocator manages its memory.
_UNSUPPORTED = (
    "CUDAGraph",
    "make_graphed_callables",
    "graph_pool_handle",
    "MemPool",
    "CUDAPluggableAllocator",
    "change_current_allocator",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "ExternalStream",
    "get_stream_from_external",
)


def install() -> None:
    """Wrap the functions that the recorder watches or that torch itself calls."""
    import torch

    for name, instead in (
        ("set_device", _set_device),
        ("is_available", _is_available),
        ("device_count", _device_count),
    ):
        original = getattr(torch.cuda, name)
        patching.replace(original, when_emulated(original, instead))
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
                patching.replace(original, when_emulated(original, other))
    original_init = torch.autocast.__init__
    torch.autocast.__init__ = when_emulated(original_init, _autocast)  # type: ignore[method-assign]
    scaler = torch.amp.GradScaler
    scaler.__init__ = when_emulated(scaler.__init__, _grad_scaler)  # type: ignore[method-assign]
    patching.replace(torch.load, when_emulated(torch.load, _load))


def switch_on() -> None:
    """Give torch.cuda the functions that a CPU build does not have."""
    import torch

    cuda: Any = torch.cuda
    for name in _NO_OPS:
        _set_attribute(name, _constant_function(None))
    for name in _ZEROS:
        _set_attribute(name, _constant_function(0))
    for name in _UNSUPPORTED:
        _set_attribute(name, _unsupported_class(name))
    for name, value in _device_functions().items():
        _set_attribute(name, value)
    cuda._lazy_init = _lazy_init
    cuda.nccl = SimpleNamespace(version=lambda: (2, 21, 5), is_available=lambda *args: True)
    sys.modules["torch.cuda.nccl"] = cuda.nccl
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(cuda.nvtx, name, _constant_function(None))
    cuda.nvtx.range = _range
    for name in ("start", "stop", "init"):
        setattr(cuda.profiler, name, _constant_function(None))
    for kind in _KINDS:
        setattr(cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
    torch.cpu.device_count = lambda: EMULATION.count  # FSDP1 takes it for the number of local ranks
    torch.Generator = _generator_class()  # type: ignore[assignment,misc]
    _emulate_version()


def _device_functions() -> dict[str, Any]:
    """Functions of torch.cuda about the device and its memory."""
    import torch

    def statistics() -> Any:
        """A function for one name: torch.compile does not accept two names of a function."""
        return _factory_function(lambda: collections.defaultdict(int))

    return {
        "current_device": lambda: EMULATION.device,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *args, **kwargs: True,
        "is_current_stream_capturing": lambda: False,
        "can_device_access_peer": lambda device, peer_device: True,
        "get_device_name": lambda device=None: "CPU in place of a CUDA device",
        "get_device_capability": lambda device=None: (8, 0),
        "get_device_properties": _properties,
        "get_arch_list": lambda: [],
        "get_allocator_backend": lambda: "native",
        "get_per_process_memory_fraction": lambda device=None: 1.0,
        "mem_get_info": lambda device=None: (_MEMORY, _MEMORY),
        "memory_stats": statistics(),
        "memory_stats_as_nested_dict": statistics(),
        "host_memory_stats": statistics(),
        "memory_summary": lambda *args, **kwargs: "no memory of a CUDA device is in use\n",
        "memory_snapshot": lambda *args, **kwargs: [],
        "_snapshot": lambda *args, **kwargs: _no_history(),
        "_dump_snapshot": _dump_snapshot,
        "default_generators": (torch.default_generator,) * EMULATION.count,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "Stream": Stream,
        "Event": Event,
        "current_stream": lambda device=None: Stream(),
        "default_stream": lambda device=None: Stream(),
        "stream": lambda stream: contextlib.nullcontext(stream),
        "device": lambda device: contextlib.nullcontext(device),
    }


def _set_attribute(name: str, value: Any) -> None:
    """Replace a name of torch.cuda and of its submodules, if torch has it."""
    import torch

    if hasattr(torch.cuda, name):
        setattr(torch.cuda, name, value)
    for module in (torch.cuda.memory, torch.cuda.random):
        if hasattr(module, name):
            setattr(module, name, value)


def _unsupported_class(name: str) -> Any:
    """A class for annotations and `isinstance` that cannot be instantiated."""

    def raises(self: Any, *args: Any, **kwargs: Any) -> None:
        raise not_emulated(f"torch.cuda.{name}")

    return type(name, (), {"__init__": raises, "__module__": "torch.cuda"})


def _emulate_version() -> None:
    """Emulate `torch.version.cuda` for programs, which test it for bfloat16, but not for torch."""
    import torch

    own: Any = torch.version
    true = vars(own).pop("cuda", None)

    def attribute(name: str) -> Any:
        if name == "cuda":
            return "12.8" if true is None and called_by_program() else true
        raise AttributeError(f"module 'torch.version' has no attribute {name!r}")

    own.__getattr__ = attribute


def _no_history() -> dict[str, Any]:
    return {"segments": [], "device_traces": [[]]}


def _dump_snapshot(filename: str = "dump_snapshot.pickle", *args: Any, **kwargs: Any) -> None:
    with open(filename, "wb") as file:
        pickle.dump(_no_history(), file)


def _factory_function(make: Callable[[], Any]) -> Any:
    return lambda *args, **kwargs: make()


def _constant_function(value: Any) -> Any:
    """A new function that returns `value`: torch.compile distinguishes functions by identity."""
    return lambda *args, **kwargs: value


def _do_nothing(*args: Any, **kwargs: Any) -> None:
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
        warp_size=32,
    )


def _lazy_init() -> None:
    """Called by every function of torch.cuda that needs a device and is not replaced here."""
    caller = sys._getframe(1).f_code.co_name
    raise not_emulated(f"torch.cuda.{caller}")


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
    """Only programs see a device: torch itself would call the driver."""
    return called_by_program() or bool(original())


def _device_count(original: Any) -> int:
    return EMULATION.count if called_by_program() else int(original())


def _current_accelerator(original: Any, *args: Any, **kwargs: Any) -> Any:
    import torch

    return torch.device("cuda") if called_by_program() else original(*args, **kwargs)


def _generator_class() -> type:
    import torch

    original: Any = torch.Generator.__new__

    class Generator(torch.Generator):
        """A torch.Generator that uses the CPU for a CUDA device."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return original(cls, device="cpu" if is_cuda(device) else device)

    return Generator


class Stream:
    """A stream without effect: all work runs in order."""

    cuda_stream = stream_id = device_index = 0

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.device = EMULATION.device
        self.priority = priority

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

    synchronize = wait_stream = wait_event = _do_nothing


class Event:
    """An event that completes when it is recorded; it stores the time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.time = time.perf_counter()

    def record(self, stream: Any = None) -> None:
        self.time = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        return (end.time - self.time) * 1000.0

    def query(self) -> bool:
        return True

    synchronize = wait = _do_nothing


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
