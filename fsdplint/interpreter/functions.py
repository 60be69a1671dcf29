"""Functions of the project: definition, binding and execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libcst as cst

from fsdplint.interpreter import grad_mode, lazy, long_constructions, repeated_work
from fsdplint.interpreter.decided_values import with_keys
from fsdplint.interpreter.frames import MAX_DEPTH, MAX_RECURSION, MAX_RECURSION_STEPS, Call, Frame
from fsdplint.interpreter.library_classes import SHARDED_CLASSES
from fsdplint.interpreter.merging import join_returned
from fsdplint.interpreter.models.registry import has_object_methods
from fsdplint.interpreter.project import Signature
from fsdplint.interpreter.ranks import value_by_name
from fsdplint.interpreter.records import MAKERS
from fsdplint.interpreter.recursion import knowledge_of, shows_nothing_new
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Dict,
    Function,
    GeneratorContext,
    Instance,
    Partial,
    PartialMethod,
    Scope,
    Sequence,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.qualified_names import canonical

# Decorators that call the function in the file that is the program.
RUN_AT_ONCE = ("fastcore.script.call_parse", "fastcore.all.call_parse")


def make_function(run: Run, node: cst.FunctionDef) -> Function:
    """The value of a `def`, before its decorators."""
    names = []
    contexts = []
    for decorator in node.decorators:
        value = run.eval(decorator.decorator)
        context = grad_mode.of_decorator(value)
        if context is not None or isinstance(value, Unknown):
            contexts.append(context or value)
        target = decorator.decorator
        if isinstance(target, cst.Call):
            target = target.func
        name = dotted_name(target).rpartition(".")[2]
        if name not in ("cache", "lru_cache") or _of_functools(run, target):
            names.append(name)
    frame = run.frames[-1]
    owner = frame.owner if frame.scope.kind == "class" else None
    function = Function(
        node,
        run.scope,
        run.site(node),
        owner=owner,
        decorators=tuple(names),
        contexts=tuple(contexts),
    )
    function.created_at = function.site
    for param in parameters_of(node.params):
        if param.default is not None:
            function.defaults[param.name.value] = run.eval(param.default)
    return function


def _of_functools(run: Run, node: cst.BaseExpression) -> bool:
    value = run.settle(run.eval(node))
    return isinstance(value, Symbol) and value.name.startswith("functools.")


def apply_decorators(run: Run, function: Function, node: cst.FunctionDef) -> Value:
    """Apply the decorators that the project defines to a function."""
    value: Value = function
    if function.name == "forward":
        return function  # decorators do not change how it is called
    for decorator in reversed(node.decorators):
        result = _decorate(run, decorator, value)
        if isinstance(result, Function):
            result.owner = function.owner
            value = result
    return value


def apply_class_decorators(run: Run, klass: Class, node: cst.ClassDef) -> Value:
    """Apply the decorators that the project defines to a class."""
    value: Value = klass
    for decorator in reversed(node.decorators):
        run.eval(decorator.decorator)
        result = _decorate(run, decorator, value)
        if isinstance(result, Class):
            value = result
    return value


def _decorate(run: Run, decorator: cst.Decorator, value: Value) -> Value | None:
    """The result of a decorator that has a model or code; None for others."""
    wrapper = run.settle(run.evaluations.get(decorator.decorator, Unknown()))
    has_code = isinstance(wrapper, Function | Partial) or (
        isinstance(wrapper, Bound) and isinstance(wrapper.function, Function)
    )
    if not has_code and not (isinstance(wrapper, Symbol) and _acts(wrapper.name)):
        return None
    return run.settle(run.call(wrapper, Call(decorator.decorator, [value])))


def _acts(name: str) -> bool:
    """Whether a library's decorator has a model."""
    return name in RUN_AT_ONCE or name in MAKERS


def parameters_of(params: cst.Parameters) -> list[cst.Param]:
    return [*params.posonly_params, *params.params, *params.kwonly_params]


