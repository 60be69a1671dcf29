"""Constants that a name keeps because a setting skips the code that assigns another value to it.

A run without the setting of `weights = None` and `if args.pretrained: weights = load()` keeps None.
A later test of it depends on the setting, so that the search can try its other outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.interpreter.decided_values import with_keys
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Instance
from fsdplint.syntax.dotted import bound_by


def note_kept(run: Run, skipped: cst.CSTNode, keys: Sequence[str]) -> None:
    """Code is skipped because of conditions: they decide the constants that it would replace."""
    for name in _assigned(run, skipped):
        owner, _, attribute = name.rpartition(".")
        if not owner:
            names = run.scope.aliases.get(name, run.scope).names
        else:
            held = run.scope.lookup(owner)
            if not isinstance(held, Instance):
                continue
            names = held.attributes
        value = names.get(attribute)
        if isinstance(value, Const):
            names[attribute] = with_keys(value, keys)


def _assigned(run: Run, code: cst.CSTNode) -> frozenset[str]:
    known = run.project.bound.get(code)
    if known is None:
        known = run.project.bound[code] = frozenset(bound_by(code))
    return known
