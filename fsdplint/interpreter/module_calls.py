"""Calls of nn.Modules."""

from __future__ import annotations

from fsdplint.interpreter import (
    gathered_rows,
    grad_mode,
    gradient_writes,
    lazy,
    local_columns,
    mean_losses,
    meta_device,
    rank_local,
    rank_local_calls,
    same_noise,
    second_order,
    tensor_dtypes,
    training_modes,
    uninitialized,
    unset_buffers,
)
from fsdplint.interpreter.cut_samples import cut_in
from fsdplint.interpreter.dispatch import calls
from fsdplint.interpreter.forward_summaries import run_forward
from fsdplint.interpreter.frames import Call, OutputFacts
from fsdplint.interpreter.functions import call_function
from fsdplint.interpreter.hooks import Moment, fire
from fsdplint.interpreter.models.randomness import note_reset
from fsdplint.interpreter.module_attributes import QUIET_METHODS
from fsdplint.interpreter.module_tree import child_values, communicates
from fsdplint.interpreter.modules import DELEGATE, SEQUENTIAL, container_base
from fsdplint.interpreter.refusals import note_mixed_dtypes
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.summoned_modules import summoned_details
from fsdplint.interpreter.torch_values import TensorValue
from fsdplint.interpreter.transformers_models import is_transformers_model
from fsdplint.interpreter.unit_precisions import dtype_of_output, inputs_of_unit
from fsdplint.interpreter.unset_buffers import is_of_torch
from fsdplint.interpreter.values import Function, ModuleValue, Sequence, Unknown, Value
from fsdplint.trace import Called, GradMode

MAX_CALLED = 6  # nested modules that are followed


@calls(ModuleValue)
def call_module(run: Run, module: ModuleValue, call: Call) -> Value:
    """`module(...)`."""
    return _enter(run, module, "call", call)


def call_module_method(run: Run, module: ModuleValue, function: Function, call: Call) -> Value:
    """Call a method of the class of a module."""

    def enter() -> Value:
        return _enter(run, module, function.name, call, function)

    return lazy.lazy(run, call.node, enter) if lazy.is_generator(run, function.node) else enter()


def call_library_method(run: Run, module: ModuleValue, name: str, call: Call) -> Value:
    """Call a method that the library class of a module may have and that has no model."""
    if name == "forward":
        return _enter(run, module, "forward", call)
    if name == "generate" and is_transformers_model(module):
        return _generate(run, module, call)
    if name == "zero_grad":
        gradient_writes.note_dropped(run)
    if name in QUIET_METHODS or name.startswith("register_"):
        return module if name in {"train", "eval", "requires_grad_", "apply"} else Unknown()
    if name == "reset_parameters" and is_of_torch(module):
        note_reset(run, call.node, module)
    if name not in {"reset_parameters", "_reset_parameters"}:
        meta_device.leave_meta(run, [module])
    return Unknown()


def _generate(run: Run, module: ModuleValue, call: Call) -> Value:
    """`generate` of a model of Transformers, which calls the model itself without gradients."""
    summoned = summoned_details(run, module)
    outer = run.emit(
        Called,
        call.node,
        module=module.id,
        via="generate",
        inside=run.calling[-1] if run.calling else None,
        grad=GradMode.OFF,
        **summoned,
    )
    run.emit(
        Called,
        call.node,
        module=module.id,
        inside=outer.index,
        grad=GradMode.OFF,
        **summoned,
        collective=not summoned and communicates(run, module),
    )
    return Unknown(varying=True, rank_local=rank_local_calls.of_forward(run, call, outer))


