"""The uses of a value that a program keeps in a dict or a list, or takes from its command line."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.analysis.value_uses import Use, Uses
from fsdplint.source.source import Source

_GETTERS = ("get", "pop", "setdefault")
_GIVEN = ("default", "const", "type")  # of `add_argument`


class ItemUses(Uses):
    """Follows one value also into dicts, lists and arguments of the command line, and out of them."""

    def _step(self, source: Source, node: cst.CSTNode) -> Iterator[Use]:
        setting = _setting(source, node)
        if setting:
            self._follow_attribute(setting)
        whole = _holder(source, node)
        if whole is None:
            yield from super()._step(source, node)
            return
        for use in Uses(self.migration).of(source, whole):
            taken = _taken(use)
            if taken is not None:
                self._follow(use.source, taken)


def _holder(source: Source, node: cst.CSTNode) -> cst.CSTNode | None:
    """The display of a dict or a list that has a value as an item."""
    item = source.parent(node)
    whole = source.parent(item) if isinstance(item, cst.DictElement | cst.Element) else None
    is_value = isinstance(item, cst.Element) or (
        isinstance(item, cst.DictElement) and item.value is node
    )
    return whole if is_value and isinstance(whole, cst.Dict | cst.List) else None


def _setting(source: Source, node: cst.CSTNode) -> str:
    """The attribute with the argument for which `add_argument` gets a value; "" if it does not.

    A lambda that makes the value stands for it.
    """
    parent = source.parent(node)
    arg = source.parent(parent) if isinstance(parent, cst.Lambda) else parent
    call = source.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return ""
    keyword = arg.keyword.value if isinstance(arg, cst.Arg) and arg.keyword is not None else ""
    if call.func.attr.value != "add_argument" or keyword not in _GIVEN:
        return ""
    names = [
        str(one.value.evaluated_value)
        for one in call.args
        if isinstance(one.value, cst.SimpleString)
        if one.keyword is None or one.keyword.value == "dest"
    ]
    long = [name for name in names if not name.startswith("-") or name.startswith("--")]
    return (long or names or [""])[-1].lstrip("-").replace("-", "_")


def _taken(use: Use) -> cst.CSTNode | None:
    """The expression that takes an item out of a dict or a list."""
    place = use.place
    if isinstance(place, cst.Subscript) and place.value is use.node:
        return place
    call = use.source.parent(place) if isinstance(place, cst.Attribute) else None
    if isinstance(call, cst.Call) and isinstance(place, cst.Attribute) and call.func is place:
        return call if place.attr.value in _GETTERS else None
    return None
