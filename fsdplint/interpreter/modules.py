"""nn.Modules: how they are built, and what they hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.interpreter import meta_device
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.values import (
    Class,
    Const,
    Dict,
    Function,
    ModulesOf,
    ModuleValue,
    ParametersOf,
    Sequence,
    Symbol,
    Unknown,
    Value,
    is_none,
)
from fsdplint.trace import (
    GuardKind,
    Module,
    ModuleAttached,
    ModuleBuilt,
    ParametersTied,
)

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Interpreter


class Modules:
    """The part of the interpreter that builds modules and puts them together."""

    # Making ------------------------------------------------------------------------------------

    def new_module(
        self: Interpreter,
        node: cst.CSTNode,
        class_name: str,
        *,
        cls: Class | None = None,
        library_class: str | None = None,
        children_known: bool = True,
        own_parameters: bool | None = None,
        container: bool = False,
    ) -> ModuleValue:
        module = ModuleValue(self.new_id("module"), cls, library_class=library_class)
        module.on_meta = any(getattr(c, "kind", "") == "meta_device" for c in self.contexts)
        module.surely_meta = (cls is not None or library_class is not None) and meta_device.begun(
            self
        )
        module.made_at = self.site(node)
        self.objects[module.id] = module
        self.trace.modules[module.id] = Module(
            module.id,
            class_name,
            qualified_class=library_class,
            children_known=children_known,
            own_parameters=own_parameters,
            container=container,
        )
        return module

    def build_module(self: Interpreter, klass: Class, call: Call) -> ModuleValue:
        """Instantiate a class of the project that is an nn.Module."""
        others = [b for b in klass.library_bases() if b != "torch.nn.Module"]
        module = self.new_module(
            call.node,
            klass.name,
            cls=klass,
            children_known=not klass.has_unknown_base() and not others,
            own_parameters=False,
        )
        init = klass.lookup("__init__")
        depth: int = self.loop_depth
        self.loop_depth = 0
        if isinstance(init, Function):
            self.call_function(init, module, call.args, call.kwargs, call.node, call.open)
        self.loop_depth = depth
        self.emit(ModuleBuilt, call.node, module=module.id, on_meta=module.on_meta)
        return module

    def as_module(self: Interpreter, value: Value | None) -> ModuleValue | None:
        """The module that a value is; an unknown value becomes one, since it is used as one."""
        if value is None:
            return None
        value = self.settle(value)
        if isinstance(value, ModuleValue):
            return value
        if not isinstance(value, Unknown):
            return None
        name = value.label
        if value.within is not None:
            name = value.origin.rpartition(".")[2].partition("(")[0]
        if not name.isidentifier():
            name = "model"
        named_class = value.parts.get("__class__")
        if isinstance(named_class, Class):
            name = named_class.name
        elif isinstance(named_class, Symbol):
            name = named_class.name.rpartition(".")[2]
        node = value.made_at.node if value.made_at is not None else cst.Name("module")
        module = self.new_module(node, name, children_known=False)
        module.attributes.update(
            (key, part) for key, part in value.parts.items() if not key.startswith("[")
        )
        if "[]" in value.parts:
            module.attributes["*"] = value.parts["[]"]
        module.stands_in = value.stands_in
        value.promoted = module
        if value.within is not None:
            self.trace.modules[module.id].repeated = value.varying
            module.stands_for_parts = value.varying
            self.add_child(value.within, "*" if value.varying else name, module)
        return module

    # Children ----------------------------------------------------------------------------------

    def add_child(self: Interpreter, parent: ModuleValue, name: str, child: ModuleValue) -> None:
        if child is parent:
            return
        for part in self.trace.submodules(child.id):
            # a part that refers back to what contains it: the tree stays one
            below = self.trace.modules[part].children
            for back in [key for key, held in below.items() if held == parent.id]:
                del below[back]
        children = self.trace.modules[parent.id].children
        key = name
        number = 0
        while name == "*" and key in children and children[key] != child.id:
            number += 1
            key = f"*{number}"
        children[key] = child.id

    def attach(self: Interpreter, parent: ModuleValue, child: Value) -> None:
        """Record that a module gets a submodule, if it is sharded by now."""
        if not isinstance(child, ModuleValue):
            return
        sharded = [
            value.id
            for value in self.objects.values()
            if isinstance(value, ModuleValue) and (value.sharded or value.wrapper == "fsdp1")
        ]
        covered = set(self.trace.submodules(*sharded))
        if parent.id not in covered:
            return
        new = [part for part in self.trace.submodules(child.id) if part not in covered]
        new = [part for part in new if self.trace.modules[part].own_parameters]
        if new:
            self.emit(ModuleAttached, self.executing, module=parent.id, new=tuple(new))

    def set_module_attribute(
        self: Interpreter, module: ModuleValue, name: str, value: Value
    ) -> None:
        value = self.settle(value)
        if module.wrapper and module.inner is not None and name in module.inner.attributes:
            self.set_module_attribute(module.inner, name, value)
            return
        self.attach(module, value)
        meta_device.attribute_set(module, value)
        module.attributes[name] = value
        info = self.trace.modules[module.id]
        if isinstance(value, ModuleValue):
            self.add_child(module, name, value)
        elif isinstance(value, ParametersOf) or getattr(value, "name", "") == "torch.nn.Parameter":
            info.own_parameters = True
        elif name in info.children and is_none(value):
            del info.children[name]

    def note_tied(
        self: Interpreter, target: Value, name: str, value: Value, node: cst.CSTNode
    ) -> None:
        """`target.name = value` is about to happen: record it where two modules then share it."""
        target, value = self.settle(target), self.settle(value)
        if not isinstance(target, ModuleValue):
            return
        before = target.attributes.get(name)
        other = value.modules[0] if isinstance(value, ParametersOf) and value.name else None
        if other is not None and other is not target:
            self.emit(ParametersTied, node, module=target.id, other=other.id, name=name)
        elif isinstance(before, ParametersOf) and before.name:
            self.emit(ParametersTied, node, module=target.id, other=None, name=name)

    def set_frozen(
        self: Interpreter, modules: Iterable[ModuleValue], frozen: bool, *, wholly: bool = True
    ) -> None:
        """Say of modules and all in them that their parameters have no gradients, or have again."""
        surely = not any(entry.guard.kind is GuardKind.VARYING for entry in self.guards)
        if not frozen:
            self.doubt_frozen(modules)
        for module in modules:
            for part in self.trace.submodules(module.id):
                self.trace.modules[part].frozen = frozen
                held = self.objects.get(part)
                if isinstance(held, ModuleValue):
                    held.surely_frozen = frozen and surely
                    held.wholly_frozen = frozen and (
                        held.wholly_frozen or (wholly and not self.guards)
                    )

    def freeze_parameters(self: Interpreter, parameters: ParametersOf, value: Value) -> None:
        """`requires_grad` of parameters, each or some of them, is set."""
        if parameters.name and any(self.child_values(module) for module in parameters.modules):
            return  # one that the module holds itself, which says nothing of its parts
        if not (isinstance(value, Const) and value.value is True):
            # Not taken back where it is set to True: that may be another parameter of them.
            self.set_frozen(parameters.modules, True, wholly=parameters.each)
        if not (isinstance(value, Const) and value.value is False) or parameters.chosen_by:
            self.doubt_frozen(parameters.modules)

    def doubt_frozen(self: Interpreter, modules: Iterable[ModuleValue]) -> None:
        """It is not certain any more that any parameters of these modules have no gradients."""
        for module in modules:
            for part in self.trace.submodules(module.id):
                held = self.objects.get(part)
                if isinstance(held, ModuleValue):
                    held.surely_frozen = held.wholly_frozen = False
            self.doubt_wholly_frozen(module)

    def doubt_wholly_frozen(self: Interpreter, module: ModuleValue) -> None:
        """A module, what it holds and what holds it may have parameters with gradients again."""
        for other, held in self.objects.items():
            if isinstance(held, ModuleValue) and held.wholly_frozen:
                if self.trace.related(other, module.id):
                    held.wholly_frozen = False

    def make_container(
        self: Interpreter, node: cst.CSTNode, qualified: str, items: Value | None
    ) -> ModuleValue:
        """ModuleList, Sequential or ModuleDict of some items."""
        name = qualified.rpartition(".")[2]
        module = self.new_module(
            node,
            name,
            library_class=qualified,
            own_parameters=False,
            container=name != "Sequential",
        )
        module.elements = Sequence([], "list")
        items = self.settle(items) if items is not None else None
        if isinstance(items, Dict):
            for key, value in items.items.items():
                self.set_element(module, Const(key), value)
            self.trace.modules[module.id].children_known = not items.open
        elif isinstance(items, Sequence):
            for item in items.items:
                self.append_element(module, item, repeated=items.open)
        elif items is not None:
            self.trace.modules[module.id].children_known = False
        return module

    def append_element(
        self: Interpreter, module: ModuleValue, item: Value, *, repeated: bool = False
    ) -> None:
        item = self.settle(item)
        if isinstance(item, Sequence) and len(item.items) == 2:  # ("name", module)
            item = self.settle(item.items[1])
        if module.elements is None:
            module.elements = Sequence([], "list")
        child = item if isinstance(item, ModuleValue) else None
        if child is None:
            self.trace.modules[module.id].children_known = False
            return
        self.attach(module, child)
        module.elements.items.append(child)
        if repeated or self.loop_depth:
            self.trace.modules[child.id].repeated = True
        self.add_child(module, str(len(module.elements.items) - 1), child)

    def element(self: Interpreter, module: ModuleValue, index: Value) -> Value:
        """`module[index]`."""
        items = module.elements.items if module.elements is not None else []
        if isinstance(index, Const) and isinstance(index.value, int) and items:
            if -len(items) <= index.value < len(items):
                return items[index.value]
            return items[-1]
        if isinstance(index, Const) and isinstance(index.value, str):
            return self.module_attribute(module, index.value, cst.Name("element"))
        if items:
            return items[0]
        return self._hidden_child(module)

    def set_element(self: Interpreter, module: ModuleValue, key: Value, value: Value) -> None:
        """`module[key] = value`; where the key is not known, every element is replaced by it."""
        value = self.settle(value)
        if not isinstance(value, ModuleValue):
            return
        self.attach(module, value)
        children = self.trace.modules[module.id].children
        if isinstance(key, Const) and isinstance(key.value, str):
            module.attributes[key.value] = value
            self.add_child(module, key.value, value)
            return
        replaced = value.inner if value.inner is not None else None
        items = module.elements.items if module.elements is not None else []
        for number, item in enumerate(items):
            known = isinstance(key, Const) and key.value in {number, number - len(items)}
            if known or (not isinstance(key, Const) and (item is replaced or len(items) == 1)):
                items[number] = value
                if known and str(number) in children:
                    children[str(number)] = value.id
        for name, child in list(children.items()):
            if replaced is not None and child == replaced.id:
                children[name] = value.id
        if value.id not in children.values() and not items:
            self.add_child(module, "*", value)

    def _hidden_child(self: Interpreter, module: ModuleValue) -> Value:
        """What stands for the children of a module that can't be seen."""
        if "*" not in module.attributes:
            module.attributes["*"] = Unknown(varying=True, within=module)
        return self.settle(module.attributes["*"])

    def child_values(self: Interpreter, module: ModuleValue) -> list[ModuleValue]:
        """The direct children that are known, in order of registration."""
        if module.wrapper and module.inner is not None:
            return [module.inner]
        values = [self.objects.get(c) for c in self.trace.modules[module.id].children.values()]
        return [v for v in values if isinstance(v, ModuleValue)]

    def submodule_values(self: Interpreter, value: ModulesOf | ModuleValue) -> list[Value]:
        """What iterating over `m.modules()`, `m.children()`, ... or over a ModuleList gives."""
        if isinstance(value, ModuleValue):
            found: list[Value] = list(self.child_values(value))
            return found or [self._hidden_child(value)]
        direct = value.method in {"children", "named_children"}
        result: list[Value] = [] if direct else [value.module]
        seen = {value.module.id}
        stack = list(self.child_values(value.module))
        hidden = [] if self.trace.modules[value.module.id].children_known else [value.module]
        while stack:
            child = stack.pop(0)
            if child.id in seen:
                continue
            seen.add(child.id)
            result.append(child)
            if not direct:
                stack = [*self.child_values(child), *stack]
                if not (child.stands_for_parts or self.trace.modules[child.id].children_known):
                    hidden.append(child)
        result.extend(self._hidden_child(module) for module in hidden)
        if value.reversed:
            result.reverse()
        if value.method.startswith("named"):
            return [Sequence([Unknown(varying=True), v], "tuple") for v in result]
        return result