def _enter(
    run: Run,
    module: ModuleValue,
    via: str,
    call: Call,
    function: Function | None = None,
) -> Value:
    """Record that a module is entered, and execute its method."""
    target = _unwrap(module) if via == "call" else module
    forward = function
    if forward is None and target.cls is not None:
        found = target.cls.lookup("forward")
        forward = found if isinstance(found, Function) else None
    if via.startswith("_") and via != "__call__":
        return _run_method(run, target, forward, call)
    event = run.emit(
        Called,
        call.node,
        module=module.id,
        via=via,
        inside=run.calling[-1] if run.calling else None,
        grad=grad_mode.current(run.contexts, run.grad_default),
        **summoned_details(run, module),
        collective=via in {"call", "forward"} and communicates(run, module),
    )
    if via in {"call", "forward"} and not run.calling:
        same_noise.note_forward(run, call.values, is_followed=forward is not None)
    mode = None
    if via != "forward" and not run.calling:
        mode = training_modes.current_mode(run, module)
        if mode:
            event.drops_while_frozen = training_modes.drops_while_frozen(run, module)
            event.statistics = training_modes.own_statistics(run, module)
            event.drops_without_gradients = (
                event.grad is GradMode.OFF
                and training_modes.drops_alone(run, module)
                and not training_modes.is_repeated(run, call.node)
            )
            frozen = training_modes.frozen_in_training
            event.drifting = frozen(run, module, training_modes.STATISTICS)
            event.dropping = frozen(run, module, training_modes.DROPOUT)
    if via == "call" and not run.calling:
        event.own_input = rank_local.own_of_each_rank(run, *call.values, *call.spread)
        event.split_by = rank_local.split_of(run, *call.values, *call.spread)
        event.cut_samples = cut_in(run, call.values)
        event.on_meta = meta_device.stays_on_meta(run, module, event)
        uninitialized.note_training_call(run, module, event)
        note_mixed_dtypes(run, event, call)
    run.calling.append(event.index)
    depth = run.loop_depth
    try:
        if via == "call":
            fire(run, Moment.BEFORE_FORWARD, call.node, *_wrapped_modules(module))
        if via in {"call", "forward"}:
            result: Value = Unknown()
            returned: list[Value] = []
            with inputs_of_unit(run, module, call):
                facts = run_forward(
                    run,
                    target,
                    forward,
                    call,
                    event,
                    lambda: returned.append(_run_method(run, target, forward, call)),
                    lambda: _facts_of(run, returned),
                )
        else:
            result = _run_method(run, target, forward, call)
        if via == "call":
            fire(run, Moment.AFTER_FORWARD, call.node, *_wrapped_modules(module))
    finally:
        run.calling.pop()
        run.loop_depth = depth
    if mode is not None and training_modes.acts_by_mode(run, module):
        event.training = mode
    if via == "call" and not run.calling:
        unset_buffers.note_end_of_forward(run, module, event)
    if via in {"call", "forward"}:
        local = rank_local_calls.of_forward(run, call, event)
        output = TensorValue("output", (module,), rank_local=local)
        output.items = _returned_items(run, forward, returned)
        gathered_rows.note_output(run, output, event, returned)
        second_order.note_output(run, output, returned)
        mean_losses.note_output(run, returned, output)
        tensor_dtypes.set_dtype(run, output, dtype_of_output(run, module, facts.dtype))
        local_columns.note_output(run, module.id, output, facts.columns)
        return output
    return result


def _facts_of(run: Run, returned: list[Value]) -> OutputFacts:
    """What is known of the tensor that a forward returns."""
    if len(returned) != 1:
        return OutputFacts()
    tensor = run.settle(returned[0])
    return OutputFacts(run.dtypes.get(tensor, ""), run.columns.get(tensor))


def _returned_items(run: Run, forward: Function | None, returned: list[Value]) -> tuple[Value, ...]:
    """The values in the tuple that a forward returns, now or when it was executed."""
    if forward is None:
        return ()
    for value in map(run.settle, returned):
        items = value.items if isinstance(value, Sequence) and not value.open else ()
        run.returned[forward.node] = tuple(map(run.settle, items))
    return run.returned.get(forward.node, ())


def _run_method(run: Run, module: ModuleValue, function: Function | None, call: Call) -> Value:
    if len(run.calling) > MAX_CALLED:
        return TensorValue("output")
    delegate = module.attributes.get(DELEGATE)
    if function is None and isinstance(delegate, ModuleValue):
        forward = delegate.cls.lookup("forward") if delegate.cls is not None else None
        own = forward if isinstance(forward, Function) else None
        return _run_method(run, delegate, own, call)
    if function is None:
        if container_base(module) == SEQUENTIAL and module.elements is not None:
            given: list[Value] = call.args[:1] or [TensorValue("output")]
            for element in list(child_values(run, module)):
                given = [run.call(element, Call(call.node, given))]
            return given[0]
        output = TensorValue("output")
        tensor_dtypes.note_layer(run, module, call, output)
        return output
    result = call_function(run, function, module, call.args, call.kwargs, call.node, call.open)
    return lazy.consume(run, result)


def _unwrap(module: ModuleValue) -> ModuleValue:
    return _wrapped_modules(module)[-1]


def _wrapped_modules(module: ModuleValue) -> list[ModuleValue]:
    """A module and the modules that it wraps, the outermost first."""
    found = [module]
    while found[-1].inner is not None:
        found.append(found[-1].inner)
    return found
