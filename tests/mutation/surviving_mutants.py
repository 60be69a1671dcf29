"""Planted bugs that a check does not find: (operator, program, line of the site) and the cause.

Each is a miss that `test_mutation.py` expects; one that is mended fails there until it is removed here.
"""

from __future__ import annotations

CAUSES: dict[str, list[tuple[str, str, int]]] = {
    "the rule leaves out FSDP1 wrappers with `ignored_states`": [
        ("inner_module_called", "fsdp1/frozen_states", 81),
    ],
    "the units of a policy by size are not known": [
        ("inner_module_called", "fsdp1/size_policy", 111),
    ],
}
MISSES = {miss: cause for cause, misses in CAUSES.items() for miss in misses}
