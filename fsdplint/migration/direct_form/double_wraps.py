"""Modules that a program wraps twice: `wrap(wrap(module))`.

The outer unit has no parameters of its own, so it gathers and reduces nothing.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.direct_form.inlining import Inlining

WRAP = "wrap"


def rewrite_call(inlining: Inlining, node: cst.Call) -> bool:
    """`wrap(wrap(module))` becomes `wrap(module)`; whether a call has this form.

    Both calls get their arguments from the block around them.
    """
    migration = inlining.migration
    inner = node.args[0].value if len(node.args) == 1 else None
    if not isinstance(inner, cst.Call) or len(inner.args) != 1 or node.args[0].keyword is not None:
        return False
    if any(migration.called_name(one) != WRAP for one in (node, inner)):
        return False
    module = inner.args[0]
    if module.star or module.keyword is not None or node.args[0].star:
        return False
    inlining.put_call(node, inlining.text(node.func), [inlining.text(module.value)])
    return True