def call_function(
    run: Run,
    function: Function,
    receiver: Value | None,
    args: list[Value],
    kwargs: dict[str, Value],
    node: cst.CSTNode,
    open_call: bool = False,
    on_yield: Callable[[Value], None] | None = None,
) -> Value:
    """Execute a function of the project and return its result."""

    def execute(on_yield: Callable[[Value], None] | None = on_yield) -> Value:
        return _execute_function(run, function, receiver, args, kwargs, node, open_call, on_yield)

    if on_yield is None and lazy.is_generator(run, function.node):
        return lazy.generator(run, node, function.node, execute)
    return run.memory.once(function, [receiver, *args], kwargs, execute)


def _execute_function(
    run: Run,
    function: Function,
    receiver: Value | None,
    args: list[Value],
    kwargs: dict[str, Value],
    node: cst.CSTNode,
    open_call: bool,
    on_yield: Callable[[Value], None] | None,
) -> Value:
    if long_constructions.is_too_long(run):
        call = Call(node, args, kwargs, open_call)
        long_constructions.leave_out(run, function, receiver, call)
        return Unknown()
    run.reached.add(function.node)
    active = [
        frame for frame in run.frames if frame.function is function and not frame.of_comprehension
    ]
    if len(active) >= MAX_RECURSION or len(run.frames) > MAX_DEPTH:
        return Unknown()
    if active and run.steps - active[0].first_step > MAX_RECURSION_STEPS:
        return Unknown()  # several recursive calls at every level
    given = [*([receiver] if receiver is not None else []), *args, *kwargs.values()]
    if repeated_work.has_no_effect(run, function, given):
        repeated_work.forget(run, function, given)
        return Unknown()
    knowledge = knowledge_of(map(run.settle, given))
    if shows_nothing_new(knowledge, active):
        return Unknown()
    scope = Scope(function.site.source, function.scope, "function", function.scope.module_name)
    self_argument = receiver
    if receiver is None and function.owner is not None and args:
        self_argument = args[0]  # called through a decorator
    frame = Frame(function, scope, self_argument, function.owner, on_yield=on_yield)
    frame.knowledge = knowledge
    frame.first_step, frame.loop_depth = run.steps, run.loop_depth
    _bind_parameters(run, function, scope, receiver, args, kwargs, open_call)
    if open_call and isinstance(node, cst.ClassDef | cst.FunctionDef):  # no call in the program
        owner = function.owner.node if function.owner is not None else function.node
        for value in scope.names.values():
            if isinstance(value, Unknown):
                value.synthetic_for = owner
    begin = len(run.decisions.tested_keys)
    outer_source, outer_guards = run.source, list(run.guards)
    frame.guards_outside = outer_guards
    facts, in_turn, run.in_turn = len(run.facts), run.in_turn, False
    frame.deciding_outside = len(run.deciding)
    run.stack.append(run.site(node))
    run.frames.append(frame)
    run.source = function.site.source
    run.sources.add(run.source)
    run.contexts.extend(function.contexts)
    try:
        if isinstance(function.node, cst.Lambda):
            return run.eval(function.node.body)
        signal = run.execute_suite(function.node.body)
    finally:
        del run.contexts[len(run.contexts) - len(function.contexts) :]
        run.frames.pop()
        run.stack.pop()
        run.source = outer_source
        run.drop_guards(outer_guards, "function")
        del run.facts[facts:]
        run.in_turn = in_turn
        repeated_work.note_cost(run, function, frame.first_step)
    if frame.yields:
        return Sequence(frame.yields, "iter", frame.yields_open)
    if signal is not None and signal.kind != "return" and not frame.partial:
        return _after_error(run, node)
    result = signal.value if signal is not None else None
    for test, value in reversed(frame.partial):
        result = join_returned(test, value, result)
    return with_keys(
        result if result is not None else Const(None), run.decisions.tested_keys[begin:]
    )


