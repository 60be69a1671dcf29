"""The names and sizes of the dimensions of a mesh: one value, however a program reads them.

`mesh["shard"].size()`, `mesh.size(1)` and `mesh.shape[1]` get one name, so that a run decides
their tests in the same way.
"""

from __future__ import annotations

from fsdplint.interpreter.meshes import Mesh, mesh_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import MeshSize
from fsdplint.interpreter.values import Const, LibraryObject, Sequence, Unknown, Value
from fsdplint.trace import MeshBuilt


def mesh_attribute(run: Run, value: LibraryObject, name: str) -> Value | None:
    """`mesh_dim_names`, `shape` or `ndim` of a mesh; None for what is no mesh, and for others."""
    if name not in _ATTRIBUTES:
        return None
    mesh = mesh_of(run, value)
    return _ATTRIBUTES[name](run, mesh) if mesh.id else None


def size_of_dimension(run: Run, mesh: Mesh, number: object) -> Value | None:
    """`mesh.size(number)`, or the number of ranks of a part of a mesh; None if it is unknown which
    dimension it is."""
    names = _dimensions(run, mesh)
    if number is None:
        return None if mesh.is_whole and len(names) != 1 else _size(mesh, names)
    if not isinstance(number, int) or not -len(names) <= number < len(names):
        return None
    return _size(mesh, (names[number],))


def _size(mesh: Mesh, names: tuple[str, ...]) -> Value | None:
    if not mesh.id or not names:
        return None
    origin = f"{mesh.id}[{', '.join(names)}].size()"
    return MeshSize(origin) if mesh.is_whole and mesh.has_all_ranks else Unknown(origin)


def _dimensions(run: Run, mesh: Mesh) -> tuple[str, ...]:
    """What tells the dimensions of a mesh apart: their names, or their numbers without names."""
    if mesh.dims or not mesh.is_whole:
        return mesh.dims
    built = _built(run, mesh)
    if built is None or built.dim_names:
        return ()
    return tuple(map(str, range(len(built.shape))))


def _built(run: Run, mesh: Mesh) -> MeshBuilt | None:
    return next((one for one in run.trace.of(MeshBuilt) if one.mesh == mesh.id), None)


def _names(run: Run, mesh: Mesh) -> Value:
    if mesh.dims:
        return Sequence([Const(name) for name in mesh.dims], "tuple")
    built = _built(run, mesh)
    unnamed = mesh.is_whole and built is not None and not built.dim_names
    return Const(None) if unnamed else Unknown(f"{mesh.id}.mesh_dim_names")


def _shape(run: Run, mesh: Mesh) -> Value:
    sizes = [_size(mesh, (name,)) for name in _dimensions(run, mesh)]
    known = [size for size in sizes if size is not None]
    return Sequence(known, "tuple") if known else Unknown(f"{mesh.id}.shape")


def _ndim(run: Run, mesh: Mesh) -> Value:
    count = len(_dimensions(run, mesh))
    return Const(count) if count else Unknown(f"{mesh.id}.ndim")


_ATTRIBUTES = {"mesh_dim_names": _names, "shape": _shape, "ndim": _ndim}
