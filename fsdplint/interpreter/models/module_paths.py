"""Paths of modules, such as "layers.0.attention", that a program takes apart."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import method
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ModulePath
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import Const, ModuleValue, Sequence, Unknown, Value, constant


@method("ModulePath", "rsplit", "rpartition", "split")
def cut(run: Run, receiver: ModulePath, name: str, call: Call) -> Value:
    """`path.rsplit(".", 1)`: the path of the module that holds the module, and its name there."""
    if receiver.names or constant(call.arg(0, "sep")) != ".":
        return unknown_result(call)
    limit = call.arg(1, "maxsplit")
    if name == "split":
        return list_of_names(receiver) if limit is None else unknown_result(call)
    if name == "rsplit" and constant(limit) != 1:
        return unknown_result(call)
    head, last = split_path(run, receiver)
    if name == "rsplit":
        return Sequence([head, last], "list")
    return Sequence([head, Const("."), last], "tuple")


def split_path(run: Run, path: ModulePath) -> tuple[Value, Value]:
    """The path of the module that holds the module of a path, and the name of this one in it."""
    found = _holder(run, path)
    if found is None:
        return Unknown(varying=True), Unknown(varying=True)
    holder, name = found
    known = not name.isdigit() and "*" not in name
    last = Const(name) if known else Unknown(varying=True)
    return ModulePath(varying=True, module=holder, root=path.root), last


def _holder(run: Run, path: ModulePath) -> tuple[ModuleValue, str] | None:
    """The only module of the model that holds a module, and the name by which it does."""
    if path.module is None or path.root is None:
        return None
    found = [
        (run.objects.get(part), name)
        for part in run.trace.submodules(path.root.id)
        for name, child in run.trace.modules[part].children.items()
        if child == path.module.id
    ]
    if len(found) != 1 or not isinstance(found[0][0], ModuleValue):
        return None
    return found[0][0], found[0][1]


def module_at(run: Run, root: ModuleValue, path: Value) -> ModuleValue | None:
    """The module of a model at a path of which the interpreter knows no text."""
    if not isinstance(path, ModulePath) or path.names or path.module is None:
        return None
    return path.module if run.trace.contains(root.id, path.module.id) else None


def joined(path: ModulePath) -> ModulePath:
    """`".".join(names)`"""
    return replace(path, names=False, parts={})


def slice_of(run: Run, names: ModulePath, item: cst.CSTNode) -> Value:
    """`names[:-1]`, the names without the last one."""
    whole = isinstance(item, cst.Slice) and item.lower is None and item.step is None
    upper = item.upper if whole and isinstance(item, cst.Slice) else None
    if upper is None or constant(run.eval(upper)) != -1:
        return Unknown(varying=True)
    return list_of_names(split_path(run, names)[0])


def list_of_names(path: Value) -> Value:
    """`path.split(".")`"""
    return replace(path, names=True, parts={}) if isinstance(path, ModulePath) else path


def name_at(run: Run, names: ModulePath, index: Value) -> Value:
    """`names[-1]`, the last name."""
    return split_path(run, names)[1] if constant(index) == -1 else Unknown(varying=True)
