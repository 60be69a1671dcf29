"""Replaces the other ranks by a fake process group, whose collectives return immediately."""

from __future__ import annotations

import contextlib
from pickle import PicklingError
from typing import Any

from fsdplint.runtime.emulation.switch import not_emulated
from fsdplint.runtime.simulation.switch import (
    SIMULATION,
    real_method,
    substitute,
    with_real_tensors,
)


def install() -> None:
    import torch.distributed.device_mesh as device_mesh
    import torch.distributed.distributed_c10d as c10d
    import torch.distributed.tensor._utils as layouts
    from torch.nn.parallel import DistributedDataParallel

    for name, replacement in (
        ("init_process_group", _init),
        ("new_group", _new_group),
        ("new_subgroups", _by_keyword),
        ("new_subgroups_by_enumeration", _by_keyword),
        ("barrier", _do_nothing),
        ("monitored_barrier", _do_nothing),
        ("broadcast_object_list", _broadcast_object_list),
        ("all_gather_object", _all_gather_object),
        ("gather_object", _gather_object),
        ("scatter_object_list", _scatter_object_list),
    ):
        original = getattr(c10d, name, None)
        if original is not None:
            substitute(original, replacement)
    substitute(device_mesh.init_device_mesh, with_real_tensors)
    for name in ("compute_local_shape_and_global_offset", "_compute_local_shape_and_global_offset"):
        original = getattr(layouts, name, None)
        if original is not None:
            substitute(original, with_real_tensors)  # computes a rank's rows with tensors
    parallel: Any = DistributedDataParallel
    parallel.__init__ = _refuse_ddp
    for name in _MESH:
        _method(device_mesh.DeviceMesh, name)


# Methods that read the numbers of ranks from the tensors of the mesh.
_MESH = (
    "__init__",
    "__getitem__",
    "__repr__",
    "_flatten",
    "_unflatten",
    "_get_all_submeshes",
    "from_group",
    "get_coordinate",
    "get_local_rank",
    "get_rank",
    "get_group",
    "get_all_groups",
)


def _method(owner: type, name: str) -> None:
    found = owner.__dict__.get(name)
    if found is None:
        return
    static = isinstance(found, staticmethod)
    original = found.__func__ if static else found

    method = real_method(original)
    setattr(owner, name, staticmethod(method) if static else method)


def _init(original: Any, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    timeout = kwargs.get("timeout")
    more = {} if timeout is None else {"timeout": timeout}
    with SIMULATION.real_tensors():
        return original(
            "fake", store=FakeStore(), rank=SIMULATION.rank, world_size=SIMULATION.world, **more
        )


def _new_group(
    original: Any,
    ranks: Any = None,
    timeout: Any = None,
    backend: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    kwargs = {key: value for key, value in kwargs.items() if key == "group_desc"}
    with SIMULATION.real_tensors():
        return original(ranks, timeout, "fake", **kwargs)


def _by_keyword(original: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs["backend"] = "fake"
    kwargs.pop("pg_options", None)
    return with_real_tensors(original, *args, **kwargs)


def _refuse_ddp(self: Any, *args: Any, **kwargs: Any) -> None:
    """Raise an error: the reducer needs memory, which fake tensors do not have."""
    raise not_emulated("DistributedDataParallel", "in a simulation")


def _do_nothing(original: Any, *args: Any, **kwargs: Any) -> None:
    return None


# The other ranks are assumed to send what this one has.


def _broadcast_object_list(
    original: Any, values: Any, src: Any = None, *args: Any, **kw: Any
) -> None:
    if src in (None, SIMULATION.rank) and kw.get("group_src") in (None, SIMULATION.rank):
        # It is sent only to count its bytes; tensors without values cannot be pickled.
        with (
            SIMULATION.real_tensors(),
            contextlib.suppress(TypeError, AttributeError, PicklingError),
        ):
            original(values, src, *args, **kw)


def _all_gather_object(
    original: Any, into: list[Any], value: Any, *args: Any, **kwargs: Any
) -> None:
    into[:] = [value] * len(into)


def _gather_object(original: Any, value: Any, into: Any = None, *args: Any, **kwargs: Any) -> None:
    if into is not None:
        into[:] = [value] * len(into)


def _scatter_object_list(
    original: Any, into: list[Any], values: Any = None, *args: Any, **kwargs: Any
) -> None:
    if values:
        into[0] = values[0]
