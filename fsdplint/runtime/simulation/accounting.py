"""Counts the bytes of live tensors and of collectives, by watching every operation.

The count has the memory of the tensors, without the fragments and caches of an allocator. It works
for real and for fake tensors.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# The kind of a collective by a part of its operator's name.
_KINDS = (
    ("allgather", "all_gather"),
    ("all_gather", "all_gather"),
    ("reduce_scatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("all_reduce", "all_reduce"),
    ("alltoall", "all_to_all"),
    ("all_to_all", "all_to_all"),
    ("broadcast", "broadcast"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
)


_Mode: Any = TorchDispatchMode


class Accounting(_Mode):
    """Counts while it is entered.

    Attributes:
        live: the bytes of all live storages.
        peak: the maximum of `live` since `restart`.
        calls, sent: the calls and bytes of collectives by kind since `restart`; the bytes of a call
            are those of its largest tensor, as in the measures of the recorder.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self.calls: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self._sizes: dict[int, int] = {}
        self._resize: Callable[..., Any] | None = None

    def restart(self) -> None:
        """Reset the peak and the collectives, as at the start of a step."""
        self.peak = self.live
        self.calls, self.sent = Counter(), Counter()

    def __enter__(self) -> Accounting:
        storages: Any = torch.UntypedStorage
        original = self._resize = storages.resize_

        def resize_(storage: Any, size: int) -> Any:
            result = original(storage, size)
            self._hold(storage)
            return result

        # FSDP frees and allocates memory by resizing storages, which is no operation.
        storages.resize_ = resize_
        super().__enter__()
        return self

    def __exit__(self, *args: Any) -> None:
        super().__exit__(*args)
        storages: Any = torch.UntypedStorage
        if self._resize is not None:
            storages.resize_ = self._resize

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(_wraps(one) for one in types):
            return NotImplemented  # its operations on plain tensors come here afterwards
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        namespace = func.namespace
        if namespace in ("c10d", "_c10d_functional"):
            self._count_collective(func, args, kwargs)
        for tensor in plain_tensors((result, args) if namespace == "c10d" else result):
            self._hold(tensor.untyped_storage())
        return result

    def hold(self, values: Any) -> None:
        """Count tensors that exist already."""
        for tensor in plain_tensors(values):
            self._hold(tensor.untyped_storage())

    def _hold(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        known = self._sizes.get(key)
        if known is None:
            weakref.finalize(storage, self._release, key).atexit = False
        self._sizes[key] = size
        self.live += size - (known or 0)
        self.peak = max(self.peak, self.live)

    def _release(self, key: int) -> None:
        self.live -= self._sizes.pop(key, 0)

    def _count_collective(self, func: Any, args: Any, kwargs: Any) -> None:
        name = func._schema.name.partition("::")[2].strip("_")
        kind = next((kind for part, kind in _KINDS if part in name), "")
        if not kind:
            return  # a barrier, or the wait for a collective
        self.calls[kind] += 1
        self.sent[kind] += max(
            (size(list(plain_tensors(value))) for value in (*args, *kwargs.values())), default=0
        )


def _wraps(kind: type) -> bool:
    """Whether a class of tensors holds others (DTensor, AsyncCollectiveTensor)."""
    from torch._subclasses.fake_tensor import FakeTensor

    return issubclass(kind, torch.Tensor) and not (
        issubclass(kind, FakeTensor) or kind in (torch.Tensor, torch.nn.Parameter)
    )


def plain_tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a nested value; of a DTensor, the local tensor."""
    for leaf in tree_leaves(value):
        leaf = getattr(leaf, "_local_tensor", leaf)
        leaf = getattr(leaf, "elem", leaf)
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
            yield leaf


def size(values: Any) -> int:
    """Bytes of the tensors in a value, even if they share memory."""
    return sum(one.numel() * one.element_size() for one in plain_tensors(values))


def memory(values: Any) -> int:
    """Bytes of the storages that the tensors in a value keep alive."""
    found = {
        storage._cdata: storage.nbytes()
        for storage in (one.untyped_storage() for one in plain_tensors(values))
    }
    return sum(found.values())