def _after_error(run: Run, node: cst.CSTNode) -> Value:
    """The result of a call that an error ends. The run goes on as if it had returned something, and
    what it reads from that is the same each time."""
    stable = isinstance(node, cst.Call) and not run.loop_depth
    return Unknown(origin=run.text(node) if stable else "")


def signature_of(run: Run, function: Function) -> Signature:
    """The parameters of a function, worked out once for all runs."""
    known = run.project.signatures.get(function.node)
    if known is None:
        params = function.node.params
        every = parameters_of(params)
        positional = [one.name.value for one in (*params.posonly_params, *params.params)]
        star = params.star_arg if isinstance(params.star_arg, cst.Param) else None
        known = Signature(
            positional,
            {one.name.value: one for one in every},
            None if star is None else star.name.value,
            None if params.star_kwarg is None else params.star_kwarg.name.value,
        )
        run.project.signatures[function.node] = known
    return known


def _bind_parameters(
    run: Run,
    function: Function,
    scope: Scope,
    receiver: Value | None,
    args: list[Value],
    kwargs: dict[str, Value],
    open_call: bool,
) -> None:
    signature = signature_of(run, function)
    given = [receiver, *args] if receiver is not None else args
    names = dict(zip(signature.positional, given, strict=False))
    rest = given[len(signature.positional) :]
    extra: dict[Any, Value] = {}
    for name, value in kwargs.items():
        (names if name in signature.params else extra)[name] = value
    for name, param in signature.params.items():
        if name in names:
            scope.names[name] = names[name]
        elif name in function.defaults and not open_call:
            scope.names[name] = function.defaults[name]
        else:
            typed = _library_object(function, param.annotation)
            value = typed or value_by_name(name, f"{function.name}({name})")
            if type(value) is Unknown:
                value.default = function.defaults.get(name)
            scope.names[name] = value
    if signature.star is not None:
        scope.names[signature.star] = Sequence(rest, "tuple", open_call)
    if signature.star_kwarg is not None:
        scope.names[signature.star_kwarg] = Dict(extra, open_call)


def _library_object(function: Function, annotation: cst.Annotation | None) -> Unknown | None:
    """The object for a parameter whose annotation names a library class with models."""
    name = dotted_name(annotation.annotation) if annotation is not None else ""
    head, _, rest = name.partition(".")
    held = function.scope.lookup(head) if head else None
    if not isinstance(held, Symbol):
        return None
    full = canonical(f"{held.name}.{rest}") if rest else held.name
    known = has_object_methods(full) or full in SHARDED_CLASSES
    return Unknown(origin=f"{full}()", library=full) if known else None


def call_with_yield(
    run: Run,
    function: Value,
    context: GeneratorContext,
    node: cst.CSTNode,
    on_yield: Callable[[Value], None],
) -> None:
    receiver = None
    if isinstance(function, Bound):
        receiver, function = function.receiver, function.function
    if isinstance(function, Function):
        call_function(
            run, function, receiver, context.args, context.kwargs, node, on_yield=on_yield
        )


def call_method_if_any(run: Run, receiver: Instance, name: str) -> Value | None:
    method = receiver.cls.lookup(name)
    if isinstance(method, Function):
        return call_function(run, method, receiver, [], {}, method.node)
    return None


def bind(run: Run, found: Value, receiver: Value, cls: Class, node: cst.CSTNode) -> Value:
    """The value of a class attribute that is read from an instance."""
    found = run.settle(found)
    if isinstance(found, PartialMethod):
        method = bind(run, found.function, receiver, cls, node)
        return Partial(method, found.args, found.kwargs, found.open)
    if not isinstance(found, Function):
        return found
    if "staticmethod" in found.decorators:
        return found
    if "classmethod" in found.decorators:
        return Bound(found, cls)
    if any(d in found.decorators for d in ("property", "cached_property")):
        return call_function(run, found, receiver, [], {}, node)
    return Bound(found, receiver)
