"""FSDP1's own names in the place of names that a file imports through other files."""

from __future__ import annotations

from fsdplint.migration.analysis.passed_names import passed_names
from fsdplint.migration.context import Migration


def rewrite_imports(migration: Migration) -> set[tuple[str, str]]:
    """Import names from torch that files import from one another.

    Returns the path and the spelling of the imports that passed them on.
    """
    dropped = set()
    for one in passed_names(migration.program):
        if not one.is_fsdp1:
            continue
        module, _, name = one.full.rpartition(".")
        for use in one.uses:
            text = migration.need(one.source, module, name, use)
            migration.substitute(one.source, use, text)
            migration.rewrite.remove_import_if_unused(one.source, one.local)
        dropped.add((one.origin.path, one.spelling))
    return dropped
