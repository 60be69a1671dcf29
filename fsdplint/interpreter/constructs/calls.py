"""Calls of each kind of value."""

from __future__ import annotations

import re
from dataclasses import replace

import libcst as cst

from fsdplint.interpreter import (
    global_counts,
    gradient_writes,
    lazy,
    list_lengths,
    losses,
    mode_code,
    own_shuffles,
    own_sizes,
    padded_tensors,
    plain_files,
    plain_tensors,
    rank_calls,
    rank_local_calls,
    rebuilt_optimizers,
    received_values,
    scalars,
    shared_draws,
    tensor_marks,
    uninitialized,
    unset_buffers,
)
from fsdplint.interpreter.copies_of_shards import note_state_written
from fsdplint.interpreter.dispatch import calls, evaluates
from fsdplint.interpreter.escape import escape, forget_passed_states
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.functions import call_function
from fsdplint.interpreter.instances import set_fields
from fsdplint.interpreter.iteration import iterate
from fsdplint.interpreter.models import mixed_operations
from fsdplint.interpreter.models.commands import run_group
from fsdplint.interpreter.models.randomness import RANDOM, note_weights_drawn
from fsdplint.interpreter.models.registry import FUNCTIONS, find_function, find_method
from fsdplint.interpreter.module_calls import call_library_method, call_module_method
from fsdplint.interpreter.modules import init_container
from fsdplint.interpreter.optimizers import lose_optimizer, note_group_change
from fsdplint.interpreter.own_dicts import as_dict, entries_of
from fsdplint.interpreter.own_optimizers import fill_own_optimizer
from fsdplint.interpreter.parameter_marks import note_row_edit
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.spread_dicts import spread_dict
from fsdplint.interpreter.spread_mappings import fill_from_mapping
from fsdplint.interpreter.state_edits import note_state_edit
from fsdplint.interpreter.torch_values import (
    ParametersOf,
    RankTest,
    RankValue,
    ShardTensor,
    StateValue,
    TensorValue,
)
from fsdplint.interpreter.unbound_methods import named_by_class
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Context,
    Dict,
    Function,
    GeneratorContext,
    Instance,
    LibraryObject,
    Method,
    ModuleValue,
    OptimizerValue,
    Partial,
    Sequence,
    Super,
    Symbol,
    Unknown,
    Value,
)

# Methods that return a property of a tensor.
_MEASURES = {"numel", "dim", "ndimension", "size", "nelement", "element_size", "item", "get_device",
             "is_floating_point", "is_contiguous", "stride", "nbytes"}  # fmt: skip


# Methods of optimizers without a model that do not change the parameter groups.
_KEEPS_GROUPS = re.compile(
    r"^(backward|clip|eval|get_|is_|print|register_|scale|set_lr|train|unscale|update|zero_grad)|hook"
)


# Methods of lists and dicts that do not change them.
_READERS = {"copy", "count", "get", "index", "items", "keys", "values", "__getitem__", "__iter__",
            "__len__", "__contains__"}  # fmt: skip


@evaluates(cst.Call)
def eval_call(run: Run, node: cst.Call) -> Value:
    run.executed.add(node)
    choice = run.eval_choice(node.func)
    function = run.settle(choice)
    note_row_edit(run, node)
    call = Call(node)
    evaluate = run.eval_choice if _keeps_choices(function) else run.eval
    for arg in node.args:
        value = evaluate(arg.value)
        if arg.star == "*":
            if _is_empty_tuple(run, value):
                continue
            items, exact = iterate(run, value)
            if exact:
                call.args.extend(items)
                _stands_for_several(run, value)
            else:
                call.open = call.shifted = True
                call.spread.append(value)
        elif arg.star == "**":
            run.spread_dicts.setdefault(arg, {})[spread_dict(as_dict(value))] = None
            _spread_argument(call, value)
            fill_from_mapping(run, function, call, value)
        elif arg.keyword is not None:
            call.kwargs[arg.keyword.value] = value
        else:
            call.args.append(value)
    begin = len(run.trace.events)
    uninitialized.note_call(run, function, call)
    unset_buffers.note_call(run, function, call)
    tensor_marks.note_operands(run, function, call)
    result = rank_calls.call(run, choice, call)
    if run.windows:
        list_lengths.note_call(run, function)
    own_shuffles.note_call(run, function, call)
    rank_local_calls.through_call(run, function, call, result, begin)
    padded_tensors.note_call(run, function, call, result)
    plain_files.note_call(run, function, call)
    received_values.note_call(run, function, call, result)
    losses.keep_sum_and_size(function, result)
    scalars.note_call(function, call, result)
    scalars.note_number(function, call, result)
    own_sizes.note_call(function, call, result)
    tensor_marks.note_call(run, function, call, result)
    shared_draws.note_call(run, function, call)
    gradient_writes.note_call(run, function, call)
    rebuilt_optimizers.note_call(run, function, call)
    mode_code.note_call(run, function, call)
    if result.created_at is None:
        result.created_at = run.site(node)
    return result


