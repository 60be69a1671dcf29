"""Device meshes: `init_device_mesh`, and the methods of a mesh or a part of one."""

from __future__ import annotations

import re

from fsdplint.interpreter import repeated_totals
from fsdplint.interpreter.decided_values import keys_of, with_keys
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.mesh_sizes import size_of_dimension
from fsdplint.interpreter.meshes import (
    Mesh,
    mesh_of,
    note_group,
    whole_of,
)
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.ranks import is_world_size
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import MeshPosition, MeshSize, RankChoice, RankValue
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import (
    Const,
    Dict,
    LibraryObject,
    Sequence,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import MeshBuilt, MeshFlattened
from fsdplint.trace.arguments import MESH_PART

DIST = "torch.distributed"


@function(f"{DIST}.device_mesh.init_device_mesh", f"{DIST}.init_device_mesh")
def device_mesh(run: Run, name: str, call: Call) -> Value:
    kind = constant(call.arg(0, "device_type"))
    shape = call.arg(1, "mesh_shape")
    names = call.kwargs.get("mesh_dim_names")
    sizes = [_size(run, v) for v in shape.items] if isinstance(shape, Sequence) else []
    known = isinstance(shape, Sequence) and not shape.open and not call.shifted
    dims = [constant(v) for v in names.items] if isinstance(names, Sequence) else ["?"]
    if (names is None or is_none(names)) and not call.open:
        dims = []
    mesh = run.new_id("mesh")
    run.emit(
        MeshBuilt,
        call.node,
        mesh=mesh,
        device_type=kind if isinstance(kind, str) else _prefix(call.arg(0, "device_type")),
        shape=tuple(s if isinstance(s, int) else None for s in sizes) if known else (),
        dim_names=tuple(d if isinstance(d, str) else "?" for d in dims),
        overridden=_keys(run.settle(call.kwargs.get("backend_override") or Unknown())),
        shapes_differ=_differs(run, shape),
        of_world=known and _is_of_world(run, shape),
    )
    made = LibraryObject(name, {"id": Const(mesh)})
    device_type = call.arg(0, "device_type")
    if device_type is not None:
        made.args["device_type"] = device_type
    return with_keys(made, tuple(keys_of(shape)) if shape is not None else ())


def _size(run: Run, value: Value) -> object:
    """A size of a mesh. A setting that a test has decided need not have its default."""
    value = run.settle(value)
    if isinstance(value, Unknown) and value.origin:
        if any(entry.key.startswith(value.origin) for entry in run.guards):
            return None
    return constant(value)


def _is_of_world(run: Run, shape: Value | None) -> bool:
    """Whether a shape certainly is one dimension of all ranks."""
    sizes = shape.items if isinstance(shape, Sequence) else []
    return len(sizes) == 1 and is_world_size(run.settle(sizes[0]))


def _keys(value: Value) -> tuple[object, ...]:
    """The keys of a dict; empty if it may have others."""
    return tuple(value.items) if isinstance(value, Dict) and not value.open else ()


def _differs(run: Run, shape: Value | None) -> bool:
    """Whether a shape, or a size in it, is certainly another one on some ranks."""
    value = run.settle(shape) if shape is not None else Unknown()
    sizes = [run.settle(item) for item in value.items] if isinstance(value, Sequence) else []
    return any(
        isinstance(one, RankValue) or (isinstance(one, RankChoice) and one.test is not None)
        for one in (value, *sizes)
    )


def _prefix(value: Value | None) -> str | None:
    """The known prefix of a computed device type: "cuda:" of `f"cuda:{rank}"`."""
    origin = value.origin if isinstance(value, Unknown) else ""
    found = re.match(r"""[fF]["']([a-z]+:)""", origin)
    return found[1] if found else None


@method("LibraryObject", "get_local_rank", "get_coordinate")
def place_in_mesh(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    """The position in one dimension of a mesh, or those in all of its dimensions."""
    mesh, known = mesh_of(run, receiver), not call.open
    if name == "get_coordinate":
        places = [_position(run, call, mesh, dim, f"[{at}]") for at, dim in enumerate(mesh.dims)]
        return Sequence(places, "list") if places and known else _unknown_position(run, call)
    given = constant(call.arg(0, "mesh_dim"))
    dims = (given,) if isinstance(given, str) else mesh.dims
    if isinstance(given, int) and -len(mesh.dims) <= given < len(mesh.dims):
        dims = (mesh.dims[given],)
    if mesh.has_all_ranks and len(dims) < 2 and known:
        return RankValue("global")
    if len(dims) == 1 and mesh.id and known:
        return _position(run, call, mesh, str(dims[0]))
    return _unknown_position(run, call)


def _position(run: Run, call: Call, mesh: Mesh, dimension: str, part: str = "") -> Value:
    if mesh.has_all_ranks or not mesh.id:
        return RankValue("global") if mesh.has_all_ranks else _unknown_position(run, call)
    origin = run.text(call.node) + part
    return MeshPosition(origin, by_process=True, mesh=mesh.id, dimension=dimension)


def _unknown_position(run: Run, call: Call) -> Value:
    return Unknown(origin=run.text(call.node), by_process=True)


@method("LibraryObject", "_flatten")
def flatten(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    """`mesh["dp", "cp"]._flatten("dp_cp")`: one dimension of several, which the whole mesh knows
    by this name from here on."""
    mesh = mesh_of(run, receiver)
    given = call.arg(0, "mesh_dim_name")
    flat = constant(given) if given is not None else "_".join(mesh.dims)
    if not mesh.id or not mesh.dims or not isinstance(flat, str) or call.open:
        return unknown_result(call)
    dims = tuple(one for dim in mesh.dims for one in run.flattened.get((mesh.id, dim), (dim,)))
    run.flattened[mesh.id, flat] = dims
    run.emit(MeshFlattened, call.node, mesh=mesh.id, name=flat, dims=dims)
    return LibraryObject(MESH_PART, {"whole": whole_of(receiver), "chosen": Const(flat)})


@method("LibraryObject", "get_rank")
def rank_in_mesh(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    """`mesh.get_rank()`, the number of the rank among all, also for a part of a mesh."""
    return RankValue("global") if mesh_of(run, receiver).id else unknown_result(call)


@method("LibraryObject", "get_group")
def group_of_mesh(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    """`mesh["dp"].get_group()`, which a collective can get."""
    mesh = mesh_of(run, receiver)
    group = unknown_result(call, run.text(call.node))
    known = bool(mesh.id and mesh.dims) and not call.open
    name = constant(call.arg(0, "mesh_dim"))
    names = (name,) if isinstance(name, str) else mesh.dims
    if known and isinstance(group, Unknown) and not (mesh.is_whole and len(names) != 1):
        note_group(run, mesh, names, group)
    return group


@method("LibraryObject", "size")
def size_of_mesh(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    mesh, origin = mesh_of(run, receiver), run.text(call.node)
    plain = not (call.values or call.open)
    number = call.arg(0, "mesh_dim")
    known = None if call.open else size_of_dimension(run, mesh, constant(number))
    if number is not None and not isinstance(number, Const):
        known = None
    if known is None:
        known = MeshSize(origin) if mesh.is_whole and plain else unknown_result(call, origin)
    if len(mesh.dims) == 1 and plain and not mesh.is_whole:
        repeated_totals.note_size(run, mesh.id, mesh.dims[0], known)
    return known
