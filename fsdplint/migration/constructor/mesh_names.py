"""Names for the dimensions of the meshes of hybrid sharding, which FSDP2 requires."""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration.analysis.value_uses import Use, Uses
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import FSDP
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, elements

INIT = "torch.distributed.device_mesh.init_device_mesh"
OLD_INIT = "torch.distributed.init_device_mesh"


def rewrite(migration: Migration) -> None:
    """Name the dimensions of each two-dimensional mesh that reaches a constructor."""
    for source in migration.sources:
        for node in nodes(source):
            if isinstance(node, cst.Call) and migration.symbol(node.func) in (INIT, OLD_INIT):
                if _is_unnamed(node) and any(
                    _wraps(migration, use) for use in Uses(migration).of(source, node)
                ):
                    _name(migration, source, node)


def _is_unnamed(node: cst.Call) -> bool:
    """Whether a call makes a mesh of two dimensions without names."""
    named, rest = arguments(node, ("device_type", "mesh_shape"))
    shape = named.get("mesh_shape")
    if rest or shape is None or "mesh_dim_names" in named:
        return False
    parts = elements(shape.value)
    return parts is not None and len(parts) == 2


def _wraps(migration: Migration, use: Use) -> bool:
    arg = use.place
    if not isinstance(arg, cst.Arg) or arg.keyword is None:
        return False
    call = use.source.parent(arg)
    if arg.keyword.value != "device_mesh" or not isinstance(call, cst.Call):
        return False
    return migration.called_name(call) == FSDP or use.source.code(call.func) in ("dict", "partial")


def _name(migration: Migration, source: Source, node: cst.Call) -> None:
    names = ", ".join(string_literal(source, name) for name in ("replicate", "shard"))
    given = [migration.text(source, arg).rstrip().rstrip(",") for arg in node.args]
    given.append(f"mesh_dim_names=({names})")
    migration.put_call(source, node, source.code(node.func), given)
    migration.step(source, node, "Name the dimensions of the mesh")
