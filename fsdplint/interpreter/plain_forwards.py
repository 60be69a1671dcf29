"""Forwards that only compute: those of a frozen autoencoder or text encoder, for example.

Nothing that such a forward does matters for the contract but the modules that it calls: no module
in it is sharded, and the files of its code do not communicate. It is executed once for arguments of
the same kinds, although its lists, counters and caches have other contents in each call. What it
changed in the first call is unknown after a further one.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from fsdplint.interpreter.frames import Call, Change
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Dict, Instance, ModuleValue, Unknown, Value
from fsdplint.interpreter.values import Sequence as Items
from fsdplint.source.source import Source, once
from fsdplint.trace import Called

_COMMUNICATES = re.compile(
    r"torch\.distributed|\bdist\.|fsdp|fully_shard|DTensor|DeviceMesh|\.backward\(|autograd\.grad",
    re.IGNORECASE,
)
_KINDS = (bool, str, type(None))  # constants of which each is its own kind


@dataclass(frozen=True)
class Changed:
    """What a forward changed.

    arguments: the positions among the arguments. attributes: of objects. others: lists and dicts.
    """

    arguments: frozenset[int]
    attributes: tuple[tuple[ModuleValue | Instance, str], ...]
    others: tuple[Items | Dict, ...]


def may_be_plain(run: Run, module: ModuleValue, event: Called) -> bool:
    """Whether nothing that is sharded is in a module that a forward runs.

    event: the call.
    """
    if event.collective or event.summoned or event.summoned_by:
        return False
    return not run.trace.shardings() or run.trace.sharded_within(module.id) is None


@once
def is_plain(source: Source) -> bool:
    """Whether the code of a file neither communicates nor computes gradients."""
    return _COMMUNICATES.search(source.text) is None


def changed_by(run: Run, call: Call, changes: Sequence[Change]) -> Changed | None:
    """What a forward changed, in a form that holds for a further call; None if it has none."""
    arguments: set[int] = set()
    attributes: list[tuple[ModuleValue | Instance, str]] = []
    others: list[Items | Dict] = []
    given = [run.settle(value) for value in call.values]
    for value, attribute in changes:
        if attribute and isinstance(value, ModuleValue | Instance):
            if _holds_objects(value.attributes.get(attribute)):
                return None
            attributes.append((value, attribute))
        elif isinstance(value, Items | Dict):
            if any(map(_holds_objects, _elements(value))):
                return None
            position = next((i for i, one in enumerate(given) if one is value), None)
            if position is None:
                others.append(value)
            else:
                arguments.add(position)
        else:
            return None
    return Changed(frozenset(arguments), tuple(attributes), tuple(others))


def forget(run: Run, call: Call, changed: Changed) -> None:
    """Forget what a forward changes that is not executed again."""
    values = call.values
    given = [run.settle(values[position]) for position in changed.arguments]
    for value in (*given, *changed.others):
        if isinstance(value, Items):
            value.items, value.open, value.length = [Unknown() for _ in value.items], True, None
        elif isinstance(value, Dict):
            value.items = dict.fromkeys(value.items, Unknown())
            value.may_have_more()
        run.note_change(value)
    for owner, name in changed.attributes:
        owner.attributes[name] = Unknown()
        run.note_change(owner, name)


def kind_of(value: Value, otherwise: Hashable) -> Hashable:
    """The kind of an argument. otherwise: what tells a value that is no plain data from others."""
    if isinstance(value, Const):
        kind = type(value.value).__name__
        return ("constant", repr(value.value)) if isinstance(value.value, _KINDS) else kind
    if isinstance(value, Items | Dict):
        return type(value).__name__, bool(value.items), any(map(_holds_objects, _elements(value)))
    return otherwise


def _elements(value: Items | Dict) -> list[Value]:
    return list(value.items if isinstance(value, Items) else value.items.values())


def _holds_objects(value: Value | None) -> bool:
    """Whether a value is, or holds, an object that is no data."""
    return isinstance(value, ModuleValue | Instance | Items | Dict)
