"""`model.no_sync()` as a value that a `with` statement or an `ExitStack` enters elsewhere.

It may be given to `enter_context`, be the result of a function, or be an element of a list. A context
manager that switches FSDP2's reduction of gradients replaces it. If the model may have another wrapper,
or none, the context manager uses the `no_sync` of that model.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.fixes.syntax import library_name
from fsdplint.migration.analysis.variables import top_level
from fsdplint.migration.context import Migration, expression, nodes
from fsdplint.migration.state_dicts.state_functions import write_once
from fsdplint.migration.training import no_sync_variables
from fsdplint.source.source import Source

SWITCH = "set_requires_gradient_sync"


def rewrite_as_value(migration: Migration, source: Source, node: cst.Call | cst.Attribute) -> None:
    """Replace `model.no_sync()`, or `model.no_sync` as a value, by a context manager."""
    function = node.func if isinstance(node, cst.Call) else node
    assert isinstance(function, cst.Attribute)
    text = expression(migration, source, function.value)
    context = _context(migration, source, node)
    migration.account_for(source, function)
    if isinstance(node, cst.Call):
        migration.substitute(source, node, f"{context}({text})")
    else:
        partial = migration.need(source, "functools", "partial", node)
        migration.substitute(source, node, f"{partial}({context}, {text})")


def _context(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """The name of the context manager, which the file gets if it has none."""
    top = top_level(source, at)
    decorator = library_name(migration.rewrite, source, "contextlib.contextmanager", top)
    summary = "Reduce no gradients of a sharded model, for the time of a block."
    others = [
        f"\tif not hasattr(model, {string_literal(source, SWITCH)}):",
        "\t\twith model.no_sync():",
        "\t\t\tyield",
        "\t\treturn",
    ]
    return write_once(
        migration,
        source,
        top,
        "without_gradient_sync",
        [
            f"@{decorator}",
            "def without_gradient_sync(model):",
            f'\t"""{summary}"""',
            *(others if _has_other_models(migration, source) else []),
            f"\tmodel.{SWITCH}(False)",
            "\ttry:",
            "\t\tyield",
            "\tfinally:",
            f"\t\tmodel.{SWITCH}(True)",
        ],
    )


def _has_other_models(migration: Migration, source: Source) -> bool:
    """Whether FSDP1 wraps a model whose `no_sync` a file uses in some configurations only."""
    uses = [n for n in nodes(source) if isinstance(n, cst.Attribute) and n.attr.value == "no_sync"]
    return any(
        migration.wrapping_of(use.value) != "always"
        or no_sync_variables.may_be_others(migration, source, use)
        for use in uses
    )