def _keeps_choices(function: Value) -> bool:
    """Whether a callee handles arguments that only some ranks have; see `Run.eval_choice`."""
    if isinstance(function, Symbol):
        return function.name == "builtins.isinstance"
    return isinstance(function, Bound | Class | Function | Partial)


def _is_empty_tuple(run: Run, value: Value) -> bool:
    """Whether a value is the empty tuple; a list that is empty here may be filled elsewhere."""
    value = run.settle(value)
    if not isinstance(value, Sequence) or value.kind != "tuple":
        return False
    return not value.items and not value.open


def _stands_for_several(run: Run, value: Value) -> None:
    """Mark the modules in a list of unknown length as repeated."""
    value = run.settle(value)
    if isinstance(value, Sequence) and value.open:
        for item in value.items:
            if isinstance(item, ModuleValue):
                run.trace.modules[item.id].repeated = True


def _spread_argument(call: Call, value: Value) -> None:
    value = as_dict(value)
    if isinstance(value, Dict):
        for key, item in value.items.items():
            call.kwargs[str(key)] = item
        call.open = call.open or value.open
    else:
        call.open = True
        call.spread.append(value)


@calls(Function)
def call_plain_function(run: Run, function: Function, call: Call) -> Value:
    if "contextmanager" in function.decorators:
        return GeneratorContext(function, call.args, call.kwargs)
    result = call_function(run, function, None, call.args, call.kwargs, call.node, call.open)
    return run_group(run, function, call) if function.node in run.commands else result


@calls(Bound)
def call_bound(run: Run, bound: Bound, call: Call) -> Value:
    function = bound.function
    if not isinstance(function, Function):
        return run.call(function, Call(call.node, [bound.receiver, *call.args], call.kwargs))
    if "contextmanager" in function.decorators:
        return GeneratorContext(bound, call.args, call.kwargs)
    if isinstance(bound.receiver, ModuleValue):
        return call_module_method(run, bound.receiver, function, call)
    return call_function(
        run, function, bound.receiver, call.args, call.kwargs, call.node, call.open
    )


@calls(Partial)
def call_partial(run: Run, partial: Partial, call: Call) -> Value:
    whole = Call(
        call.node,
        [*partial.args, *call.args],
        {**partial.kwargs, **call.kwargs},
        call.open or partial.open,
    )
    begin = len(run.trace.events)
    result = run.call(partial.function, whole)
    rank_local_calls.through_call(run, run.settle(partial.function), whole, result, begin)
    tensor_marks.note_call(run, run.settle(partial.function), whole, result)
    shared_draws.note_call(run, run.settle(partial.function), whole)
    gradient_writes.note_call(run, run.settle(partial.function), whole)
    if not partial.certain and isinstance(result, Context | GeneratorContext):
        result.certain, result.opens = False, partial.opens
    return result


@calls(LibraryObject)
def call_library_object(run: Run, value: LibraryObject, call: Call) -> Value:
    if value.is_loss:  # it computes as the functions do
        last = value.name.rpartition(".")[2]
        return call_symbol(run, Symbol(f"torch.nn.functional.{last}"), call)
    model = find_method(value, "__call__")
    return call_unknown(run, value, call) if model is None else model(run, value, "__call__", call)


@calls(Instance)
def call_instance(run: Run, instance: Instance, call: Call) -> Value:
    method = instance.cls.lookup("__call__")
    if not isinstance(method, Function):
        return call_unknown(run, instance, call)
    return call_function(run, method, instance, call.args, call.kwargs, call.node)


@calls(ParametersOf, ShardTensor, StateValue, TensorValue)
def call_tensor(run: Run, value: Value, call: Call) -> Value:
    """A tensor is not callable: it is the result of an attribute that is really a method."""
    return value


@calls(RankTest, RankValue)
def call_rank(run: Run, value: Value, call: Call) -> Value:
    """`self.is_main_process()`: an attribute with the name of a rank that is really a method."""
    return call_unknown(run, Unknown(), call) if call.values else value


@calls(Symbol)
def call_symbol(run: Run, symbol: Symbol, call: Call) -> Value:
    forget_passed_states(run, call)
    model = find_function(symbol.name)
    method = named_by_class(run, symbol.name, call) if symbol.name not in FUNCTIONS else None
    if method is not None:
        return call_method(run, method, replace(call, args=call.args[1:]))
    if model is not None:
        if lazy.function_consumes(symbol.name):
            lazy.consume_arguments(run, call)
        outer, run.library_call = run.library_call, call
        result = model(run, symbol.name, call)
        run.library_call = outer
    else:
        result = call_unknown(run, symbol, call)
    if isinstance(result, Unknown) and not any(result is value for value in call.values):
        result.library = result.library or symbol.name
    return result


