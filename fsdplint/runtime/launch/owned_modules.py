"""Finds the modules that a list of parameters belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fsdplint.runtime.launch.records import Line


def largest_owned_modules(
    tree: Mapping[str, Line], owners: Sequence[str], absent: set[str]
) -> list[str]:
    """The largest modules whose parameters all belong to `owners`, without those of `absent`."""
    owning = set(owners)
    memo: dict[tuple[str, bool], bool | None] = {}

    def owns_all(name: str, flat: bool) -> bool | None:
        """Whether `owners` own all parameters below a module; None if it has no parameters."""
        key = name, flat
        if key in memo:
            return memo[key]
        memo[key] = None
        module = tree[name]
        if module["wrapper"] == "fsdp1":
            flat = False
        flat = flat or bool(module["flat"]) and name in owning
        found: bool | None = None
        if module["own"] > 0:
            found = flat or name in owning
        elif module["flat"] and name in owning:
            found = True
        for child in _child_names(module):
            part = owns_all(child, flat) if child in tree else None
            if part is not None:
                found = part if found is None else found and part
        memo[key] = found
        return found

    below = {child for module in tree.values() for child in _child_names(module)}
    result: list[str] = []
    todo = [name for name in tree if name not in below]
    while todo:
        name = todo.pop(0)
        if name in tree and owns_all(name, False) and name not in absent:
            result.append(name)
        elif name in tree:
            todo = _child_names(tree[name]) + todo
    covered: set[str] = set()
    for name in result:
        _collect(tree, name, covered)
    result.extend(name for name in owning if name not in covered)
    return list(dict.fromkeys(result))


def _collect(tree: Mapping[str, Line], name: str, found: set[str]) -> None:
    if name in found or name not in tree:
        return
    found.add(name)
    for child in _child_names(tree[name]):
        _collect(tree, child, found)


def _child_names(module: Line) -> list[str]:
    inner = [module["inner"]] if module["inner"] else []
    return inner + list(module["children"].values())
