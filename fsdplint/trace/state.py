"""Events of state: state dicts, files, reads of sharded tensors."""

from __future__ import annotations

from typing import ClassVar

from fsdplint.trace.base import Event, Layout, event
from fsdplint.trace.fields import combined, definition, differs, distinct, reference, unrecorded


@event
class StateTaken(Event):
    """A state dict was made. `of` is the module or optimizer, `api` the dotted call.

    rank0_only: rank 0 got the content and the other ranks an empty dict (full_state_dict with
        cpu_offload; FSDP1's rank0_only).
    """

    kind: ClassVar[str] = "state-taken"
    state: str = definition()
    of: str = reference(distinct=True)
    layout: Layout = Layout.UNKNOWN
    api: str = distinct(default="state_dict")
    rank0_only: bool = False


@event
class StateLoaded(Event):
    """A state dict went into a module or optimizer (`into`); layout is that of the state."""

    kind: ClassVar[str] = "state-loaded"
    into: str = reference(distinct=True)
    state: str | None = reference(default=None)
    layout: Layout = Layout.UNKNOWN
    api: str = distinct(default="load_state_dict")


@event
class TensorsMixed(Event):
    """One operation got plain tensors and sharded ones, which it refuses with an error.

    plain_modules, sharded_modules: the modules whose parameters they are, or are copies of
        (static traces only).
    """

    kind: ClassVar[str] = "tensors-mixed"
    api: str = distinct()
    plain_modules: tuple[str, ...] = unrecorded("the error does not name them", default=())
    sharded_modules: tuple[str, ...] = unrecorded("the error does not name them", default=())


@event
class RawRead(Event):
    """A tensor's memory was asked for by what knows nothing of DTensors, such as `numpy()`.

    layout: that of the tensor; UNKNOWN where it may be whole.
    of: the module whose tensor it is, where that is known.
    """

    kind: ClassVar[str] = "raw-read"
    api: str = distinct()
    layout: Layout = Layout.UNKNOWN
    of: str | None = unrecorded("the tensor may be no parameter", default=None)


@event
class Saved(Event):
    """Something was written to disk; `states` are the state dicts and `modules` the modules in it.

    per_rank: the path differs from rank to rank, or it cannot be told that it does not.
    path: the file, or the text in the program that makes its path; "" where that is not known.
    """

    kind: ClassVar[str] = "saved"
    api: str = distinct()
    states: tuple[str, ...] = reference(default=())
    modules: tuple[str, ...] = reference(default=())
    layouts: tuple[Layout, ...] = ()
    per_rank: bool = combined(differs, source="path", default=False)
    path: str = ""


@event
class Loaded(Event):
    """Something was read from disk (torch.load, dcp.load); `per_rank` and `path` as for `Saved`."""

    kind: ClassVar[str] = "loaded"
    api: str = distinct()
    state: str | None = definition(default=None)
    per_rank: bool = combined(differs, source="path", default=False)
    path: str = ""


@event
class PartialRead(Event):
    """A Python number was made of a reduction over a sharded parameter or gradient.

    api: "item", "float", "int" or "bool".
    reduction: what was taken: "norm", "sum", ...; CLIPPED for the norm that clipping gives,
        whose parts torch 2.10 puts together (static traces only).
    partial: False where it is not known that the tensor is a sharded one (static traces only).
    """

    kind: ClassVar[str] = "partial-read"
    CLIPPED: ClassVar[str] = "clip_grad_norm_"
    api: str = distinct()
    reduction: str = ""
    partial: bool = unrecorded("only partial tensors are recorded", default=True)