@calls(Method)
def call_method(run: Run, method: Method, call: Call) -> Value:
    receiver = run.settle(method.receiver)
    if method.name not in _READERS:
        if isinstance(receiver, Sequence | Dict):
            run.note_change(receiver)
        note_group_change(run, receiver, _only_key(method.name, call))
        if isinstance(receiver, Sequence):
            receiver.every = False
    model = find_method(receiver, method.name)
    if model is not None:
        if lazy.method_consumes(method.name):
            lazy.consume_arguments(run, call)
        outer, run.library_call = run.library_call, call
        result = model(run, receiver, method.name, call)
        run.library_call = outer
        if isinstance(result, Context) and (method.opens is not None or not method.certain):
            result.certain, result.opens = False, method.opens
        return result
    if isinstance(receiver, Super):
        return _call_super(run, receiver, method.name, call)
    if isinstance(receiver, ModuleValue):
        return call_library_method(run, receiver, method.name, call)
    measured = method.name in _MEASURES
    if isinstance(receiver, StateValue):
        note_state_edit(run, receiver, method.name)
        note_state_written(run, call.node, receiver, method.name)
        return Unknown(varying=True) if measured else _of_state(run, receiver, method.name)
    if isinstance(receiver, TensorValue):
        if method.name in mixed_operations.PRODUCTS:
            operands = [receiver, *call.values]
            mixed_operations.note_computation(run, method.name, operands, call.node)
        if receiver in run.local_parts:
            return mixed_operations.local_part(run, receiver, method.name, call)
        return losses.through_method(receiver, method.name, call)
    if isinstance(receiver, ParametersOf):
        if receiver.element and method.name.endswith("_") and method.name not in RANDOM:
            mixed_operations.note_written(run, call.node, [receiver], call.values)
            plain_tensors.note_written(run, call.node, method.name, receiver, call.values)
        if receiver.element and method.name in RANDOM:
            note_weights_drawn(run, call.node, [receiver])
        if receiver.element and method.name in mixed_operations.METHODS:
            mixed_operations.note_mixed(run, method.name, [receiver, *call.values], call.node)
        if method.name == "copy_" and call.values:
            mixed_operations.note_copy(run, receiver, call.values[0], call.node)
        if method.name in ("lerp_", "add_") and call.values:
            mixed_operations.note_alias(run, method.name, receiver, call.values[0], call.node)
            mixed_operations.note_average(run, method.name, receiver, call)
        if receiver.element and not measured:
            return mixed_operations.copy_parameter(run, receiver, method.name, call)
        count = Unknown(varying=True)  # differs between parameters and modules
        global_counts.note_count(run, receiver, method.name, count)
        return count
    if isinstance(receiver, OptimizerValue):
        run.gradients_used_at = len(run.trace.events)  # it may run a backward pass
        gradient_writes.note_made(run)
        gradient_writes.note_dropped(run)
        if not _KEEPS_GROUPS.search(method.name):
            lose_optimizer(run, receiver)
        return Unknown(origin="")
    if isinstance(receiver, Const):
        return Unknown(origin="")
    return call_unknown(run, method, call)


def _of_state(run: Run, state: StateValue, name: str) -> StateValue:
    """The result of a method of a tensor of a state."""
    if name.endswith("_"):
        return replace(state, itself=False)
    if name == "detach":
        return state
    return replace(state, itself=False, of_some_ranks=run.ranks().partial)


def _call_super(run: Run, receiver: Super, name: str, call: Call) -> Value:
    """Call a method of a library base class."""
    target = receiver.receiver
    if isinstance(target, ModuleValue):
        if name == "__init__":
            init_container(run, target, call)
            return Const(None)
        model = find_method(target, name)
        if model is not None:
            return model(run, target, name, call)
        return call_library_method(run, target, name, call)
    if isinstance(target, OptimizerValue):
        return call_method(run, Method(target, name), call)
    held = entries_of(target) if target is not None else None
    if held is not None:
        model = find_method(held, name)
        return model(run, held, name, call) if model is not None else Unknown()
    if name == "__init__" and fill_own_optimizer(run, target, call):
        return Const(None)
    base = next((one for one in receiver.owner.mro()[1:] if one.dataclass), None)
    if name == "__init__" and isinstance(target, Instance) and base is not None:
        set_fields(run, target, base, call)
        return Const(None)
    if name != "__init__":
        escape(run, call)
    return Unknown()


def _only_key(name: str, call: Call) -> Value | None:
    """The key of the only element of a dict that a method changes."""
    if name in ("__setitem__", "__delitem__", "pop", "setdefault") and call.args:
        return call.args[0]
    if name == "update" and not call.open and "params" not in call.kwargs:
        if all(isinstance(one, Dict) and one.has("params") is False for one in call.args):
            return Const("")
    return None
