"""The models of functions and methods, by their names.

The model of a function gets the run, the canonical name and the call; the model of a method also
gets the receiver. A name that ends in "." is a prefix. For a call without a model, see
`unknown_calls`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import ModuleValue, Unknown, Value

FunctionModel = Callable[[Run, str, Call], Value]
MethodModel = Callable[[Run, Any, str, Call], Value]

FUNCTIONS: dict[str, FunctionModel] = {}
METHODS: dict[tuple[str, str], MethodModel] = {}
_OBJECTS: set[str] = set()  # library classes whose objects have methods with a model


def function(*names: str) -> Callable[[FunctionModel], FunctionModel]:
    """Register a model for functions by their canonical names."""

    def register(model: FunctionModel) -> FunctionModel:
        for name in names:
            FUNCTIONS[name] = model
        return model

    return register


def method(kind: str, *names: str) -> Callable[[MethodModel], MethodModel]:
    """Register a model for methods of a kind of value.

    kind: the name of its class ("ModuleValue"), "Unknown" for receivers that only this method
        identifies, or the dotted name of a library class for its unknown objects.
    """

    def register(model: MethodModel) -> MethodModel:
        for name in names:
            METHODS[kind, name] = model
        if "." in kind:
            _OBJECTS.add(kind)
        return model

    return register


def find_function(name: str) -> FunctionModel | None:
    """The model of a function: its own, or that of the longest prefix; None if there is none."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    head = name
    while head:
        head = head.rpartition(".")[0]
        if head + "." in FUNCTIONS:
            return FUNCTIONS[head + "."]
    return None


def find_method(receiver: Value, name: str) -> MethodModel | None:
    kind = type(receiver).__name__
    if isinstance(receiver, ModuleValue) and receiver.wrapper == "fsdp1":
        model = METHODS.get(("fsdp1", name))
        if model is not None:
            return model
    return METHODS.get((kind, name))


def has_object_methods(name: str) -> bool:
    """Whether methods of the objects of a library class have models."""
    return name in _OBJECTS


def find_object_method(receiver: Value | None, name: str) -> MethodModel | None:
    """The model of a method of an unknown object that a library class returned."""
    if not isinstance(receiver, Unknown) or receiver.origin != f"{receiver.library}()":
        return None
    return METHODS.get((receiver.library, name))
