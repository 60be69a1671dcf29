"""The device meshes that shardings get."""

from __future__ import annotations

from fsdplint.trace import MeshBuilt, Sharded, Trace, Wrapped


def mesh_of(trace: Trace, event: Sharded) -> MeshBuilt | None:
    """The event that built the mesh argument of `fully_shard`; None for a part of a mesh."""
    return _built(trace, event, event.mesh) if event.mesh else None


def whole_mesh_of(trace: Trace, event: Sharded) -> MeshBuilt | None:
    """The event that built the mesh that `fully_shard` gets, or gets a part of."""
    return _built(trace, event, event.whole_mesh) if event.whole_mesh else None


def sizes_of(trace: Trace, event: Sharded) -> tuple[int | None, ...]:
    """The sizes of the dimensions of the mesh argument, None for each unknown one.

    Empty if the number of dimensions is unknown.
    """
    mesh = whole_mesh_of(trace, event)
    if mesh is None:
        return ()
    if mesh.mesh == event.mesh:
        return mesh.shape
    sizes = dict(zip(mesh.dim_names, mesh.shape, strict=False))
    return tuple(sizes[name] for name in event.dims) if sizes.keys() >= set(event.dims) else ()


def covers(event: Sharded | Wrapped, mesh: MeshBuilt) -> bool:
    """Whether a sharding, with its replicas, certainly goes over all ranks of a mesh."""
    if event.mesh == mesh.mesh:
        return True
    if isinstance(event, Wrapped) or event.whole_mesh != mesh.mesh or not mesh.dim_names:
        return False
    return set(event.dims) == set(mesh.dim_names)


def _built(trace: Trace, event: Sharded, name: str) -> MeshBuilt | None:
    return next((mesh for mesh in trace.before(event, MeshBuilt) if mesh.mesh == name), None)
