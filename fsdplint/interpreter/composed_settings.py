"""Settings that hydra composes: a file, and for each of its groups one of several files.

`- trainer: fsdp` under `defaults` takes `trainer/fsdp.yaml`. Another file of the group, or the
command line, may say something else, so each value is a setting with a default, as in
`fsdplint.interpreter.settings_files`. What the other files of the group say is offered for it.
https://hydra.cc/docs/advanced/defaults_list/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.settings_files import MAX_DEPTH, is_known
from fsdplint.interpreter.values import Const, Dict, Unknown

if TYPE_CHECKING:
    from fsdplint.source.config_source import ConfigSource, Mapping, Node

MAX_FILES = 24  # of a group, besides the one that is taken
MAX_NESTED = 3  # files that name groups of their own
_SUFFIX = ".yaml"
_GLOBAL = re.compile(r"^#\s*@package\s+_global_\s*$", re.MULTILINE)
_MODIFIERS = re.compile(r"^(?:optional|override)\s+")


@dataclass
class Leaf:
    """The values of a key in the files of a group, that of the chosen file first.

    Attributes:
        values: the values that are written out.
        default: whether the first one is that of the chosen file.
    """

    values: list[object]
    default: bool = True


Tree = dict[str, "Tree | Leaf"]


def composed_settings(run: Run, folder: str, file: str, origin: str) -> Unknown | None:
    """The settings of a program; None if the file cannot be read.

    Args:
        run: the run.
        folder: the folder of the settings files as the program writes it.
        file: the name of the file that names the others.
        origin: the name of the value that holds all settings.
    """
    name = file.removesuffix(_SUFFIX)
    composer = _Composer(run, PurePosixPath(folder))
    if composer.read(name) is None:
        return None
    return _value(run, composer.tree(name, 0), origin)


def _value(run: Run, tree: Tree, origin: str) -> Unknown:
    result = Unknown(origin, default=(entries := Dict(open=True)))
    for key, node in tree.items():
        name = f"{origin}.{key}"
        if isinstance(node, Leaf):
            default = Const(node.values[0]) if node.default and node.values else None
            value = Unknown(name, default=default)
            run.offered_settings[name] = tuple(node.values)
        else:
            value = _value(run, node, name)
        value.owner = result
        result.parts[key] = result.parts[f"[{key!r}]"] = entries.items[key] = value
    return result


class _Composer:
    """Reads the files of one folder."""

    def __init__(self, run: Run, folder: PurePosixPath) -> None:
        self._run = run
        self._folder = folder

    def read(self, name: str) -> ConfigSource | None:
        """The file of a name without a suffix, relative to the folder."""
        path = str(self._folder / f"{name}{_SUFFIX}")
        source = self._run.project.config(path, self._run.source.path)
        return source if source is not None and source.mapping is not None else None

    def tree(self, name: str, depth: int) -> Tree:
        """What a file and the groups under its `defaults` say, in the place that it is put."""
        source = self.read(name)
        mapping = source.mapping if source is not None else None
        if source is None or mapping is None:
            return {}
        group = name.rpartition("/")[0]
        result: Tree = {}
        own = _tree_of(mapping, 0)
        own.pop("defaults", None)
        _merge(result, own)
        defaults = mapping.get("defaults")
        if defaults is not None and depth < MAX_NESTED:
            for entry in _groups(defaults.value):
                self._add(result, group, *entry, depth + 1)
        return result

    def _add(self, result: Tree, group: str, option: str, chosen: list[str], depth: int) -> None:
        """Add the files of one group; option: empty for files that are merged as they are."""
        option, _, package = _MODIFIERS.sub("", option).partition("@")
        home = option.lstrip("/") if option.startswith("/") or not group else f"{group}/{option}"
        offered = [f"{home}/{name}".strip("/") for name in chosen]
        others = self._others(home, chosen) if option else []
        for number, name in enumerate([*offered, *others]):
            source = self.read(name)
            found = self.tree(name, depth)
            if number >= len(offered):
                _forget_defaults(found)
            is_global = source is not None and _GLOBAL.search(source.text) is not None
            slot = result
            path = [] if is_global or package == "_global_" else (package or option).split("/")
            for key in filter(None, path):
                inner = slot.setdefault(key, {})
                if isinstance(inner, Leaf):
                    break
                slot = inner
            else:
                _merge(slot, found)

    def _others(self, group: str, chosen: list[str]) -> list[str]:
        """The other files of a group."""
        names = self._run.project.config_names(str(self._folder / group), self._run.source.path)
        files = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
        return [f"{group}/{name}" for name in files if name not in chosen][:MAX_FILES]


def _groups(defaults: Node) -> Iterator[tuple[str, list[str]]]:
    """The groups of a list of defaults, each with the names of its files."""
    from fsdplint.source.config_source import Mapping, Scalar, Sequence

    for item in defaults.items if isinstance(defaults, Sequence) else ():
        if isinstance(item, Scalar) and item.text != "_self_":
            yield "", [item.text]
        for entry in item if isinstance(item, Mapping) else ():
            value = entry.value
            listed = value.items if isinstance(value, Sequence) else (value,)
            names = [one.text for one in listed if isinstance(one, Scalar) and is_known(one)]
            yield entry.key.text, [name.removesuffix(_SUFFIX) for name in names if name != "null"]


def _tree_of(mapping: Mapping, depth: int) -> Tree:
    from fsdplint.source.config_source import Mapping, Scalar

    result: Tree = {}
    for entry in mapping:
        if isinstance(entry.value, Mapping) and depth < MAX_DEPTH:
            result[entry.key.text] = _tree_of(entry.value, depth + 1)
        elif isinstance(entry.value, Scalar) and is_known(entry.value):
            result[entry.key.text] = Leaf([entry.value.value])
        else:
            result[entry.key.text] = Leaf([], default=False)
    return result


def _forget_defaults(tree: Tree) -> None:
    for node in tree.values():
        if isinstance(node, Leaf):
            node.default = False
        else:
            _forget_defaults(node)


def _merge(into: Tree, other: Tree) -> None:
    """Add what another file says; the default stays that of the first file that has the key."""
    for key, node in other.items():
        known = into.get(key)
        if known is None:
            into[key] = node
        elif isinstance(known, Leaf) and isinstance(node, Leaf):
            new = [value for value in node.values if value not in known.values]
            known.values = (
                [*new, *known.values]
                if node.default and not known.default
                else [*known.values, *new]
            )
            known.default = known.default or node.default
        elif not isinstance(known, Leaf) and not isinstance(node, Leaf):
            _merge(known, node)
