"""nn.Modules: how they are built, what they hold, what a call of one does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.program import gradmode, meta
from fsdplint.program.frames import Call
from fsdplint.program.models import find_method, tensors
from fsdplint.program.values import (
    Class,
    Const,
    Dict,
    Function,
    Method,
    ModulesOf,
    ModuleValue,
    OptimizerValue,
    ParametersOf,
    Sequence,
    Symbol,
    TensorValue,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import (
    Called,
    Fsdp1Used,
    GuardKind,
    Module,
    ModuleAttached,
    ModuleBuilt,
    OptimizerBuilt,
    ParametersTied,
    Sharding,
)
from fsdplint.trace.groups import Groups, Shard

if TYPE_CHECKING:
    from fsdplint.program.interpreter import Interpreter

# What optimizers of libraries that are not known are told by: their names, or what they are given.
OPTIMIZERS = re.compile(
    r"Ada|Dion|Lamb|LAMB|Lion|Muon|NAG|Optim|Prodigy|RMS|SGD|SOAP|Shampoo|Sophia"
)
SETTINGS_OF_OPTIMIZERS = {"lr", "betas", "momentum", "weight_decay"}
MAX_CALLED = 6  # modules entered within each other that are followed
# Attributes of modules that are known to be neither submodules nor methods of the user's.
PLAIN_ATTRIBUTES = {"training", "device", "dtype", "config", "weight", "bias"}
# Methods of nn.Module that do not run its forward and that no model describes.
QUIET_METHODS = {
    "train", "eval", "requires_grad_", "zero_grad", "register_buffer", "register_forward_hook",
    "register_forward_pre_hook", "register_full_backward_hook", "extra_repr", "share_memory",
    "get_parameter", "get_buffer", "apply", "buffers", "named_buffers", "double",
    "gradient_checkpointing_enable", "gradient_checkpointing_disable", "enable_input_require_grads",
    "print_trainable_parameters", "set_gradient_checkpointing", "get_input_embeddings",
    "get_output_embeddings", "num_parameters", "tie_weights",
}  # fmt: skip

# What FSDP1's and DDP's wrappers have for the module inside.
WRAPPER_ATTRIBUTES = {"module", "_fsdp_wrapped_module"}


def _may_set(klass: Class, name: str) -> bool:
    """Whether the code of a class may give its objects an attribute, called so far or not."""
    text = klass.site.source.code(klass.node)
    ways = rf"\.{name}\b\s*(:[^=\n]*)?=[^=]|\bsetattr\b|\b(add|register)_module\b|__dict__"
    return re.search(ways, text) is not None


class Modules:
    """The part of the interpreter that knows modules."""

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
        module.surely_meta = (cls is not None or library_class is not None) and meta.begun(self)
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

    def build_optimizer(self: Interpreter, class_name: str, call: Call) -> OptimizerValue:
        """An optimizer over its first argument."""
        parameters = call.arg(0, "params")
        modules, complete = self.owners_of(parameters)
        optimizer = OptimizerValue(self.new_id("optimizer"), class_name, tuple(modules))
        optimizer.made_at = self.site(call.node)
        self.objects[optimizer.id] = optimizer
        self.emit(
            OptimizerBuilt,
            call.node,
            optimizer=optimizer.id,
            class_name=class_name,
            modules=tuple(m.id for m in modules),
            complete=complete,
            chosen_by=tuple(sorted(self.choices_of(parameters))),
            stale=self.stale_of(parameters),
        )
        for way in ("foreach", "fused"):
            if constant(call.kwargs.get(way)) is True:
                tensors.note_mixed(self, parameters, way, call.node)
        return optimizer

    def lose_optimizer(self: Interpreter, value: Value) -> None:
        """Say of an optimizer that its parameters may be others than those it was built over."""
        if isinstance(value, OptimizerValue):
            for event in self.trace.of(OptimizerBuilt):
                if event.optimizer == value.id:
                    event.complete = False

    def replace_parameters(self: Interpreter, optimizer: OptimizerValue) -> None:
        """The program changes what the optimizer updates: what that is can't be told any more."""
        for event in self.trace.of(OptimizerBuilt):
            if event.optimizer == optimizer.id:
                event.complete = False

    def optimizer_by_parameters(self: Interpreter, name: str, call: Call) -> OptimizerValue | None:
        """An optimizer of a class that is not known, told by what it is called with."""
        if not name[:1].isupper() or not call.args or "chedul" in name:
            return None
        if not OPTIMIZERS.search(name) and not SETTINGS_OF_OPTIMIZERS & set(call.kwargs):
            return None  # an average of the weights, a context over parameters, ...
        modules, _ = self.owners_of(call.args[0])
        return self.build_optimizer(name, call) if modules else None

    def owners_of(self: Interpreter, value: Value | None) -> tuple[list[ModuleValue], bool]:
        """The modules whose parameters a value holds, and whether all of it comes from them."""
        value = self.settle(value) if value is not None else Unknown()
        if isinstance(value, ParametersOf):
            return list(value.modules), value.complete
        parts: list[Value] = []
        if isinstance(value, Sequence):
            parts = value.items
        elif isinstance(value, Dict):
            parts = [value.items["params"]] if "params" in value.items else []
        modules: list[ModuleValue] = []
        complete = bool(parts)
        for part in parts:
            found, whole = self.owners_of(part)
            complete = complete and whole
            modules.extend(m for m in found if m not in modules)
        return modules, complete

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

    # Parameters --------------------------------------------------------------------------------

    def take(self: Interpreter, value: ParametersOf, *, element: bool = False) -> ParametersOf:
        """Parameters that are held from now on, as `list(...)` or a loop does."""
        taken = len(self.trace.events) if value.taken is None else value.taken
        named = value.named and not element
        return replace(value, named=named, element=element or value.element, taken=taken)

    def stale_of(self: Interpreter, value: Value | None) -> tuple[str, ...]:
        """The modules whose parameters in a value have been replaced since they were taken."""
        value = self.settle(value) if value is not None else Unknown()
        if isinstance(value, ParametersOf):
            if value.taken is None:
                return ()
            groups = Groups(self.trace)
            since = [e for e in self.trace.events[value.taken :] if isinstance(e, Shard)]
            return tuple(
                module.id
                for module in value.modules
                if any(groups.replaces(event, (module.id,)) for event in since)
            )
        parts: list[Value] = []
        if isinstance(value, Sequence):
            parts = value.items
        elif isinstance(value, Dict) and "params" in value.items:
            parts = [value.items["params"]]
        return tuple(dict.fromkeys(stale for part in parts for stale in self.stale_of(part)))

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
        covered = {part for module in sharded for part in self.trace.submodules(module)}
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
        meta.attribute_set(module, value)
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

    # Attributes --------------------------------------------------------------------------------

    def module_attribute(
        self: Interpreter, module: ModuleValue, name: str, node: cst.CSTNode
    ) -> Value:
        if name in {"_parameters", "__dict__"}:
            meta.left(self, [module])
        if name in module.attributes:
            held = module.attributes[name]
            if isinstance(held, ParametersOf) and held.name:  # shared: what it is by now
                return self.take(replace(held, taken=None), element=True)
            return held
        if module.wrapper == "fsdp1" and name in {"module", "_fsdp_wrapped_module"}:
            return module.inner or Unknown()
        if module.wrapper == "ddp" and name == "module":
            return module.inner or Unknown()
        if module.wrapper == "compile" and name == "_orig_mod":
            return module.inner or Unknown()
        if module.cls is not None:
            found = module.cls.lookup(name)
            if found is not None:
                return self.bind(found, module, module.cls, node)
        if find_method(module, name) is not None or name in QUIET_METHODS or name == "forward":
            return Method(module, name)
        if module.wrapper and module.inner is not None:
            # FSDP1 and torch.compile pass what they don't have on to what they wrap
            return self.module_attribute(module.inner, name, node)
        info = self.trace.modules[module.id]
        if name in {"weight", "bias"} and (module.library_class or "").startswith("torch.nn."):
            one = self.take(ParametersOf((module,), complete=False), element=True)
            return replace(one, name=name)
        if info.children_known or module.cls is not None and not module.cls.has_unknown_base():
            return Method(module, name)
        value = Unknown(origin=f"{info.class_name}.{name}", within=module)
        if name in PLAIN_ATTRIBUTES:
            value.within = None
        value.owner = Unknown(promoted=module)
        module.attributes[name] = value
        return value

    def lacks_wrapper_attribute(self: Interpreter, value: Value, node: cst.Attribute) -> bool:
        """Whether a wrapper's attribute is read off an FSDP2 model, which certainly has none."""
        value = self.settle(value)
        if not isinstance(value, ModuleValue) or self.sharding_inside(value) is not Sharding.FSDP2:
            return False
        if not self.certainly_lacks(value, node.attr.value) or self.tries(node):
            return False
        self.emit(Fsdp1Used, node, api=node.attr.value, module=value.id)
        return True

    def certainly_lacks(self: Interpreter, module: ModuleValue, name: str) -> bool:
        """Whether a module has no attribute of this name; its wrapper, if it has one, neither."""
        if module.wrapper in {"fsdp1", "ddp"} or name in module.attributes:
            return False
        if module.inner is not None:
            return self.certainly_lacks(module.inner, name)
        info = self.trace.modules[module.id]
        if not info.children_known or name in info.children:
            return False
        own = module.cls
        if own is None:
            return True
        if any(own.lookup(one) is not None for one in (name, "__getattr__")):
            return False
        return not any(_may_set(klass, name) for klass in own.mro())

    def tries(self: Interpreter, node: cst.CSTNode) -> bool:
        """Whether a node stands in a `try` of its function that catches what goes wrong."""
        child, parent = node, self.source.parent(node)
        while parent is not None and not isinstance(parent, cst.FunctionDef | cst.Lambda):
            if isinstance(parent, cst.Try) and parent.handlers and child is parent.body:
                return True
            child, parent = parent, self.source.parent(parent)
        return False

    # Calls -------------------------------------------------------------------------------------

    def call_module(self: Interpreter, module: ModuleValue, call: Call) -> Value:
        """`module(...)`."""
        return self._enter(module, "call", call)

    def call_module_method(
        self: Interpreter, module: ModuleValue, function: Function, call: Call
    ) -> Value:
        """A method of the class of a module, called on it from outside or inside."""
        return self._enter(module, function.name, call, function)

    def call_library_method(self: Interpreter, module: ModuleValue, name: str, call: Call) -> Value:
        """A method that the module's library class may have and that no model describes."""
        if name == "forward":
            return self._enter(module, "forward", call)
        if name in QUIET_METHODS or name.startswith("register_"):
            return module if name in {"train", "eval", "requires_grad_", "apply"} else Unknown()
        if name not in {"reset_parameters", "_reset_parameters"}:
            meta.left(self, [module])
        return Unknown()

    def _enter(
        self: Interpreter,
        module: ModuleValue,
        via: str,
        call: Call,
        function: Function | None = None,
    ) -> Value:
        """Record that a module is entered and execute what it does."""
        target = self._unwrapped(module) if via == "call" else module
        forward = function
        if forward is None and target.cls is not None:
            found = target.cls.lookup("forward")
            forward = found if isinstance(found, Function) else None
        if via.startswith("_") and via != "__call__":
            return self._run_method(target, forward, call)
        event = self.emit(
            Called,
            call.node,
            module=module.id,
            via=via,
            inside=self.calling[-1] if self.calling else None,
            grad=gradmode.current(self.contexts, self.grad_default),
            summoned=any(getattr(c, "kind", "") == "summon_full_params" for c in self.contexts),
            collective=via in {"call", "forward"} and self.sharding_inside(module) is not None,
        )
        if via == "call" and not self.calling:
            event.on_meta = meta.still_there(self, module, event)
        self.calling.append(event.index)
        depth = self.loop_depth
        try:
            result = self._run_method(target, forward, call)
        finally:
            self.calling.pop()
            self.loop_depth = depth
        if via in {"call", "forward"}:
            return TensorValue("output", (module,))
        return result

    def _run_method(
        self: Interpreter, module: ModuleValue, function: Function | None, call: Call
    ) -> Value:
        if len(self.calling) > MAX_CALLED:
            return TensorValue("output")
        if function is None:
            if module.library_class == "torch.nn.Sequential" and module.elements is not None:
                for element in module.elements.items:
                    self.call(element, Call(call.node, [TensorValue("output")]))
            return TensorValue("output")
        return self.call_function(function, module, call.args, call.kwargs, call.node, call.open)

    def _unwrapped(self: Interpreter, module: ModuleValue) -> ModuleValue:
        while module.inner is not None:
            module = module.inner
        return module

    def sharding_inside(self: Interpreter, module: ModuleValue) -> Sharding | None:
        """How the module or something in it is sharded by now."""
        seen: set[str] = set()
        stack = [module]
        while stack:
            current = stack.pop()
            if current.id in seen:
                continue
            seen.add(current.id)
            if current.wrapper == "fsdp1":
                return Sharding.FSDP1
            if current.sharded:
                return Sharding.FSDP2
            stack.extend(self.child_values(current))
        return None
