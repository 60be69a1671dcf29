"""FSDP515: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import MeshBuilt, Trace


class WrongMeshArgument(Rule):
    """`init_device_mesh` gets arguments that do not fit each other, or the other ranks.

    ## What it does
    Finds `init_device_mesh` with more or fewer names than dimensions, with the same name for two
    dimensions, with a dimension of zero ranks, with a `backend_override` for a dimension that the mesh does
    not have, with another shape on some ranks, and with the device type "gpu".

    ## Why is this bad?
    The call fails on every rank:

        RuntimeError: mesh_shape and mesh_dim_names should have same length!
        RuntimeError: Each mesh_dim_name must be unique.
        RuntimeError: Found invalid keys in backend_override

    torch has no device of the type "gpu", and `fully_shard` fails: `AttributeError: 'NoneType' object has no
    attribute 'current_device'`.

    With different shapes, the ranks wait for each other in the creation of the groups.

    ## Since
    torch 2.2, the first with `init_device_mesh`.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html (`init_device_mesh`)
    """

    code = "FSDP515"
    name = "wrong-mesh-argument"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(MeshBuilt):
            problem = _problem(event)
            if problem is None or event.site in seen:
                continue
            seen.add(event.site)
            what, advice = problem
            yield self.finding(event, f"`init_device_mesh` gets {what}", help=f"{advice}.")


def _problem(event: MeshBuilt) -> tuple[str, str] | None:
    """What is wrong with a mesh, and what to do."""
    names, shape = event.dim_names, event.shape
    if (event.device_type or "").lower() == "gpu":
        return "the device type `gpu`, which torch does not have", "Pass `cuda`"
    if event.shapes_differ:
        return "another shape on some ranks", "Give all ranks the same shape"
    strange = next((key for key in event.overridden if not _is_dimension(event, key)), None)
    if strange is not None:
        return (
            f"`backend_override` for `{strange}`, which is no dimension of the mesh",
            "Name a dimension of `mesh_dim_names`, or pass its number",
        )
    if 0 in shape:
        return f"the shape {_text_of(shape)}, which has no ranks", "Give each dimension at least 1"
    if not names or "?" in names:
        return None
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        return f"the name `{double}` for two dimensions", "Give each dimension a name of its own"
    if shape and len(shape) != len(names):
        return (
            f"{len(names)} names for {len(shape)} dimensions",
            "Give each dimension of `mesh_shape` one name",
        )
    return None


def _is_dimension(event: MeshBuilt, key: object) -> bool:
    """Whether a key of `backend_override` may be the name or number of a dimension."""
    if isinstance(key, int):
        return not event.shape or 0 <= key < len(event.shape)
    return key in event.dim_names or "?" in event.dim_names or key == "?"


def _text_of(shape: tuple[int | None, ...]) -> str:
    return "(" + ", ".join("?" if size is None else str(size) for size in shape) + ")"
