"""Code that a program finds by a value: `getattr(module, name)`, `import_module(f"a.{name}")`.

The values come from arguments and settings files. So each module that they may name counts as used.
No file is decoded or parsed for this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fsdplint.discovery.walk import DEFAULT_EXCLUDES
from fsdplint.source.folders import Folder, is_marked

MAX_FOLDERS = 1_000  # of a project; the settings files of a larger one are not read
MAX_SETTINGS = 100_000  # bytes of a settings file; a larger one is data

_BY_VALUE = rb"\b(?:getattr|vars|getmembers)\s*"
_OWN_NAMES = re.compile(rb"\b(globals)\(\)\s*[\[.]|\b(sys\.modules)\[__name__\]")
_CALLEE = rb"(?<![\w.])(?P<callee>(?:\w+\s*\.\s*)*(?:%s))\s*\(\s*"
_IMPORTS = re.compile(
    _CALLEE % rb"import_module|__import__"
    + rb"""(?:name\s*=\s*)? (?: [fF]["'](?P<prefix>[.\w]*\.)\{ | ["'](?P<head>[.\w]*\.)["']\s*\+
    | ["'](?P<format>[.\w]*\.)(?:%s|\{) )""",
    re.VERBOSE,
)
_FINDERS = (
    b"instantiate(", b"get_class(", b"get_object(", b"get_method(", b"locate(", b"resolve_name(",
)  # fmt: skip
_PATHS = re.compile(_CALLEE % b"|".join(name[:-1] for name in _FINDERS))
_DOTTED = rb"(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*"
_IN_CODE = re.compile(rb"""["'](%s)["']""" % _DOTTED)
_IN_SETTINGS = re.compile(rb"""^[ \t-]*[\w"']+[ \t]*:[ \t]*["']?(%s)["']?[ \t]*$""" % _DOTTED, re.M)


@dataclass(frozen=True)
class Lookup:
    """A call that imports a module, or finds an object, by a value.

    Attributes:
        callee: the dotted name of what it calls.
        prefix: what the module's name begins with: the name of a package and a dot; empty if the
            value is a whole path.
    """

    callee: str
    prefix: str = ""


def reads_members(module: str, data: bytes) -> bool:
    """Whether a file with some content finds names of a module by values, as with `getattr`.

    module: the dotted name by which the file uses it.
    """
    name = module.encode()
    if b"(" + name not in data and name + b".__dict__" not in data:
        return False  # most files: the pattern costs more
    name = re.escape(name)
    pattern = rb"(?:%s)\(%s\s*[,)]|\b%s\.__dict__" % (_BY_VALUE, name, name)
    return re.search(pattern, data) is not None


def own_namespaces(data: bytes) -> set[str]:
    """The names by which a file finds its own names by values, as with `globals()[name]`."""
    if b"globals()" not in data and b"[__name__]" not in data:
        return set()
    return {_text(one or other) for one, other in _OWN_NAMES.findall(data)}


def lookups(data: bytes) -> Iterator[Lookup]:
    """The calls in a file that find modules or objects by values."""
    if b"import_module" in data or b"__import__" in data:
        for match in _IMPORTS.finditer(data):
            prefix = match.group("prefix") or match.group("head") or match.group("format")
            yield Lookup(_callee(match), _text(prefix))
    if any(name in data for name in _FINDERS):
        yield from {Lookup(_callee(match)) for match in _PATHS.finditer(data)}


def _callee(match: re.Match[bytes]) -> str:
    return "".join(_text(match.group("callee")).split())


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def paths_in_code(data: bytes) -> set[str]:
    """The dotted paths that the strings of a file are."""
    return {_text(path) for path in _IN_CODE.findall(data)}


def paths_in_settings(root: str) -> set[str]:
    """The dotted paths that are values in the YAML files of a project."""
    found: set[str] = set()
    todo = [root] if is_marked(Path(root)) else []
    for number, path in enumerate(todo):  # the loop extends it
        if number > MAX_FOLDERS:
            return set()
        folder = Folder(path)
        for name in folder.names:
            if name.endswith((".yaml", ".yml")):
                found |= _paths_in(os.path.join(path, name))
            elif "." not in name and name not in DEFAULT_EXCLUDES and folder.has_folder(name):
                if not os.path.islink(os.path.join(path, name)):
                    todo.append(os.path.join(path, name))
    return found


def _paths_in(file: str) -> set[str]:
    try:
        if os.path.getsize(file) > MAX_SETTINGS:
            return set()
        return {_text(path) for path in _IN_SETTINGS.findall(Path(file).read_bytes())}
    except OSError:
        return set()
