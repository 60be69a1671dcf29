"""Files that a program opens, and folders that it makes.

One rank may write a file, or make a folder, that others use: see `FileUsed`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

import libcst as cst

from fsdplint.interpreter.file_paths import may_depend_on_rank, path_pattern
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.library_classes import is_report
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.signals import is_in_try
from fsdplint.interpreter.values import Const, Symbol, Unknown, Value, constant
from fsdplint.trace import FileUsed, is_inside

WRITE, READ, FOLDER = "write", "read", "folder"
_MODES = {"w": WRITE, "x": WRITE, "r": READ}
# Functions with the position of the path, and what they do.
_FUNCTIONS = {
    "numpy.save": (0, WRITE),
    "numpy.savez": (0, WRITE),
    "numpy.savez_compressed": (0, WRITE),
    "numpy.load": (0, READ),
    "os.makedirs": (0, FOLDER),
    "os.mkdir": (0, FOLDER),
    "torch.load": (0, READ),
    "torch.save": (1, WRITE),
}
_METHODS = {
    "mkdir": FOLDER,
    "read_bytes": READ,
    "read_text": READ,
    "write_bytes": WRITE,
    "write_text": WRITE,
}
_PARENT = "parent"
_MAKES_NOTHING = re.compile(r"(builtins|json|os\.path|pathlib|re|shutil|sys|time|warnings)\.")


def note_call(run: Run, function: Value, call: Call) -> None:
    """Record what a call of a library function does with a file."""
    action, path = "", None
    if isinstance(function, Symbol):
        if function.name == "builtins.open":
            action, path = _mode_of(run, call.arg(1, "mode")), call.arg(0, "file")
        elif function.name in _FUNCTIONS:
            position, action = _FUNCTIONS[function.name]
            path = call.args[position] if position < len(call.args) else None
    elif isinstance(function, Unknown) and (owner := _path_of(function)) is not None:
        path, action = owner, _METHODS.get(_called_name(call), "")
    if action and path is not None:
        _emit(run, call, action, run.settle(path))
    elif not action and isinstance(function, Symbol | Unknown):
        _note_library(run, function, call)


def _note_library(run: Run, function: Symbol | Unknown, call: Call) -> None:
    """Record that a library may make a folder whose path, or one in it, the program gives it."""
    made = {one.path for one in run.trace.of(FileUsed) if one.action == FOLDER and one.path}
    name = function.name if isinstance(function, Symbol) else function.library
    if not made or _MAKES_NOTHING.match(name) or is_report(name.rpartition(".")[2]):
        return
    for value in map(run.settle, call.values):
        places = path_pattern(value), _folder_of(value)
        if any(is_inside(place, folder) for place in places for folder in made):
            _emit(run, call, FOLDER, value)


def may_have_waited_at(run: Run, node: cst.CSTNode | None) -> int:
    """The number of events when code out of sight may have waited for other ranks last.

    It may wait until now in a context of a library (`with main_process_first():`), and where the
    program catches that there is no file yet.
    """
    in_context = any(isinstance(one, Unknown) and not _is_file(one) for one in run.contexts)
    if in_context or (node is not None and is_in_try(run.source, node)):
        return len(run.trace.events)
    return run.may_have_waited_at


def _is_file(value: Unknown) -> bool:
    return value.origin.startswith("open(")


def note_joined(joined: Unknown, folder: Value) -> None:
    """Note the folder of a path that the program joins of a folder and a name."""
    joined.parts[_PARENT] = folder


def note_divided(result: Value, folder: Value) -> None:
    """Note that a division makes a path of pathlib, and the folder of it (`folder / name`)."""
    if isinstance(result, Unknown) and isinstance(folder, Unknown) and _is_path(folder):
        result.library = folder.library
        note_joined(result, folder)


def note_text(text: Unknown, parts: Sequence[str | Value | None]) -> None:
    """Note the folder of a path that an f-string makes: `f"{folder}/{name}"`."""
    if len(parts) < 2 or not isinstance(parts[0], Value):
        return
    if isinstance(parts[1], str) and parts[1].startswith("/"):
        note_joined(text, parts[0])


def _emit(run: Run, call: Call, action: str, path: Value) -> None:
    run.emit(
        FileUsed,
        call.node,
        action=action,
        path=path_pattern(path),
        folder=_folder_of(path),
        per_rank=may_depend_on_rank(path),
        waited_at=may_have_waited_at(run, call.node),
    )


def _mode_of(run: Run, mode: Value | None) -> str:
    """What a mode opens a file for; "" for both, for adding to it, or if unknown."""
    if mode is None:
        return READ
    text = constant(run.settle(mode))
    return _MODES.get(text[:1], "") if isinstance(text, str) and "+" not in text else ""


def _path_of(method: Unknown) -> Unknown | None:
    """The path of pathlib whose method a function is; None for any other function."""
    owner = method.owner
    return owner if owner is not None and _is_path(owner) else None


def _called_name(call: Call) -> str:
    """The attribute that a call reads its function from; "" for another call."""
    function = call.node.func if isinstance(call.node, cst.Call) else None
    return function.attr.value if isinstance(function, cst.Attribute) else ""


def _is_path(value: Unknown) -> bool:
    return value.library.startswith("pathlib.")


def _folder_of(path: Value) -> str:
    if isinstance(path, Const):
        return posixpath.dirname(str(path.value))
    folder = path.parts.get(_PARENT) if isinstance(path, Unknown) else None
    if folder is None or may_depend_on_rank(folder):
        return ""
    return path_pattern(folder)
