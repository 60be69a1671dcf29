"""Entries of a state from which `load_state_dict` of a class restores something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from fsdplint.source.positions import descend
from fsdplint.syntax.dotted import dotted_name, dotted_names
from fsdplint.syntax.dropped_counters import key_read, parameter


def restores(load: cst.FunctionDef) -> Iterator[tuple[str, cst.Call]]:
    """The keys of a state from which a method restores something, each with the call.

    `if "ema" in state: self.ema.load_state_dict(state["ema"])`. What another key restores, too, is
    left out: such code reads checkpoints of an older form.
    """
    found = list(_calls_with_entries(load.body, parameter(load, 1)))
    for key, call in found:
        others = {name for other, one in found if other != key for name in _objects(one)}
        if set(_objects(call)) - others:
            yield key, call


def texts_in(code: Iterable[cst.CSTNode], without: cst.CSTNode) -> set[str]:
    """The constant texts in some code, but for those in a part of it."""
    own = {id(node) for node in descend(without)}
    nodes = (node for one in code for node in descend(one) if id(node) not in own)
    found = (node.evaluated_value for node in nodes if isinstance(node, cst.SimpleString))
    return {text for text in found if isinstance(text, str)}


def _calls_with_entries(code: cst.CSTNode, state: str) -> Iterator[tuple[str, cst.Call]]:
    """The calls that get an entry of a state, each with its key."""
    for node in descend(code):
        if isinstance(node, cst.Call):
            for part in (one for arg in node.args for one in descend(arg.value)):
                key = key_read(part, state)
                if key is not None:
                    yield key, node


def _objects(call: cst.Call) -> Iterator[str]:
    """The attributes in a call, those of methods without their names: `self.scheduler`.

    A local name may stand for anything.
    """
    for name in dotted_names(call):
        text = dotted_name(name)
        head, _, last = text.rpartition(".")
        text = head if name is call.func or last == "load_state_dict" else text
        if "." in text:
            yield text
