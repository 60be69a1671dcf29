"""`model.no_sync()` as a value that a `with` statement or an `ExitStack` enters elsewhere.

It may be given to `enter_context`, be the result of a function, or be an element of a list. A context
manager that switches FSDP2's reduction of gradients replaces it.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import top_level
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.state_dicts.state_functions import write_once
from fsdplint.source.source import Source


def rewrite_as_value(migration: Migration, source: Source, node: cst.Call) -> bool:
    """Replace a call of `no_sync` by one of a context manager; whether FSDP1 always wraps the model."""
    assert isinstance(node.func, cst.Attribute)
    model = node.func.value
    if node.args or migration.wrapping_of(model) != "always":
        return False
    text = expression(migration, source, model)
    migration.account_for(source, node.func)
    migration.substitute(source, node, f"{_context(migration, source, node)}({text})")
    return True


def _context(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """The name of the context manager, which the file gets if it has none."""
    top = top_level(source, at)
    decorator = migration.need(source, "contextlib", "contextmanager", top)
    return write_once(
        migration,
        source,
        top,
        "without_gradient_sync",
        [
            f"@{decorator}",
            "def without_gradient_sync(model):",
            '\t"""Reduce no gradients of a sharded model, for the time of a block."""',
            "\tmodel.set_requires_gradient_sync(False)",
            "\ttry:",
            "\t\tyield",
            "\tfinally:",
            "\t\tmodel.set_requires_gradient_sync(True)",
        ],
    )
