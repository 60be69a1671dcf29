"""What is known of a function that was read from an object that is not known."""

from __future__ import annotations

from fsdplint.interpreter.values import Unknown


def attribute_name(function: Unknown) -> str:
    """The name of the attribute that a function was read from."""
    parts = function.owner.parts if function.owner is not None else {}
    return next((name for name, part in parts.items() if part is function), "")


def library_of(function: Unknown) -> str:
    """The library whose object has a method; "" if that is not known."""
    owner = function.owner
    while owner is not None and not owner.library:
        owner = owner.owner
    return owner.library if owner is not None else ""
