"""Methods that set what other methods of an object need.

A framework, or a process of a cluster, calls the methods of a worker: one builds the model,
another trains it. No code of the program shows the order, but a method that reads an attribute
comes after the only method that sets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.functions import bind
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Class, Const, Function, Instance
from fsdplint.source.positions import code_children
from fsdplint.source.source import Source
from fsdplint.syntax.attribute_targets import assigned_attributes

# Whether a method of a file is about sharding, optimizers or states.
IsRelevant = Callable[[Source, cst.FunctionDef], bool]

_NOT_CALLED = {"property", "cached_property", "staticmethod", "classmethod"}


def set_up(run: Run, instance: Instance, method: cst.FunctionDef, relevant: IsRelevant) -> None:
    """Call the methods that set the attributes that a method reads and its object does not have.

    An attribute that several methods set stays unknown: which of them came last is not known.
    """
    setup = _SetUp(run, instance, relevant)
    lacking = [name for name in setup.read_by(method) if setup.lacks(name)]
    setup.prepare(method)
    for name in lacking:
        if len(setup.setters_of(name)) > 1:
            instance.attributes.pop(name, None)


class _SetUp:
    def __init__(self, run: Run, instance: Instance, relevant: IsRelevant) -> None:
        self.run, self.instance, self.relevant = run, instance, relevant
        self.methods = _methods(instance.cls)
        self.called: set[str] = {"__init__"}

    def prepare(self, method: cst.FunctionDef) -> None:
        """Call what has to come before a method, and that itself at last."""
        self.called.add(method.name.value)
        for name in self.read_by(method):
            setters = self.setters_of(name) if self.lacks(name) else []
            if len(setters) == 1 and setters[0] not in self.called:
                self._call(setters[0])

    def setters_of(self, attribute: str) -> list[str]:
        return [one for one in self.methods if self._sets(one, attribute)]

    def _call(self, name: str) -> None:
        owner, node = self.methods[name]
        found = owner.attributes.get(name)
        decorators = set(found.decorators) if isinstance(found, Function) else set()
        if decorators & _NOT_CALLED or not self.relevant(owner.site.source, node):
            return
        self.prepare(node)
        if found is not None:
            bound = bind(self.run, found, self.instance, self.instance.cls, node)
            self.run.call(bound, Call(node, open=True))
            self.run.reached.discard(node)  # its own configurations are tried in runs of its own

    def read_by(self, method: cst.FunctionDef) -> list[str]:
        """The attributes of its object that a method reads, in source order."""
        if method.name.value not in self.methods:
            return []
        return list(self._attributes(method)[0])

    def lacks(self, name: str) -> bool:
        value = self.instance.attributes.get(name) or self.instance.cls.lookup(name)
        return value is None or (isinstance(value, Const) and value.value is None)

    def _sets(self, name: str, attribute: str) -> bool:
        _, method = self.methods[name]
        if name == "__init__":
            return False
        return attribute in self._attributes(method)[1]

    def _attributes(self, method: cst.FunctionDef) -> tuple[tuple[str, ...], frozenset[str]]:
        """The attributes of its object that a method reads, in order, and those that it sets."""
        known = self.run.project.own_attributes.get(method)
        if known is None:
            own = list(_own_attributes(method))
            targets = set(assigned_attributes(method, augmented=False))
            read = dict.fromkeys(one.attr.value for one in own if one not in targets)
            known = tuple(read), frozenset(one.attr.value for one in own if one in targets)
            self.run.project.own_attributes[method] = known
        return known


def _own_attributes(method: cst.FunctionDef) -> Iterator[cst.Attribute]:
    """The attributes of its first parameter that a method names, in source order."""
    params = method.params.params
    owner = params[0].name.value if params else None
    todo: list[cst.CSTNode] = [method.body]
    while todo:
        node = todo.pop()
        if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
            if node.value.value == owner:
                yield node
        todo += reversed(code_children(node))


def _methods(cls: Class) -> dict[str, tuple[Class, cst.FunctionDef]]:
    """The methods of a class and of its bases, without those that another one overrides."""
    result: dict[str, tuple[Class, cst.FunctionDef]] = {}
    for klass in cls.mro():
        for node in klass.node.body.body:
            if isinstance(node, cst.FunctionDef):
                result.setdefault(node.name.value, (klass, node))
    return result
