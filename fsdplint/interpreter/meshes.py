"""Device meshes that are given to functions, and parts of them (`mesh["tp"]`)."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import MeshPosition, RankValue
from fsdplint.interpreter.values import (
    LibraryObject,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace import MeshBuilt, Ranks


@dataclass(frozen=True)
class Mesh:
    """A mesh, or a part of one.

    Attributes:
        id: the name in the trace of the mesh, or of the mesh that it is a part of; "" if unknown.
        dims: the names of its dimensions; empty if they are unknown.
        has_all_ranks: whether it has one dimension, which has all ranks in their order.
    """

    id: str = ""
    dims: tuple[str, ...] = ()
    is_whole: bool = False
    has_all_ranks: bool = False


def mesh_of(run: Run, value: Value | None) -> Mesh:
    """The mesh that a value is."""
    value = run.settle(value) if value is not None else None
    if not isinstance(value, LibraryObject):
        return Mesh()
    whole = value.get("whole")
    if whole is not None:
        mesh, dims = mesh_of(run, whole), _chosen_dimensions(run, value.get("chosen"))
        return Mesh(mesh.id, dims, has_all_ranks=mesh.has_all_ranks and dims == mesh.dims)
    if not value.name.endswith(".init_device_mesh"):
        return Mesh()
    name = str(constant(value.get("id")) or "")
    built = [one for one in run.trace.of(MeshBuilt) if one.mesh == name]
    dims = built[-1].dim_names if built else ()
    has_all_ranks = bool(built) and len(built[-1].shape) == 1
    return Mesh(name, () if "?" in dims else dims, is_whole=True, has_all_ranks=has_all_ranks)


def whole_of(value: LibraryObject) -> LibraryObject:
    """The mesh that a mesh is a part of, or the mesh itself."""
    whole = value.get("whole")
    return whole_of(whole) if isinstance(whole, LibraryObject) else value


def has_all_ranks(run: Run, mesh: Mesh, names: tuple[str, ...]) -> bool:
    """Whether some dimensions of a mesh have all ranks: it has no others of more than one rank."""
    built = [one for one in run.trace.of(MeshBuilt) if one.mesh == mesh.id]
    if mesh.has_all_ranks or not built or len(built[-1].shape) != len(built[-1].dim_names):
        return mesh.has_all_ranks
    sizes = zip(built[-1].dim_names, built[-1].shape, strict=True)
    used = {one for name in names for one in run.flattened.get((mesh.id, name), (name,))}
    return all(size == 1 for name, size in sizes if name not in used)


def note_group(run: Run, mesh: Mesh, names: tuple[str, ...], group: Value) -> None:
    """Note the process group of some dimensions of a mesh, for the collectives that get it."""
    if not mesh.id or not names:
        return
    (run.whole_groups if has_all_ranks(run, mesh, names) else run.part_groups).add(group)
    if len(names) == 1:
        run.places[group] = MeshPosition(by_process=True, mesh=mesh.id, dimension=names[0])


def rank_in_group(run: Run, group: Value) -> RankValue:
    """The number of the rank in a process group, which says where it is in a mesh."""
    group = run.settle(group)
    if group in run.whole_groups:
        return RankValue("global")
    rank, place = RankValue("group"), run.places.get(group)
    if place is not None:
        run.positions[rank] = place
    return rank


@dataclass(frozen=True)
class GroupRanks:
    """The ranks that a collective with a process group, or with a mesh, is for.

    whole: certainly all of them. of_mesh: the ranks along dimensions of a mesh. unknown: perhaps
    all of them.
    """

    whole: bool = False
    of_mesh: bool = False
    unknown: bool = False


def ranks_of_group(run: Run, value: Value | None) -> GroupRanks:
    """The ranks of a process group, of a mesh, or of a mesh with the number of a dimension."""
    value = run.settle(value) if value is not None else None
    if value is None:
        return GroupRanks(unknown=True)
    if isinstance(value, Symbol) and value.name.endswith("group.WORLD"):
        return GroupRanks(whole=True)
    names: tuple[str, ...] | None = None
    if isinstance(value, Sequence) and len(value.items) == 2:
        number = constant(run.settle(value.items[1]))
        value = run.settle(value.items[0])
        dims = mesh_of(run, value).dims
        known = isinstance(number, int) and -len(dims) <= number < len(dims)
        names = (dims[number],) if known else ()
    mesh = mesh_of(run, value)
    if mesh.id:
        dims = mesh.dims if names is None else names
        whole = mesh.has_all_ranks or (bool(dims) and has_all_ranks(run, mesh, dims))
        return GroupRanks(whole=whole, of_mesh=True)
    if value in run.whole_groups:
        return GroupRanks(whole=True)
    if isinstance(value, Unknown):
        part = value in run.part_groups
        return GroupRanks(of_mesh=part, unknown=not part)
    return GroupRanks()


def waits_for_others(run: Run, ranks: GroupRanks) -> bool:
    """Whether a collective for some ranks waits for ranks of other branches.

    A part of a mesh has other ranks than the one that a test of the global rank tells from them.
    """
    return ranks.whole or (ranks.of_mesh and one_rank_differs(run))


def one_rank_differs(run: Run) -> bool:
    """Whether a test tells one rank from all others at this point."""
    return run.ranks() in (Ranks.ONE, Ranks.OTHERS)


def _chosen_dimensions(run: Run, value: Value | None) -> tuple[str, ...]:
    """The names of dimensions in `mesh["dp", "tp"]`; empty if one is unknown."""
    value = run.settle(value) if value is not None else None
    if isinstance(value, Sequence):
        names = () if value.open else tuple(constant(run.settle(one)) for one in value.items)
    else:
        names = (constant(value),)
    return tuple(map(str, names)) if all(isinstance(one, str) for one in names) else ()
