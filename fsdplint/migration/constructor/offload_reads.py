"""Code that reads `offload_params` of a `CPUOffload`, which FSDP2's policies do not have."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.value_uses import Uses
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import CPU_OFFLOAD_ARGUMENTS
from fsdplint.migration.context import Migration, nodes
from fsdplint.source.source import Source

FIELD = "offload_params"


def rewrite(migration: Migration, source: Source) -> None:
    """Replace the field of a `CPUOffload` of a file by a test of the policy's class.

    Raises:
        Blocked: the program sets the field.
    """
    if not any(f".{FIELD}" in one.text for one in migration.sources):
        return
    for node in nodes(source):
        if migration.called_name(node) != "CPUOffload":
            continue
        for use in Uses(migration).of(source, node):
            place = use.place
            if isinstance(place, cst.Attribute) and place.value is use.node:
                if place.attr.value == FIELD and use.source in migration.sources:
                    _replace(migration, use.source, place)


def _replace(migration: Migration, source: Source, read: cst.Attribute) -> None:
    if isinstance(source.parent(read), cst.AssignTarget | cst.AugAssign):
        raise Blocked(source, read, CPU_OFFLOAD_ARGUMENTS())
    policy = migration.need(source, "torch.distributed.fsdp", "CPUOffloadPolicy", read)
    value = migration.text(source, read.value)
    migration.substitute(source, read, f"isinstance({value}, {policy})")
    migration.step(source, read, "Ask for the class of the policy")
