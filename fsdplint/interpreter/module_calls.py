"""nn.Modules: what their attributes are, and what a call of one does."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.interpreter import grad_mode, lazy, meta_device
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import find_method
from fsdplint.interpreter.values import (
    Class,
    Function,
    Made,
    Method,
    ModuleValue,
    ParametersOf,
    TensorValue,
    Unknown,
    Value,
)
from fsdplint.trace import (
    Called,
    Fsdp1Used,
    Sharding,
)
from fsdplint.trace.groups import Groups

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Interpreter

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


class ModuleCalls:
    """The part of the interpreter that reads attributes of modules and calls them."""

    # Attributes --------------------------------------------------------------------------------

    def module_attribute(
        self: Interpreter, module: ModuleValue, name: str, node: cst.CSTNode
    ) -> Value:
        if name in {"_parameters", "__dict__"}:
            meta_device.left(self, [module])
        if name in module.attributes:
            held = module.attributes[name]
            if isinstance(held, ParametersOf) and held.name:  # shared: what it is by now
                return self.take(replace(held, taken=None), element=True)
            if self._sharded_by_now(module, held):
                return self._own_parameter(module, name)
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
            return self._own_parameter(module, name)
        if info.children_known or module.cls is not None and not module.cls.has_unknown_base():
            return Method(module, name)
        value = Unknown(origin=f"{info.class_name}.{name}", within=module)
        if name in PLAIN_ATTRIBUTES:
            value.within = None
        value.owner = Unknown(promoted=module)
        module.attributes[name] = value
        return value

    def _own_parameter(self: Interpreter, module: ModuleValue, name: str) -> ParametersOf:
        one = self.take(ParametersOf((module,), complete=False), element=True)
        return replace(one, name=name)

    def _sharded_by_now(self: Interpreter, module: ModuleValue, held: Value) -> bool:
        """Whether this is an `nn.Parameter` of a sharded model, read where none is gathered."""
        is_parameter = isinstance(held, Made) and held.name == "torch.nn.Parameter"
        if not is_parameter or self.calling:
            return False
        return Groups(self.trace).owner(module.id) is not None

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

        def enter() -> Value:
            return self._enter(module, function.name, call, function)

        return (
            lazy.lazy(self, call.node, enter) if lazy.is_generator(self, function.node) else enter()
        )

    def call_library_method(self: Interpreter, module: ModuleValue, name: str, call: Call) -> Value:
        """A method that the module's library class may have and that no model describes."""
        if name == "forward":
            return self._enter(module, "forward", call)
        if name in QUIET_METHODS or name.startswith("register_"):
            return module if name in {"train", "eval", "requires_grad_", "apply"} else Unknown()
        if name not in {"reset_parameters", "_reset_parameters"}:
            meta_device.left(self, [module])
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
            grad=grad_mode.current(self.contexts, self.grad_default),
            summoned=any(getattr(c, "kind", "") == "summon_full_params" for c in self.contexts),
            collective=via in {"call", "forward"} and self.sharding_inside(module) is not None,
        )
        if via == "call" and not self.calling:
            event.on_meta = meta_device.still_there(self, module, event)
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
        result = self.call_function(function, module, call.args, call.kwargs, call.node, call.open)
        return lazy.consume(self, result)

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

    def sharding_of_parameters(self: Interpreter, parameters: Value) -> Sharding | None:
        """How a parameter, or some of several, or their gradients are sharded by now."""
        modules: tuple[ModuleValue, ...] = getattr(parameters, "modules", ())
        groups = Groups(self.trace)
        for module in modules:
            if groups.owner(module.id) is not None:  # by itself, or by what it is part of
                return Sharding.FSDP2
            inside = self.sharding_inside(module)
            if inside is not None:
                return inside
        return None
