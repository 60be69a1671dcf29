"""Calls: of the project's own functions and classes, and of everything else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import libcst as cst

from fsdplint.interpreter import grad_mode, lazy, meta_device
from fsdplint.interpreter.frames import MAX_DEPTH, MAX_RECURSION, MAX_RECURSION_STEPS, Call, Frame
from fsdplint.interpreter.models import mixing, tensors
from fsdplint.interpreter.models.datasets import note_seed
from fsdplint.interpreter.models.distributed import note_reduction
from fsdplint.interpreter.models.randomness import RANDOM, out_of_sight, set_by
from fsdplint.interpreter.models.registry import METHODS, find_function, find_method
from fsdplint.interpreter.ranks import defaulted, depends_on_rank, named
from fsdplint.interpreter.scopes import Scope
from fsdplint.interpreter.values import (
    Batches,
    Bound,
    Class,
    Const,
    Dict,
    Function,
    GeneratorContext,
    Instance,
    LoaderValue,
    Made,
    Method,
    ModuleValue,
    OptimizerValue,
    ParameterName,
    ParametersOf,
    Partial,
    RankValue,
    SamplerValue,
    Sequence,
    StateValue,
    Super,
    Symbol,
    TensorValue,
    Unknown,
    Value,
)
from fsdplint.syntax.qualified_names import dotted
from fsdplint.trace import (
    DataEscaped,
    EpochSet,
    Escaped,
    PickedByRank,
    RunElsewhere,
    Sharded,
)

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Interpreter

# Base classes of libraries whose subclasses are nn.Modules. What they add to the class can't be
# seen, except for nn.Module itself.
MODULE_BASES = {
    "torch.nn.Module",
    "pytorch_lightning.LightningModule",
    "lightning.LightningModule",
    "lightning.pytorch.LightningModule",
    "transformers.PreTrainedModel",
    "diffusers.ModelMixin",
}
OPTIMIZER_BASES = {"torch.optim.Optimizer"}

# Methods that tell something of a tensor.
_MEASURES = {"numel", "dim", "ndimension", "size", "nelement", "element_size", "item", "get_device",
             "is_floating_point", "is_contiguous", "stride", "nbytes"}  # fmt: skip

# Methods that take a part of something.
PICKS = {"narrow", "select", "index_select", "shard", "skip", "take", "split", "chunk", "iloc"}
# Unknown callees that get an optimizer and certainly leave its parameters as they are.
_LEAVES_OPTIMIZERS = re.compile(r"sched|warmup|^(unscale_|step|update|info|debug|print)$", re.I)
# Methods of optimizers that no model describes and that leave the groups as they are.
_KEEPS_GROUPS = re.compile(
    r"^(backward|clip|eval|get_|is_|print|register_|scale|set_lr|train|unscale|update|zero_grad)|hook"
)
# Methods of lists and dicts that change nothing.
_READERS = {"copy", "count", "get", "index", "items", "keys", "values", "__getitem__", "__iter__",
            "__len__", "__contains__"}  # fmt: skip


class Calls:
    """The part of the interpreter that calls things."""

    def eval_Call(self: Interpreter, node: cst.Call) -> Value:
        function = self.eval(node.func)
        self.edit_row(node)
        call = Call(node)
        for arg in node.args:
            value = self.eval(arg.value)
            if arg.star == "*":
                items, exact = self.iterate(value)
                if exact:
                    call.args.extend(items)
                    self._stands_for_several(value)
                else:
                    call.open = True
            elif arg.star == "**":
                self._spread(call, value)
            elif arg.keyword is not None:
                call.kwargs[arg.keyword.value] = value
            else:
                call.args.append(value)
        result = self.call(function, call)
        if result.made_at is None:
            result.made_at = self.site(node)
        return result

    def _stands_for_several(self: Interpreter, value: Value) -> None:
        """Say of the modules in a list of unknown length that there may be more of their kind."""
        value = self.settle(value)
        if isinstance(value, Sequence) and value.open:
            for item in value.items:
                if isinstance(item, ModuleValue):
                    self.trace.modules[item.id].repeated = True

    def _spread(self: Interpreter, call: Call, value: Value) -> None:
        if isinstance(value, Dict):
            for key, item in value.items.items():
                call.kwargs[str(key)] = item
            call.open = call.open or value.open
        else:
            call.open = True

    def call(self: Interpreter, function: Value, call: Call) -> Value:
        """Call a value; unknown callees make their arguments escape."""
        function = self.settle(function)
        if isinstance(function, Function):
            if "contextmanager" in function.decorators:
                return GeneratorContext(function, call.args, call.kwargs)
            return self.call_function(function, None, call.args, call.kwargs, call.node, call.open)
        if isinstance(function, Bound):
            inner = function.function
            if isinstance(inner, Function):
                if "contextmanager" in inner.decorators:
                    return GeneratorContext(function, call.args, call.kwargs)
                if isinstance(function.receiver, ModuleValue):
                    return self.call_module_method(function.receiver, inner, call)
                return self.call_function(
                    inner, function.receiver, call.args, call.kwargs, call.node, call.open
                )
            return self.call(inner, Call(call.node, [function.receiver, *call.args], call.kwargs))
        if isinstance(function, Class):
            return self.instantiate(function, call)
        if isinstance(function, ModuleValue):
            return self.call_module(function, call)
        if isinstance(function, Partial):
            return self.call(
                function.function,
                Call(
                    call.node,
                    [*function.args, *call.args],
                    {**function.kwargs, **call.kwargs},
                    call.open or function.open,
                ),
            )
        if isinstance(function, Symbol):
            return self._call_symbol(function, call)
        if isinstance(function, Method):
            return self._call_method(function, call)
        if isinstance(function, Instance):
            method = function.cls.lookup("__call__")
            if isinstance(method, Function):
                return self.call_function(method, function, call.args, call.kwargs, call.node)
        if isinstance(function, TensorValue | StateValue | ParametersOf):
            return function
        return self.call_unknown(function, call)

    # The project's functions -------------------------------------------------------------------

    def decorated(self: Interpreter, function: Function, node: cst.FunctionDef) -> Value:
        """What a function is after the decorators that the project itself defines."""
        value: Value = function
        if function.name == "forward":
            return function  # it is called as such, whatever is around it
        for decorator in reversed(node.decorators):
            wrapper = self.settle(self.evaluations.get(decorator.decorator, Unknown()))
            if isinstance(wrapper, Function):
                result = self.call_function(wrapper, None, [value], {}, decorator.decorator)
                if isinstance(result, Function):
                    result.owner = function.owner
                    value = result
        return value

    def make_function(self: Interpreter, node: cst.FunctionDef) -> Function:
        """The value of a `def`, before its decorators."""
        names = []
        contexts = []
        for decorator in node.decorators:
            value = self.eval(decorator.decorator)
            context = grad_mode.of_decorator(value)
            if context is not None or isinstance(value, Unknown):
                contexts.append(context or value)
            target = decorator.decorator
            if isinstance(target, cst.Call):
                target = target.func
            name = (dotted(target) or "").rpartition(".")[2]
            if name not in ("cache", "lru_cache") or self._of_functools(target):
                names.append(name)
        frame = self.frames[-1]
        owner = frame.owner if frame.scope.kind == "class" else None
        function = Function(
            node,
            self.scope,
            self.site(node),
            owner=owner,
            decorators=tuple(names),
            contexts=tuple(contexts),
        )
        function.made_at = function.site
        for param in self._parameters(node.params):
            if param.default is not None:
                function.defaults[param.name.value] = self.eval(param.default)
        return function

    def _of_functools(self: Interpreter, node: cst.BaseExpression) -> bool:
        value = self.settle(self.eval(node))
        return isinstance(value, Symbol) and value.name.startswith("functools.")

    @staticmethod
    def _parameters(params: cst.Parameters) -> list[cst.Param]:
        return [*params.posonly_params, *params.params, *params.kwonly_params]

    def call_function(
        self: Interpreter,
        function: Function,
        receiver: Value | None,
        args: list[Value],
        kwargs: dict[str, Value],
        node: cst.CSTNode,
        open_call: bool = False,
        on_yield: Callable[[Value], None] | None = None,
    ) -> Value:
        """Execute a function of the project and give what it returns."""

        def execute() -> Value:
            return self._execute_function(
                function, receiver, args, kwargs, node, open_call, on_yield
            )

        if on_yield is None and lazy.is_generator(self, function.node):
            return lazy.lazy(self, node, execute)
        return self.memory.once(function, [receiver, *args], kwargs, execute)

    def _execute_function(
        self: Interpreter,
        function: Function,
        receiver: Value | None,
        args: list[Value],
        kwargs: dict[str, Value],
        node: cst.CSTNode,
        open_call: bool,
        on_yield: Callable[[Value], None] | None,
    ) -> Value:
        self.reached.add(function.node)
        active = [frame for frame in self.frames if frame.function is function]
        if len(active) >= MAX_RECURSION or len(self.frames) > MAX_DEPTH:
            return Unknown()
        if active and self.steps - active[0].begun > MAX_RECURSION_STEPS:
            return Unknown()  # it calls itself several times at every level
        scope = Scope(function.site.source, function.scope, "function", function.scope.module_name)
        self_argument = receiver
        if receiver is None and function.owner is not None and args:
            self_argument = args[0]  # called through a decorator
        frame = Frame(function, scope, self_argument, function.owner, on_yield=on_yield)
        frame.begun = self.steps
        self._bind_parameters(function, scope, receiver, args, kwargs, open_call)
        if open_call and isinstance(node, cst.ClassDef | cst.FunctionDef):  # no call in the program
            owner = function.owner.node if function.owner is not None else function.node
            for value in scope.names.values():
                if isinstance(value, Unknown):
                    value.stands_in = owner
        outer_source, outer_guards = self.source, list(self.guards)
        self.stack.append(self.site(node))
        self.frames.append(frame)
        self.source = function.site.source
        self.contexts.extend(function.contexts)
        try:
            if isinstance(function.node, cst.Lambda):
                return self.eval(function.node.body)
            signal = self.execute_suite(function.node.body)
        finally:
            del self.contexts[len(self.contexts) - len(function.contexts) :]
            self.frames.pop()
            self.stack.pop()
            self.source = outer_source
            self._drop_guards(outer_guards, "function")
        if frame.yields:
            return Sequence(frame.yields, "list", True)
        result = signal.value if signal is not None and signal.kind == "return" else None
        for test, value in reversed(frame.partial):
            result = self.join(test, value, result)
        return result if result is not None else Const(None)

    def _bind_parameters(
        self: Interpreter,
        function: Function,
        scope: Scope,
        receiver: Value | None,
        args: list[Value],
        kwargs: dict[str, Value],
        open_call: bool,
    ) -> None:
        params = function.node.params
        positional = [p.name.value for p in (*params.posonly_params, *params.params)]
        given = ([receiver] if receiver is not None else []) + list(args)
        names = dict(zip(positional, given, strict=False))
        rest = given[len(positional) :]
        extra: dict[Any, Value] = {}
        known = {p.name.value for p in self._parameters(params)}
        for name, value in kwargs.items():
            (names if name in known else extra)[name] = value
        for param in self._parameters(params):
            name = param.name.value
            if name in names:
                scope.names[name] = names[name]
            elif name in function.defaults and not open_call:
                scope.names[name] = function.defaults[name]
            else:
                scope.names[name] = named(name, f"{function.name}({name})")
        if isinstance(params.star_arg, cst.Param):
            scope.names[params.star_arg.name.value] = Sequence(rest, "tuple", open_call)
        if params.star_kwarg is not None:
            scope.names[params.star_kwarg.name.value] = Dict(extra, open_call)

    def call_with_yield(
        self: Interpreter,
        function: Value,
        context: GeneratorContext,
        node: cst.CSTNode,
        on_yield: Callable[[Value], None],
    ) -> None:
        receiver = None
        if isinstance(function, Bound):
            receiver, function = function.receiver, function.function
        if isinstance(function, Function):
            self.call_function(
                function, receiver, context.args, context.kwargs, node, on_yield=on_yield
            )

    def call_method_if_any(self: Interpreter, receiver: Instance, name: str) -> Value | None:
        method = receiver.cls.lookup(name)
        if isinstance(method, Function):
            return self.call_function(method, receiver, [], {}, method.node)
        return None

    # Classes -----------------------------------------------------------------------------------

    def instantiate(self: Interpreter, klass: Class, call: Call) -> Value:
        """Make an object of a class of the project: a module, an optimizer or a plain instance."""
        self.instantiated.add(klass.node)
        bases = klass.library_bases()
        init = klass.lookup("__init__")
        if any(b in MODULE_BASES for b in bases):
            return self.build_module(klass, call)
        if any(b in OPTIMIZER_BASES or b.startswith("torch.optim.") for b in bases):
            return self.build_optimizer(klass.name, call)
        if klass.has_unknown_base() or any("FullyShardedDataParallel" in b for b in bases):
            self.escape(call)
        instance = Instance(klass)
        if klass.dataclass:
            self._dataclass_fields(instance, klass, call)
        if isinstance(init, Function):
            self.call_function(init, instance, call.args, call.kwargs, call.node, call.open)
        if isinstance(klass.lookup("__post_init__"), Function):
            self.call_method_if_any(instance, "__post_init__")
        return instance

    def _dataclass_fields(self: Interpreter, instance: Instance, klass: Class, call: Call) -> None:
        fields = [name for c in reversed(klass.mro()) for name in self._field_names(c)]
        for name, value in zip(fields, call.args, strict=False):
            instance.attributes[name] = value
        for name, value in call.kwargs.items():
            instance.attributes[name] = value
        for name in fields:
            if name not in instance.attributes:
                default = klass.lookup(name)
                # A default that a user may override from outside: not a constant of the program.
                origin = f"{klass.name}.{name}"
                if default is None or isinstance(default, Const | Unknown):
                    default = defaulted(name, origin, default) or Unknown(origin, default=default)
                instance.attributes[name] = default

    @staticmethod
    def _field_names(klass: Class) -> list[str]:
        names = []
        for line in klass.node.body.body:
            for statement in (
                getattr(line, "body", ()) if isinstance(line, cst.SimpleStatementLine) else ()
            ):
                if isinstance(statement, cst.AnnAssign) and isinstance(statement.target, cst.Name):
                    names.append(statement.target.value)
        return names

    # Everything else ---------------------------------------------------------------------------

    def _call_symbol(self: Interpreter, symbol: Symbol, call: Call) -> Value:
        model = find_function(symbol.name)
        if model is not None:
            if lazy.function_consumes(symbol.name):
                lazy.consume_arguments(self, call)
            result = model(self, symbol.name, call)
        else:
            result = self.call_unknown(symbol, call)
        if isinstance(result, Unknown) and not any(result is value for value in call.values):
            result.library = result.library or symbol.name
        return result

    def _call_method(self: Interpreter, method: Method, call: Call) -> Value:
        receiver = self.settle(method.receiver)
        if method.name not in _READERS:
            self.regroup(receiver, _only_key(method.name, call))
        model = find_method(receiver, method.name)
        if model is not None:
            if lazy.method_consumes(method.name):
                lazy.consume_arguments(self, call)
            return model(self, receiver, method.name, call)
        if isinstance(receiver, Super):
            return self._call_super(receiver, method.name, call)
        if isinstance(receiver, ModuleValue):
            return self.call_library_method(receiver, method.name, call)
        measured = method.name in _MEASURES
        if isinstance(receiver, StateValue):
            return Unknown(varying=True) if measured else receiver
        if isinstance(receiver, TensorValue):
            return tensors.through_method(receiver, method.name, call)
        if isinstance(receiver, ParametersOf):
            if receiver.element and method.name.endswith("_") and method.name not in RANDOM:
                set_by(self, call, [receiver])
            if receiver.element and method.name in mixing.METHODS:
                mixing.note_mixed(self, method.name, [receiver, *call.values], call.node)
            if receiver.element and not measured:
                return mixing.copied(self, receiver, method.name)
            return Unknown(varying=True)  # differs between parameters and modules
        if isinstance(receiver, OptimizerValue):
            if not _KEEPS_GROUPS.search(method.name):
                self.lose_optimizer(receiver)
            return Unknown(origin="")
        if isinstance(receiver, Const):
            return Unknown(origin="")
        return self.call_unknown(method, call)

    def _call_super(self: Interpreter, receiver: Super, name: str, call: Call) -> Value:
        """A method of a library's base class."""
        target = receiver.receiver
        if isinstance(target, ModuleValue):
            if name == "__init__":
                return Const(None)
            model = find_method(target, name)
            if model is not None:
                return model(self, target, name, call)
            return self.call_library_method(target, name, call)
        if isinstance(target, OptimizerValue):
            return self._call_method(Method(target, name), call)
        if name != "__init__":
            self.escape(call)
        return Unknown()

    def call_unknown(self: Interpreter, function: Value, call: Call) -> Value:
        """A call of something that can't be followed: modules that it gets may change, and
        functions of the project that it gets may be called."""
        function = self.settle(function)
        with self.perhaps(call.node):  # it may go through the iterators that it gets
            if isinstance(function, Method):
                lazy.consume(self, function.receiver)  # `generator.send(...)`
            lazy.consume_arguments(self, call)
        if isinstance(function, Unknown) and isinstance(function.owner, ParameterName):
            return ParameterName(varying=True)  # `name.endswith(".bias")`, `name.lower()`
        origin = function.origin if isinstance(function, Unknown) else ""
        name = origin.rpartition(".")[2]
        if isinstance(function, Method):
            name = function.name
        if isinstance(function, Symbol):
            name = function.name.rpartition(".")[2]
            origin = function.name
        if isinstance(function, Unknown):
            method = METHODS.get(("Unknown", name))
            owner = origin.rpartition(".")[0]
            if method is not None and (owner or function.within is not None):
                if function.owner is not None:
                    return method(self, self.settle(function.owner), name, call)
            if name == "full_tensor":
                tensors.gather_unseen(self, function, call.node)
            if function.within is not None:
                return self._call_within(function, call)
        note_reduction(self, name, call)
        self.unhook(function.owner if isinstance(function, Unknown) else None, call)
        optimizer = self.optimizer_by_parameters(name, call)
        if optimizer is not None:
            return optimizer
        out_of_sight(self, name or origin, call)
        meta_device.left_by_arguments(self, call.values)
        if name == "set_epoch":
            self.emit(EpochSet, call.node)
        if any(depends_on_rank(v) for v in call.values):
            if name in PICKS or any(isinstance(v, Unknown) and v.varying for v in call.values):
                self.emit(PickedByRank, call.node)
        if "seed" in name and call.values:
            note_seed(self, call.values[0])
        self.escape(call)
        if not _LEAVES_OPTIMIZERS.search(name):
            for value in call.values:
                self.lose_optimizer(self.settle(value))
        for value in call.values:
            self.call_back(value, call.node)
        result = named(name, f"{origin}()" if origin else "")
        if isinstance(result, Unknown):
            result.library = function.library if isinstance(function, Unknown) else ""
            result.by_rank = any(depends_on_rank(v) for v in call.values) or (
                isinstance(function, Method) and isinstance(function.receiver, RankValue)
            )
            result.varying = any(isinstance(v, Unknown) and v.varying for v in call.values)
            if any(isinstance(v, TensorValue) for v in call.values):
                return TensorValue("derived")
        return result

    def _call_within(self: Interpreter, function: Unknown, call: Call) -> Value:
        """A part of a module whose class can't be seen is called: a submodule or a method."""
        self.escape(call)
        return TensorValue("output")

    def call_back(self: Interpreter, value: Value, node: cst.CSTNode) -> None:
        """A function of the project was handed to code that may call it, or not, or later."""
        value = self.settle(value)
        receiver = None
        if isinstance(value, Partial):
            value = self.settle(value.function)
        if isinstance(value, Bound):
            receiver, value = value.receiver, value.function
        if not isinstance(value, Function) or value.node in self.reached:
            return
        known, begin = set(self.trace.modules), len(self.trace.events)
        self.emit(RunElsewhere, node)
        with self.perhaps(node):
            lazy.consume(self, self.call_function(value, receiver, [], {}, node))
        self.emit(RunElsewhere, node)
        for event in self.trace.events[begin:]:
            if isinstance(event, Sharded) and event.module in known:
                self.trace.modules[event.module].escaped = True
                self.emit(Escaped, node, module=event.module)

    def escape(self: Interpreter, call: Call) -> None:
        """The modules among the arguments went out of sight."""
        for value in call.values:
            for module in self.modules_in(value):
                info = self.trace.modules.get(module.id)
                if not module.wrapper:
                    self.doubt_wholly_frozen(module)
                if info is not None and not info.escaped:
                    info.escaped = True
                    self.emit(Escaped, call.node, module=module.id)
            for data in self.data_in(value):
                self.emit(DataEscaped, call.node, data=data)

    def modules_in(self: Interpreter, value: Value, depth: int = 0) -> list[ModuleValue]:
        """The modules that a value is or holds."""
        value = self.settle(value)
        if isinstance(value, ModuleValue):
            return [value]
        parts = _parts_of(value) if depth <= 2 else []
        return [m for part in parts for m in self.modules_in(part, depth + 1)]

    def data_in(self: Interpreter, value: Value, depth: int = 0) -> list[str]:
        """The ids of the samplers and loaders that a value is or holds."""
        value = self.settle(value)
        if isinstance(value, Batches):
            value = value.loader
        if isinstance(value, SamplerValue):
            return [value.id]
        if isinstance(value, LoaderValue):
            return [value.id, *([value.sampler.id] if value.sampler is not None else [])]
        parts = _parts_of(value) if depth <= 2 else []
        return [data for part in parts for data in self.data_in(part, depth + 1)]


def _only_key(name: str, call: Call) -> Value | None:
    """The key of the only element of a dict that a method changes."""
    if name in ("__setitem__", "__delitem__", "pop", "setdefault") and call.args:
        return call.args[0]
    if name == "update" and not call.args and not call.open and "params" not in call.kwargs:
        return Const("")
    return None


def _parts_of(value: Value) -> list[Value]:
    """What a value holds that somebody who gets it can get at."""
    if isinstance(value, Sequence):
        return value.items
    if isinstance(value, Dict):
        return list(value.items.values())
    if isinstance(value, Instance):
        return list(value.attributes.values())
    if isinstance(value, Made) and value.name == "torch.utils.data.BatchSampler":
        return list(value.args.values())
    if isinstance(value, Bound | Method):
        return [value.receiver]
    return []
